"""Reading what a daemon before us left on disk. Blocking, and quick: a few small files a run."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterable

import msgspec
import structlog

from corral.daemon.supervise.run_files import FoundRun, Intent, Outcome, RunFiles
from corral.errors import CorralError

_log = structlog.get_logger("corral.daemon.supervise")


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """A run that this daemon has to know: the newest of its instance, or one whose end nobody was told."""

    path: pathlib.Path
    intent: Intent
    outcome: Outcome | None
    """None: it may be alive, or never have been; the runtime knows."""
    reported: int | None
    newest: bool

    @property
    def files(self) -> RunFiles:
        return RunFiles(self.path)


def find_leftovers(runs: Iterable[FoundRun]) -> list[Leftover]:
    """One that cannot be read is left alone and named: it must not keep the others from their adoption."""
    found: list[Leftover] = []
    by_id: dict[str, list[FoundRun]] = {}
    for run in runs:
        by_id.setdefault(run.instance_id, []).append(run)
    for of_one in by_id.values():
        newest = True
        for run in reversed(of_one):
            try:
                leftover = _read(run, newest=newest)
            except (CorralError, OSError) as error:
                _log.error("instance.unreadable", directory=str(run.path), reason=str(error))
                continue
            if leftover is not None:
                found.append(leftover)
            newest = newest and leftover is None
    return found


def _read(run: FoundRun, *, newest: bool) -> Leftover | None:
    """None when there is nothing to do about it."""
    files = RunFiles(run.path)
    reported = files.reported()
    if reported is not None and not newest:
        return None
    intent = files.intent()
    if intent is None:
        # The intent comes before everything: nothing of this run was ever executed.
        shutil.rmtree(run.path, ignore_errors=True)
        return None
    return Leftover(path=run.path, intent=intent, outcome=files.outcome(), reported=reported, newest=newest)
