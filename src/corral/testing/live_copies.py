"""Copies of instances that live on this machine, as the kernel lists them: independent of every record of ours.

A workload has its instance's id in its environment. A thread looks again and again, so that two copies of one id are
seen although they lived together for a moment only. The workload has to be one process.
"""

from __future__ import annotations

import collections
import pathlib
import threading
from types import TracebackType
from typing import Final, Self

_PAUSE: Final = 0.1
_PROC: Final = pathlib.Path("/proc")
_KEY: Final = b"CORRAL_INSTANCE_ID="


class LiveCopies:
    """Watches workloads whose working directory is beneath `directory`. Use as `with`."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = str(directory.resolve())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="live-copies", daemon=True)
        self.looks = 0
        self.together: dict[str, set[int]] = {}
        """Ids of which several copies lived at once, with their processes."""
        self.seen: dict[str, set[int]] = collections.defaultdict(set)
        """Every process that was seen, by id."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def now(self) -> dict[str, set[int]]:
        """The live processes by instance."""
        found: dict[str, set[int]] = collections.defaultdict(set)
        for entry in _PROC.iterdir():
            if entry.name.isdecimal() and (id := self._instance_of(entry)):
                found[id].add(int(entry.name))
        return dict(found)

    def _instance_of(self, process: pathlib.Path) -> str:
        """Empty for processes that are none of ours, and for the dead: those have no environment."""
        try:
            environment = (process / "environ").read_bytes()
            at = environment.find(_KEY)
            if at < 0 or not str((process / "cwd").readlink()).startswith(self._directory):
                return ""
        except OSError:
            return ""
        return environment[at + len(_KEY) :].split(b"\0", 1)[0].decode(errors="replace")

    def _watch(self) -> None:
        while not self._over.wait(_PAUSE):
            for id, pids in self.now().items():
                self.seen[id] |= pids
                if len(pids) > 1:
                    self.together.setdefault(id, set()).update(pids)
            self.looks += 1
