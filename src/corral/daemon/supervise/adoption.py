"""Runs that an earlier daemon left on disk. Blocking, and quick: a few small files a run.

A damaged file must keep neither the daemon nor other runs from anything, and its run is neither forgotten nor started
again: a run without a readable intent is supervised as far as that goes.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

import msgspec
import structlog

from corral.daemon.runs.run_files import BEGINNINGS, FoundRun, RunFiles, RunIntent, RunOutcome
from corral.daemon.workload.start_order import StartOrder, default_stop_ladder
from corral.domain.ids import InstanceId, instance_id
from corral.domain.instance_states import InstanceState
from corral.errors import CorralError
from corral.sdk.runtime import RunExit
from corral.system.trees.removal import remove

_log = structlog.get_logger("corral.daemon.supervise")


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """A run that this daemon has to know: the newest of its instance, or one whose exit was not reported."""

    path: pathlib.Path
    intent: RunIntent
    outcome: RunOutcome | None
    """None: it may be alive, or was never executed; the runtime knows."""
    reported: int | None
    newest: bool

    @property
    def files(self) -> RunFiles:
        return RunFiles(self.path)


def find_leftovers(runs: Iterable[FoundRun]) -> list[Leftover]:
    """Newest first within each instance. A foreign directory is left alone and logged."""
    found: list[Leftover] = []
    by_id: dict[str, list[FoundRun]] = {}
    for run in runs:
        by_id.setdefault(run.instance_id, []).append(run)
    for of_one in by_id.values():
        newest = True
        for run in reversed(of_one):
            try:
                instance_id(run.instance_id)
                leftover = _read(run, newest=newest)
            except (CorralError, OSError) as error:
                _log.error("run_files_read.failed", directory=str(run.path), reason=str(error))
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
    intent = _intent(run, files)
    if intent is None:
        # The intent is written before everything: nothing of this run was ever executed.
        remove(run.path)
        return None
    return Leftover(path=run.path, intent=intent, outcome=_outcome(files), reported=reported, newest=newest)


def _intent(run: FoundRun, files: RunFiles) -> RunIntent | None:
    try:
        found = files.intent()
        reason = "it is gone, and other files of the run are there"
        if found is not None or not _has_more(run.path):
            return found
    except (CorralError, OSError) as error:
        reason = str(error)
    _log.error("intent_read.failed", directory=str(run.path), reason=reason)
    return unreadable_intent(run)


def _has_more(directory: pathlib.Path) -> bool:
    """More than the beginning of an intent."""
    return any(not path.name.startswith(BEGINNINGS) for path in directory.iterdir())


def unreadable_intent(run: FoundRun) -> RunIntent:
    """Enough to supervise a run that lives: it keeps its id, is stopped by the default ladder, and is not restarted.
    Instances are named after their group; where that guess is wrong the controller knows better."""
    group = run.instance_id.rpartition("-")[0].rstrip("._-") or run.instance_id
    order = StartOrder(
        instance_id=InstanceId(run.instance_id),
        group=group,
        incarnation=run.incarnation,
        command=(),
        ladder=default_stop_ladder(),
        static=True,  # unknown: its files stay
    )
    return RunIntent(order=order, boot_id="", accepted_at_ms=0)


def _outcome(files: RunFiles) -> RunOutcome | None:
    """An unreadable outcome was one all the same: nothing of the run is left."""
    try:
        return files.outcome()
    except (CorralError, OSError) as error:
        _log.error("outcome_read.failed", directory=str(files.directory), reason=str(error))
        lost = "the file that said how cannot be read any more"
        return RunOutcome(
            state=InstanceState.CRASHED,
            outcome="unknown",
            exit=RunExit(known=False, reason=lost),
            summary=f"ended, nobody knows how ({lost})",
            reason=lost,
            ended_at_ms=round(_modified(files.directory / "outcome.json") * 1000),
        )


def _modified(path: pathlib.Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
