"""`corral module dev`: a source directory that is always the running module."""

from __future__ import annotations

import pathlib
import time
from typing import Final

import click

from corral.cli.api.form_upload import FilePart, send_form
from corral.cli.api.session import Session
from corral.cli.failure import Failure, note, report
from corral.cli.module.files import build_source
from corral.cli.module.nodes import WAIT_SECONDS, refuse_failed_nodes, show_outcome, wait_for_nodes
from corral.cli.module.views import MODULES, told
from corral.cli.terminal.output import show_streamed

_LOOK_SECONDS: Final = 0.3
_SKIPPED: Final = frozenset({"dist", "__pycache__", "tests"})
_MAX_FILES: Final = 20_000

Seen = dict[str, tuple[int, int]]
"""Change time and size by path."""


class DevLoop:
    """Looks at the files three times a second: a module is small, and every file system can do that."""

    def __init__(self, session: Session, source: pathlib.Path) -> None:
        self._session = session
        self._source = source

    def run(self, *, once: bool) -> None:
        seen = self._look()
        if once:
            self._reload()
            return
        self._try_reload()
        note(f"watching {self._source}; Ctrl-C ends")
        try:
            while True:
                time.sleep(_LOOK_SECONDS)
                now = self._look()
                if now != seen:
                    seen = now
                    self._try_reload()
        except KeyboardInterrupt:
            click.echo()

    def _try_reload(self) -> None:
        """A mistake in the source is told, and the next change is another try."""
        try:
            self._reload()
        except Failure as failure:
            report(failure.message, hint=failure.hint)

    def _reload(self) -> None:
        began = time.monotonic()
        built = build_source(self._source)
        found = send_form(
            self._session.client,
            MODULES,
            [FilePart(field="file", path=built.path)],
            what="uploading",
            params={"replace": "true", "allow_downgrade": "true"},
        )
        took = (time.monotonic() - began) * 1000
        said = f"{time.strftime('%H:%M:%S')} {told(found)}, {took:.0f} ms"
        found = wait_for_nodes(self._session, found, WAIT_SECONDS)
        show_streamed(self._session.output, found, lambda _: said)
        if self._session.output == "table":
            show_outcome(found)
        refuse_failed_nodes(found)

    def _look(self) -> Seen:
        seen: Seen = {}
        waiting = [self._source]
        while waiting and len(seen) < _MAX_FILES:
            try:
                entries = list(waiting.pop().iterdir())
            except OSError:
                continue  # removed under our eyes; the next look sees it
            for path in entries:
                if path.name.startswith(".") or path.name in _SKIPPED:
                    continue
                try:
                    facts = path.lstat()
                    is_directory = path.is_dir() and not path.is_symlink()
                except OSError:
                    continue
                if is_directory:
                    waiting.append(path)
                else:
                    seen[str(path)] = (facts.st_mtime_ns, facts.st_size)
        return seen
