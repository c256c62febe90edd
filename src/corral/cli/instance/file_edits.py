"""`corral instance edit`: one of an instance's files in an editor, and what becomes of it when both changed it."""

from __future__ import annotations

import pathlib
import shlex
import sys
import tempfile
from typing import Any, Final, NoReturn

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.failure import CommandRefused, note
from corral.cli.instance.file_changes import CHANGED, condition, files_path, send
from corral.cli.terminal.output import show_done

NOT_FOUND: Final = "NOT_FOUND"
_OVERWRITES: Final = 5
"""So often somebody's text is sent while the file changes."""
_CHOICES: Final = ("overwrite", "merge", "abort")
_UNMERGED_CHOICES: Final = ("overwrite", "abort")
"""Of what is no text."""
_MERGED_CHOICES: Final = ("write", "edit", "abort")
_MARKS: Final = (b"<<<<<<< yours", b"||||||| before", b">>>>>>> theirs")


@click.command("edit")
@click.argument("id")
@click.argument("path")
@api_command
def edit_file(session: ApiSession, id: str, path: str) -> None:
    """Edit one of an instance's files with VISUAL or EDITOR.

    When the file was changed meanwhile, by the server or by somebody, you choose: overwrite, merge or abort. What you wrote
    is never lost.
    """
    with tempfile.TemporaryDirectory(prefix="corral-edit-") as directory:
        edit = _Edit(session, id, path, pathlib.Path(directory))
        made = edit.run()
    sentence = f"'{path}' is written" if made["changed"] else "nothing was changed"
    show_done(session.output, made, sentence, name="digest")


class _Edit:
    """One file in an editor. `_base` is what the file had when it was read last, `_mine` what is edited."""

    def __init__(self, session: ApiSession, id: str, path: str, directory: pathlib.Path) -> None:
        self._session = session
        self._id = id
        self._path = path
        name = pathlib.PurePosixPath(path).name
        self._mine = directory / name
        self._base = directory / f"{name}.base"
        self._theirs = directory / f"{name}.theirs"

    def run(self) -> Any:
        from corral.cli.terminal.editor import kept_text, run_editor

        digest = self._read(self._mine)
        before = self._mine.read_bytes()
        self._base.write_bytes(before)
        with kept_text(self._mine, before=before):
            run_editor(self._mine)
            if self._mine.read_bytes() == before:
                return {"id": self._id, "path": self._path, "digest": digest, "changed": False}
            return self._send(condition(digest))

    def _send(self, headers: dict[str, str]) -> Any:
        while True:
            try:
                with self._mine.open("rb") as file:
                    return send(self._session, self._id, self._path, file, headers)
            except CommandRefused as refusal:
                if refusal.code != CHANGED:
                    raise
                headers = self._settle(refusal)

    def _settle(self, refusal: CommandRefused) -> dict[str, str]:
        """What the next attempt requires; raises the refusal when there is none."""
        choice = _choice(refusal, _UNMERGED_CHOICES if b"\0" in self._mine.read_bytes() else _CHOICES)
        if choice == "abort":
            self._abort(refusal, refusal.digest)
        if choice == "overwrite":
            return condition(refusal.digest or "none")
        digest = self._read(self._theirs)
        merge(self._mine, self._base, self._theirs)
        self._base.write_bytes(self._theirs.read_bytes())
        self._edit_merged(refusal, digest)
        return condition(digest)

    def _edit_merged(self, refusal: CommandRefused, digest: str) -> None:
        """Until it is as somebody wants it: what still has marks, or was left as it was merged, is written only if that is said."""
        from corral.cli.terminal.editor import run_editor

        choice = "edit"
        while choice == "edit":
            before = self._mine.read_bytes()
            run_editor(self._mine)
            if has_marks(text := self._mine.read_bytes()):
                choice = _merged_choice("the text still has marks of the merge")
            elif text == before:
                choice = _merged_choice("the merged text was not changed")
            else:
                return
        if choice == "abort":
            self._abort(refusal, digest)

    def _abort(self, refusal: CommandRefused, digest: str) -> NoReturn:
        """Keep the text and raise the refusal. `digest`: of the file that is there; empty: there is none."""
        from corral.cli.terminal.editor import keep_text

        kept = keep_text(self._mine)
        there = ("--if-match", digest) if digest else ()
        look = shlex.join(("corral", "instance", "cat", self._id, self._path))
        put = shlex.join(("corral", "instance", "put", self._id, self._path, str(kept), *there))
        refusal.hint = f"nothing was written; look at it with: {look}; then write yours with: {put}"
        raise refusal

    def _read(self, target: pathlib.Path) -> str:
        """Fetch the file; its digest."""
        from corral.cli.api.transfers import save

        response = self._session.client.download(files_path(self._id, "content"), {"path": self._path})
        digest = response.head.get("ETag").strip('"')
        save(response, str(target), what=self._path)
        return digest


def _choice(refusal: CommandRefused, choices: tuple[str, ...]) -> str:
    if not sys.stdin.isatty():
        return "abort"
    note(refusal.message)
    question = "overwrite it, merge both, or abort" if "merge" in choices else "overwrite it, or abort"
    chosen: str = click.prompt(question, type=click.Choice(choices), default="abort", err=True)
    return chosen


def _merged_choice(why: str) -> str:
    if not sys.stdin.isatty():
        return "abort"
    note(why)
    chosen: str = click.prompt(
        "write it, edit it again, or abort", type=click.Choice(_MERGED_CHOICES), default="edit", err=True
    )
    return chosen


def has_marks(text: bytes) -> bool:
    """Whether a line of it begins as those do that `merge` puts around what both changed."""
    return any(line.startswith(_MARKS) for line in text.splitlines())


def merge(mine: pathlib.Path, base: pathlib.Path, theirs: pathlib.Path) -> None:
    """Put their changes into `mine`; where both changed the same lines it has both, between marks. Without git or diff3, or
    where neither can, all of it is between marks."""
    import subprocess

    marks = ("-L", "yours", "-L", "before", "-L", "theirs")
    # The exit code of the first counts conflicts; that of the second is 1 with some, and 2 for a failure.
    for command, most in ((("git", "merge-file", "-p"), 127), (("diff3", "-m"), 1)):
        try:
            merged = subprocess.run([*command, *marks, mine, base, theirs], check=False, capture_output=True)
        except OSError:
            continue
        if 0 <= merged.returncode <= most:
            _replace(mine, merged.stdout)
            return
    both = (b"<<<<<<< yours\n", mine.read_bytes(), b"\n=======\n", theirs.read_bytes(), b"\n>>>>>>> theirs\n")
    _replace(mine, b"".join(both))


def _replace(file: pathlib.Path, content: bytes) -> None:
    """The former text is there until the new one is whole."""
    new = file.with_name(f"{file.name}.merged")
    new.write_bytes(content)
    new.replace(file)
