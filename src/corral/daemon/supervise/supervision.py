"""The supervision of one data directory, put together: runtime, supervisor, reports, housekeeping.

The daemon uses it, and so does an operator's order when no daemon runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import Sequence
from typing import Final

import structlog

from corral.daemon import host
from corral.daemon.ports.held import HeldPorts
from corral.daemon.supervise.housekeeping import Housekeeping
from corral.daemon.supervise.preparation import NodeFacts, Preparer, StageAction
from corral.daemon.supervise.reporter import Reporter, ReportSpool
from corral.daemon.supervise.run_files import RunDirectories
from corral.daemon.supervise.services import Consoles, Services
from corral.daemon.supervise.supervisor import Supervisor
from corral.daemon.supervise.users import WorkloadUsers
from corral.daemon.supervise.working_directories import WorkingDirectories
from corral.errors import CorralError
from corral.runtimes.cgroups.opening import open_cgroups, owner_of
from corral.runtimes.cgroups.port import Cgroups
from corral.runtimes.process.provider import ProcessRuntime
from corral.system.clock import Clock
from corral.system.config_schema import InstancesSection
from corral.system.entropy import Entropy

_QUIT_TRIES: Final = 6
_QUIT_PAUSE: Final = 0.02
_TELL_SECONDS: Final = 3.0
_log = structlog.get_logger("corral.daemon.supervise")


class NodeRuntime:
    """The runtime with the control groups beneath it. `open` early: its keeper shall be there before
    threads are."""

    def __init__(self, runtime: ProcessRuntime, cgroups: Cgroups) -> None:
        self.runtime = runtime
        self.cgroups = cgroups

    @classmethod
    async def open(cls, data: pathlib.Path, settings: InstancesSection) -> NodeRuntime:
        cgroups = open_cgroups(settings.cgroups, settings.cgroup_root, owner=owner_of(str(data)))
        runtime = ProcessRuntime(data, cgroups, settings.console_segment_bytes)
        try:
            await runtime.start_keeper()
        except BaseException:
            await cgroups.close()
            raise
        _log.info("runtime.ready", cgroups=cgroups.name, capabilities=list(runtime.capabilities().names()))
        return cls(runtime, cgroups)

    async def close(self) -> None:
        """Let go of every run. A keeper that has none to mind is not left behind."""
        await self.runtime.close()
        try:
            for _ in range(_QUIT_TRIES):  # a shim whose run has just ended may be there for a moment more
                if await self.runtime.end_keeper():
                    break
                await asyncio.sleep(_QUIT_PAUSE)
        except (CorralError, OSError) as error:
            _log.warning("runtime.keeper_left", reason=str(error))
        await self.cgroups.close()


class Supervision:
    """Everything that minds instances. `begin` adopts; `end` detaches."""

    def __init__(
        self,
        *,
        data: pathlib.Path,
        settings: InstancesSection,
        node_id: str,
        address: str,
        runtime: NodeRuntime,
        spool: ReportSpool,
        consoles: Consoles,
        clock: Clock,
        entropy: Entropy,
        more_stages: Sequence[tuple[str, StageAction]] = (),
    ) -> None:
        users = WorkloadUsers(settings, data=data)
        directories = WorkingDirectories(data, entropy=entropy)
        ports = HeldPorts()
        self._users = users
        self._directories = directories
        self.services = Services(
            runtime=runtime.runtime,
            preparer=Preparer(
                node=NodeFacts(node_id=node_id, address=address, memory_mb=host.total_memory_mb()),
                users=users,
                directories=directories,
                ports=ports,
                more_stages=more_stages,
            ),
            runs=RunDirectories(data),
            directories=directories,
            ports=ports,
            reporter=Reporter(spool),
            consoles=consoles,
            clock=clock,
            entropy=entropy,
            boot_id=host.boot_id(),
            forget_uid=users.forget,
        )
        self.supervisor = Supervisor(self.services)
        self.housekeeping = Housekeeping(
            supervisor=self.supervisor,
            services=self.services,
            cgroups=runtime.cgroups,
            keep_seconds=settings.keep_ended_seconds,
            keep_bytes=settings.keep_ended_bytes,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """On return every run that a daemon before us left is minded again."""
        self._directories.open()
        self._users.warn()
        self._tasks.append(asyncio.create_task(self.services.reporter.run(), name="supervise/report"))
        await self.supervisor.adopt()
        self._tasks.append(asyncio.create_task(self.housekeeping.run(), name="supervise/tidy"))

    async def end(self) -> None:
        """Let go of everything, and leave no report unwritten that the disk takes: an end that is not
        told is told by the next daemon. Nothing that runs is touched."""
        await self.supervisor.detach()
        reporter = self.services.reporter
        try:
            if self._tasks:
                async with asyncio.timeout(_TELL_SECONDS):
                    await reporter.settled()
        except TimeoutError:
            _log.warning("instances.reports_left", waiting=reporter.waiting)
        finally:
            for task in self._tasks:
                task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()
