"""Composition of the supervision of one data directory: runtime, supervisor, reports, cleanup.

Used by the daemon, and by an operator's stop order when no daemon runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from typing import Final

import structlog

from corral.daemon.hooks.instance_hooks import InstanceHooks
from corral.daemon.link.controller_contact import ControllerContact
from corral.daemon.probes.listening_sockets import SocketTables
from corral.daemon.probes.log_probe import ConsoleGrowth
from corral.daemon.runs.orphan_runs import OrphanRuns
from corral.daemon.runs.run_files import RunDirectories, RunFiles
from corral.daemon.runs.run_hooks import RunEnd, ended_handle, exit_info, find_pending, find_unsent
from corral.daemon.runs.services import RunConsoles, Services
from corral.daemon.supervise.cleanup import EndedRunCleanup
from corral.daemon.supervise.isolation import IsolationWatch
from corral.daemon.supervise.node_runs import NodeRuns
from corral.daemon.supervise.supervisor import InstanceSupervisor
from corral.errors import CorralError
from corral.runtimes.cgroups.port import Cgroups
from corral.runtimes.cgroups.selection import open_cgroups, owner_of
from corral.runtimes.node_runtimes import Runtimes, close_runtimes, open_runtimes
from corral.runtimes.process.provider import ProcessRuntime
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock, boot_id
from corral.system.daemon_config import DaemonConfig, InstancesSection
from corral.system.entropy import Entropy

_REPORT_SECONDS: Final = 3.0
_log = structlog.get_logger("corral.daemon.supervise")


class NodeRuntime:
    """The runtimes with their control groups. `open` early: their keeper has to exist before threads do."""

    def __init__(self, runtimes: Runtimes, cgroups: Cgroups) -> None:
        self.runtimes = runtimes
        self.cgroups = cgroups

    @property
    def runtime(self) -> ProcessRuntime:
        """The process runtime, which every node has."""
        return self.runtimes.process

    @classmethod
    async def open(cls, data: pathlib.Path, settings: InstancesSection) -> NodeRuntime:
        cgroups = open_cgroups(settings.cgroups, settings.cgroup_root, owner=owner_of(str(data)))
        try:
            runtimes = await open_runtimes(
                data, cgroups, settings.console_segment_bytes, spare_shims=settings.spare_shims
            )
        except BaseException:
            await cgroups.close()
            raise
        capabilities = list(runtimes.process.capabilities().names())
        _log.info("runtime.started", cgroups=cgroups.name, capabilities=capabilities)
        return cls(runtimes, cgroups)

    async def close(self) -> None:
        """Detach from every run. A keeper without runs is ended."""
        await close_runtimes(self.runtimes)
        await self.cgroups.close()


class Supervision:
    """Supervision of all instances. `begin` adopts; `end` detaches."""

    def __init__(
        self,
        *,
        config: DaemonConfig,
        node_runs: NodeRuns,
        runtime: NodeRuntime,
        consoles: RunConsoles,
        clock: Clock,
        entropy: Entropy,
        hooks: InstanceHooks | None = None,
        contact: ControllerContact | None = None,
    ) -> None:
        """`contact`: None where no daemon runs."""
        self.contact = contact
        self.isolation = IsolationWatch(contact, node_runs.instances) if contact is not None else None
        self._preparation = node_runs.preparation
        self.directories = self._preparation.directories
        self._growth = ConsoleGrowth()
        self._open = contextlib.ExitStack()
        runs, reporter = RunDirectories(config.data), node_runs.reporter
        self.services = Services(
            runtimes=runtime.runtimes,
            preparer=self._preparation.preparer,
            runs=runs,
            directories=self.directories,
            ports=self._preparation.ports,
            reporter=reporter,
            lost=OrphanRuns(cgroups=runtime.cgroups, runs=runs, reporter=reporter),
            consoles=consoles,
            clock=clock,
            entropy=entropy,
            growth=self._growth,
            sockets=SocketTables(),
            boot_id=boot_id(),
            reserve_mb=config.disk.reserve_mb,
            send=node_runs.send,
            release_uids=self._preparation.users.release,
            hooks=hooks,
            overdue=self.isolation.overdue if self.isolation is not None else lambda _: None,
        )
        self.supervisor = InstanceSupervisor(self.services, node_runs.instances)
        self.housekeeping = EndedRunCleanup(
            supervisor=self.supervisor,
            services=self.services,
            keep_seconds=config.instances.keep_ended_seconds,
            keep_bytes=config.instances.keep_ended_bytes,
        )
        self._tasks = Tasks()

    async def begin(self) -> None:
        """On return every run that an earlier daemon left is supervised again."""
        self.directories.open()
        self._open.enter_context(self._growth)
        await asyncio.to_thread(self._preparation.users.warn)
        self._tasks.spawn(self.services.reporter.run(), name="supervise/report")
        await self._notify_old_exits()
        await self._find_lost()
        await self.supervisor.adopt()
        if self.isolation is not None:
            self._tasks.spawn(self.isolation.run(), name="supervise/isolation")
        self._tasks.spawn(self.housekeeping.run(), name="supervise/tidy")

    async def _find_lost(self) -> None:
        """Before anything is started again: an orphan run keeps its id."""
        try:
            await self.services.lost.look(tuple, ended_too=True)
        except (CorralError, OSError) as error:
            _log.warning("orphan_search.failed", reason=str(error))

    async def _notify_old_exits(self) -> None:
        """Notify modules of exits that an earlier daemon could not, before anything of a later run."""
        hooks = self.services.hooks
        if hooks is None:
            return
        runs = await asyncio.to_thread(self.services.runs.all)
        for pending in await asyncio.to_thread(find_pending, runs):
            file = RunEnd(pending.run.instance_id, RunFiles(pending.run.path), self.directories)
            hooks.restore_pending(pending.name, file, pending.modules)
        for end in await asyncio.to_thread(find_unsent, runs):
            handle = ended_handle(end.intent, end.outcome, self.directories)
            file = RunEnd(end.intent.order.instance_id, end.files, self.directories)
            hooks.stopped(end.intent.name, handle, exit_info(end.outcome), file)

    async def end(self) -> None:
        """Detach from everything, and write every report that the disk accepts: an unreported exit is reported by the
        next daemon. Nothing that runs is touched."""
        await self.supervisor.detach()
        if self.contact is not None:
            await self.contact.save()
        await self.services.lost.close()
        await self._preparation.close()
        reporter = self.services.reporter
        try:
            if self._tasks:
                async with asyncio.timeout(_REPORT_SECONDS):
                    await reporter.settled()
        except TimeoutError:
            _log.warning("reports.kept", waiting=reporter.waiting)
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await self._tasks.close()
            self._open.close()
