"""Cleanup after ended runs: working directories, run directories, control groups.

Nothing that a living run uses is ever touched: whether one lives is checked in the same step of the event loop in
which its directory is renamed away.
"""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Iterable
from typing import Final

import msgspec
import structlog

from corral.daemon.runs.run_files import FoundRun, RunDirectories
from corral.daemon.runs.services import Services
from corral.daemon.supervise.instance import Instance
from corral.daemon.supervise.supervisor import InstanceSupervisor
from corral.domain.instance_states import InstanceState
from corral.errors import CorralError
from corral.sdk.runtime import run_name

_PAUSE_SECONDS: Final = 60.0
_SETTLED_SECONDS: Final = 60.0
"""So long after its end was reported nothing is written into a run's directory any more."""
_log = structlog.get_logger("corral.daemon.supervise")


class EndedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run directory that is not needed, and its size."""

    run: FoundRun
    ended_at: float
    size: int


class RunSizes:
    """The sizes of ended runs. The directory of a run that ended a while ago is walked once, and again when something
    was added to it or removed."""

    def __init__(self) -> None:
        self._known: dict[pathlib.Path, tuple[int, int]] = {}
        """The time of the directory's last change, and the size of all in it."""

    def of(self, directory: pathlib.Path, *, settled: bool) -> int:
        if not settled:
            return _size(directory)
        changed = directory.stat().st_mtime_ns
        known = self._known.get(directory)
        if known is None or known[0] != changed:
            known = self._known[directory] = changed, _size(directory)
        return known[1]

    def keep(self, directories: Iterable[pathlib.Path]) -> None:
        """Forget all others."""
        self._known = {path: self._known[path] for path in directories if path in self._known}


class EndedRunCleanup:
    """Cleans up once a minute. `tidy` may be called at any time."""

    def __init__(
        self,
        *,
        supervisor: InstanceSupervisor,
        services: Services,
        keep_seconds: float,
        keep_bytes: int,
    ) -> None:
        self._supervisor = supervisor
        self._services = services
        self._keep_seconds = keep_seconds
        self._keep_bytes = keep_bytes
        self._sizes = RunSizes()

    async def run(self) -> None:
        """Until cancelled; a failure is logged and tried again."""
        while True:
            try:
                await self.tidy()
            except (CorralError, OSError) as error:
                _log.warning("cleanup.failed", reason=str(error))
            except Exception:  # one fault must not fill the disk for ever
                _log.exception("cleanup.failed")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def tidy(self) -> None:
        self.put_away_directories()
        await self._remove_old_runs()
        await self._services.directories.empty_bin()  # needs no room, and makes some for what comes next
        await self._release_uids()
        await self._supervisor.look_for_lost()

    def put_away_directories(self) -> None:
        """Working directories of instances that ended: at once after a stop, later after a crash."""
        for instance in self._supervisor.instances.all():
            lost = self._services.lost.of(instance.id)  # whose directory it is
            if not instance.active and _is_due(instance) and lost is None:
                self._services.directories.discard(instance.id, instance.current.order.incarnation)

    async def _remove_old_runs(self) -> None:
        needed = {run.name for run in self._supervisor.instances.runs() if not run.ended}
        now = self._services.now_ms() / 1000
        ended = await asyncio.to_thread(ended_runs, self._services.runs, needed, self._sizes, now=now)
        for old in too_old(ended, now=now, keep_seconds=self._keep_seconds, keep_bytes=self._keep_bytes):
            self._services.consoles.detach(old.run.instance_id, old.run.incarnation)
            # In one rename: pending notifications may be written there just now, and a half-deleted run cannot be understood.
            await asyncio.to_thread(self._services.directories.drop, old.run.path)
            await self._forget(old.run)

    async def _forget(self, gone: FoundRun) -> None:
        """The last run directory of an instance is gone: it is forgotten, with its working directory, which nothing
        else would remove."""
        last = self._supervisor.instances.find(gone.instance_id)
        if last is None or last.order.incarnation != gone.incarnation or not last.ended:
            return
        self._supervisor.forget(gone.instance_id)
        if not last.order.static and self._services.lost.of(gone.instance_id) is None:
            self._services.directories.discard(gone.instance_id, gone.incarnation)

    def _is_gone(self, instance_id: str) -> bool:
        """Nothing runs under this id, and it has no directory. Thread-safe."""
        return (
            not self._supervisor.is_active(instance_id)
            and self._services.lost.of(instance_id) is None
            and not self._services.directories.present(instance_id)
        )

    async def _release_uids(self) -> None:
        try:
            await asyncio.to_thread(self._services.release_uids, self._is_gone)
        except (CorralError, OSError) as error:  # they are stored with the next change
            _log.warning("uid_release.failed", reason=str(error))


def _is_due(instance: Instance) -> bool:
    run = instance.current
    if run.outcome is None or run.order.static:
        return False
    return (
        run.outcome.state is InstanceState.STOPPED or run.times.ended_seconds >= run.order.crash_keep_seconds
    )


def ended_runs(runs: RunDirectories, needed: set[str], sizes: RunSizes, *, now: float) -> list[EndedRun]:
    """Reported runs that are not needed, the oldest first."""
    found = []
    for run in runs.all():
        if run_name(run.instance_id, run.incarnation) in needed:
            continue
        try:
            reported = (run.path / "reported").stat()
            size = sizes.of(run.path, settled=now - reported.st_mtime > _SETTLED_SECONDS)
            found.append(EndedRun(run=run, ended_at=reported.st_mtime, size=size))
        except FileNotFoundError:
            continue  # not reported, or it changes while we look: the next time
    sizes.keep(ended.run.path for ended in found)
    return sorted(found, key=lambda ended: ended.ended_at)


def too_old(ended: list[EndedRun], *, now: float, keep_seconds: float, keep_bytes: int) -> list[EndedRun]:
    """Which of them are removed, oldest first: by age, and by their total size."""
    total = sum(run.size for run in ended)
    gone = []
    for run in ended:
        if now - run.ended_at < keep_seconds and total <= keep_bytes:
            break
        gone.append(run)
        total -= run.size
    return gone


def _size(directory: pathlib.Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))
