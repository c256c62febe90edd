"""`ctx.processes` on a node: processes that modules run beside the instances here.

Such a process belongs to the module that spawned it: the runtime knows it as `MODULE.NAME`, and other modules
neither see nor stop it. It outlives the daemon and the module's own process. An upgrade, a restart or a pause
of the module leaves it alone; once the module is uninstalled `keep_only` ends it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import math
import pathlib
import re
from collections.abc import Callable, Collection, Iterable
from typing import Final, Protocol

import structlog

from corral.daemon.workload.environment import check_names
from corral.errors import Code, CorralError, Rejected
from corral.modules.scope import Scope
from corral.modules.services.host_operations import Operation
from corral.sdk.protocol import messages as m
from corral.sdk.protocol.instance_messages import (
    ListProcesses,
    ProcessBody,
    ProcessFound,
    ProcessList,
    SpawnProcess,
    StopProcess,
)
from corral.sdk.runtime import RunHandle, SideRun
from corral.system.signals import signal_name

MOST_GRACE: Final = 30.0
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_LAST_GRACE: Final = 2.0
_log = structlog.get_logger("corral.daemon.modules")


class SideRuns(Protocol):
    """The methods needed of a runtime; see `corral.sdk.runtime.RuntimeProvider`."""

    async def spawn_beside(
        self, handle: RunHandle, name: str, command: tuple[str, ...], environment: dict[str, str]
    ) -> SideRun: ...

    async def list_beside(self, handle: RunHandle) -> tuple[SideRun, ...]: ...

    async def stop_beside(self, handle: RunHandle, name: str, *, grace: float) -> SideRun | None: ...


class RunFilesPlace(Protocol):
    @property
    def directory(self) -> pathlib.Path: ...


class AccompaniedRun(Protocol):
    """The fields needed of a run; `handle` is None before its start and after its end."""

    @property
    def name(self) -> str: ...

    @property
    def handle(self) -> RunHandle | None: ...

    @property
    def runtime(self) -> SideRuns: ...

    @property
    def files(self) -> RunFilesPlace: ...


class ModuleProcesses:
    """`find_run` returns the latest run of an instance, `runs` the latest of each."""

    def __init__(
        self,
        *,
        find_run: Callable[[str], AccompaniedRun | None],
        runs: Callable[[], Iterable[AccompaniedRun]] = lambda: (),
    ) -> None:
        self._find_run = find_run
        self._runs = runs

    def operations(self) -> list[Operation]:
        return [
            Operation(method=m.SPAWN, body=SpawnProcess, handler=self._spawn),
            Operation(method=m.LIST_PROCESSES, body=ListProcesses, handler=self._list),
            Operation(method=m.STOP_PROCESS, body=StopProcess, handler=self._stop),
        ]

    async def keep_only(self, installed: Collection[str]) -> None:
        """End processes of modules that are not installed here any more. Idempotent; to be called after an
        uninstall, and once the instances of an earlier daemon are adopted."""
        found = [
            self._end(run, side)
            for run in list(self._runs())
            for side in await self._beside(run)
            if side.running and module_of(side.name) not in installed
        ]
        await asyncio.gather(*found)

    async def _beside(self, run: AccompaniedRun) -> tuple[SideRun, ...]:
        """Processes beside a run; none of a run that has ended. When the runtime cannot list them, none, and
        a log record."""
        if run.handle is None:
            return ()
        try:
            return await run.runtime.list_beside(run.handle)
        except (CorralError, OSError) as error:
            _log.warning("companion_list.failed", run=run.name, error=str(error))
            return ()

    async def _end(self, run: AccompaniedRun, side: SideRun) -> None:
        _log.info("companion.stopped", run=run.name, process=side.name, why="its module is not installed")
        try:
            await run.runtime.stop_beside(_handle(run), side.name, grace=_LAST_GRACE)
        except (CorralError, OSError) as error:
            _log.warning("companion_stop.failed", run=run.name, process=side.name, error=str(error))

    async def _spawn(self, scope: Scope, asked: SpawnProcess) -> ProcessBody:
        _check_name(asked.name)
        if not asked.command or not asked.command[0]:
            raise Rejected(Code.INVALID_FIELD, f"process '{asked.name}' has no command", field="command")
        check_names(asked.env)
        run = self._run(asked.instance_id)
        if run.handle is None:
            raise Rejected(
                Code.NOT_RUNNING,
                f"instance '{asked.instance_id}' does not run",
                hint="spawn in on_instance_started, or later",
            )
        name = _stored(scope, asked.name)
        side = await run.runtime.spawn_beside(run.handle, name, asked.command, asked.env)
        _log.info("companion.started", run=run.name, process=name, pid=side.pid)
        return body_of(side)

    async def _list(self, scope: Scope, asked: ListProcesses) -> ProcessList:
        run = self._run(asked.instance_id)
        sides = await run.runtime.list_beside(_handle(run))
        return ProcessList(
            processes=tuple(body_of(side) for side in sides if module_of(side.name) == scope.module_id)
        )

    async def _stop(self, scope: Scope, asked: StopProcess) -> ProcessFound:
        _check_name(asked.name)
        if not (math.isfinite(asked.grace) and 0 <= asked.grace <= MOST_GRACE):
            raise Rejected(
                Code.INVALID_FIELD,
                f"a grace of {asked.grace} s is not given",
                hint=f"0 to {MOST_GRACE:g} s are",
                field="grace",
            )
        run = self._run(asked.instance_id)
        side = await run.runtime.stop_beside(_handle(run), _stored(scope, asked.name), grace=asked.grace)
        return ProcessFound(process=None if side is None else body_of(side))

    def _run(self, instance_id: str) -> AccompaniedRun:
        run = self._find_run(instance_id)
        if run is None:
            raise Rejected(
                Code.NOT_FOUND,
                f"there is no instance '{instance_id[:80]}' on this node",
                field="instance_id",
            )
        return run


def module_of(stored: str) -> str:
    """Module that owns a process, by its name in the runtime."""
    return stored.rpartition(".")[0]


def _stored(scope: Scope, name: str) -> str:
    return f"{scope.module_id}.{name}"


def _check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise Rejected(
            Code.INVALID_FIELD,
            f"{name[:80]!r} is no name for a process beside an instance",
            hint="use up to 32 lower case letters, digits and '-'",
            field="name",
        )


def _handle(run: AccompaniedRun) -> RunHandle:
    """Handle of a run, also of an ended one: then only its directory is used."""
    return run.handle or RunHandle(
        runtime="", run_name=run.name, run_directory=str(run.files.directory), pid=0, started_at_ms=0
    )


def body_of(side: SideRun) -> ProcessBody:
    """The process as its module receives it."""
    ended = side.exit
    known = ended is not None and ended.known
    return ProcessBody(
        name=side.name.rpartition(".")[2],
        command=side.command,
        pid=side.pid,
        started_at=dt.datetime.fromtimestamp(side.started_at_ms / 1000, dt.UTC),
        running=side.running,
        exit_code=ended.code if ended is not None and known and not ended.signal else None,
        signal=signal_name(ended.signal) if ended is not None and known and ended.signal else "",
        output=side.output,
    )
