"""Module host of a node: starts its modules from disk, with or without a connection to the controller, and
then follows the controller's orders."""

from __future__ import annotations

import collections
import datetime as dt
import functools
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from corral.daemon.hooks.instance_hooks import InstanceHooks
from corral.daemon.link.connection import LinkConnection
from corral.daemon.link.link import Order
from corral.daemon.modules.convergence import Convergence
from corral.daemon.modules.module_archives import ArchiveCache, ArchiveDownloads
from corral.daemon.modules.order_dispatcher import OrderDispatcher
from corral.daemon.modules.package_store import DiskPackageStore, NodePackage
from corral.daemon.modules.start_gate import StartGate
from corral.daemon.modules.state_reports import set_entry, state_updates
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import HISTORY_LENGTH, PackageRecord
from corral.modules.capabilities.remote_capabilities import RemoteCapabilities
from corral.modules.lifecycle.engine import ModuleEngine
from corral.modules.process import ProcessPool
from corral.modules.scope import Scope
from corral.modules.services.host_operations import Operation
from corral.modules.services.module_log import ModuleLogs
from corral.modules.services.module_metrics import ModuleMetrics
from corral.modules.services.schedules import ModuleSchedules
from corral.signing import Verifier, open_verifier
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.system.daemon_config import DaemonConfig
from corral.system.entropy import Entropy
from corral.system.threads import to_end
from corral.wire.v1.link_pb2 import DaemonMessage
from corral.wire.v1.module_pb2 import ModuleSetEntry

_STARTING: Final = "still starting"
_log = structlog.get_logger("corral.daemon.modules")


class NodeModules:
    """The modules of a node: `open`, then `begin`; `close` at the end. A node without modules starts no
    process for them."""

    def __init__(
        self,
        *,
        config: DaemonConfig,
        node_id: str,
        report: Callable[[DaemonMessage], None],
        operations: Sequence[Operation] = (),
        remote: RemoteCapabilities | None = None,
        on_gone: Callable[[], None] = lambda: None,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        """`report` takes reports that must reach the controller. `on_gone` is called after each removed
        module."""
        settings, place = config.modules, config.data / "modules"
        self._settings = settings
        self._report = report
        self._on_gone = on_gone
        self._clock = clock
        self._verifier: Verifier | None = None
        self._send: Callable[[DaemonMessage], bool] = lambda _: False
        self._sent_unstored: dict[str, ModulePhase] = {}
        """Phases that the disk refused and that were sent over the link, once."""
        self._boots = Tasks()
        self.hooks: Final = InstanceHooks(
            modules=self, budget_seconds=settings.hook_budget_seconds, clock=clock
        )
        """Hooks of modules in the lifecycle of instances. They end before the modules: `close` them first."""
        self.logs: Final = ModuleLogs(clock=clock)
        self.metrics: Final = ModuleMetrics()
        self._store = DiskPackageStore(
            place / "records", clock=clock, kept=self._kept, not_kept=self._not_kept
        )
        self._pool = ProcessPool(directory=place / "processes", within=place, clock=clock, entropy=entropy)
        self._archives = ArchiveCache(
            config.data / "cache" / "modules" / "artifacts",
            verifier=self._opened_verifier,
            max_bytes=settings.max_archive_bytes,
            run_as=settings.run_as,
        )
        self._incoming = ArchiveDownloads(
            place / "incoming", max_bytes=settings.max_archive_bytes, clock=clock, entropy=entropy
        )
        self.engine: Final = ModuleEngine(
            host=ModuleHost.DAEMON,
            store=self._store,
            spawner=self._pool,
            supply=self._archives,
            operations=[*ModuleSchedules(clock=clock).operations(), *operations],
            config=settings,
            clock=clock,
            notices={**self.logs.notices(), **self.metrics.notices()},
            node_id=node_id,
            remote=remote,
            on_serving=self.hooks.module_serves,
        )
        self._gate = StartGate(seconds=settings.node_sync_timeout_seconds, clock=clock)
        self._reception = self._make_reception(entropy)
        self.handlers: Final[dict[str, Order]] = self._reception.handlers

    def _make_reception(self, entropy: Entropy) -> OrderDispatcher:
        """The dispatcher of the controller's orders to the engine."""
        convergence = Convergence(
            engine=self.engine,
            store=self._store,
            archives=self._archives,
            incoming=self._incoming,
            max_bytes=self._settings.max_archive_bytes,
            clock=self._clock,
            forget=self._forget,
        )
        return OrderDispatcher(
            store=self._store,
            archives=self._archives,
            incoming=self._incoming,
            convergence=convergence,
            gate=self._gate,
            entropy=entropy,
        )

    # --- from start to end ----------------------------------------------------------------------
    async def open(self) -> None:
        """Read the records from disk. INVALID_CONFIG when `modules.signing` could accept nothing."""
        self._verifier = await to_end(
            functools.partial(open_verifier, self._settings.signing, clock=self._clock)
        )
        await to_end(self._store.load)
        await to_end(self._incoming.open)

    def begin(self) -> None:
        """Start the modules of the cache; starts of instances wait for them at the gate."""
        if not self._settings.enabled:
            _log.warning("modules.disabled", reason="modules.enabled is false, or --no-modules was given")
        for record in self._store.all():
            self._gate.expect(record.id, _STARTING)
        self._boots.spawn(self._boot(), name="modules/boot")

    async def _boot(self) -> None:
        records = self._store.all()
        try:
            await self.engine.boot(self._come_up)
        finally:
            for record in records:  # also when it was cut short
                self._come_up(record.id)
        if records:
            phases = {record.id: record.phase.value for record in self._store.all()}
            _log.info("modules.started", **phases)

    def _come_up(self, id: str) -> None:
        """Start one module, as far as it gets by itself."""
        self._gate.met(id, _STARTING)

    async def booted(self) -> None:
        """Wait until the boot is over."""
        await self._boots.wait()

    async def close(self, *, budget: float) -> list[str]:
        """Run `on_stop` and `on_unload` of all modules, within `budget` seconds; returns the ids of those
        that had to be killed. Nothing is left running, also when this is cut short. May be called again."""
        try:
            await self._reception.close()
            await self._boots.close()
            stragglers = await self.engine.close(budget=budget)
        finally:
            await self._pool.close()
        if stragglers:
            _log.warning("modules_stop.failed", modules=stragglers)
        return stragglers

    # --- the link -------------------------------------------------------------------------------
    def set_entries(self) -> list[ModuleSetEntry]:
        """The modules of this node, for its handshake."""
        return [set_entry(package) for package in self._store.packages()]

    def on_connected(self, connection: LinkConnection) -> None:
        self._send = connection.send
        self._reception.on_connected(connection)

    def on_disconnected(self) -> None:
        self._send = lambda _: False
        self._sent_unstored.clear()  # the next session needs the report again
        self._reception.on_disconnected()

    def _kept(self, before: NodePackage, after: NodePackage, reason: str) -> None:
        self._sent_unstored.pop(after.id, None)
        for message in state_updates(before, after, reason, self._clock.now()):
            self._report(message)
        if should_run(before.record) and not should_run(after.record):
            self.hooks.module_unwanted(after.id)
        self._reception.mend(after)

    def _not_kept(self, before: NodePackage, after: NodePackage) -> None:
        """The disk refused a step that happened all the same, such as the death of a process: it is reported
        over the link now, once; the stored, reliable report follows when the disk works again."""
        was = before.record.phase if before.record is not None else None
        phase = after.record.phase if after.record is not None else None
        if phase is None or phase is was or self._sent_unstored.get(after.id) is phase:
            return
        self._sent_unstored[after.id] = phase
        for message in state_updates(before, after, "", self._clock.now()):
            self._send(message)

    def installed(self) -> list[str]:
        """Ids of the modules installed on this node, running or not."""
        return [record.id for record in self._store.all()]

    def leaked(self) -> dict[str, int]:
        """Number of processes of each module that did not end on request; the last hundred count."""
        return dict(collections.Counter(leak.module_id for leak in self._pool.leaked()))

    # --- for starts -----------------------------------------------------------------------------
    def serving(self) -> list[Scope]:
        """Modules that are ACTIVE here."""
        return self.engine.serving()

    async def settled(self) -> tuple[str, ...]:
        """Wait until the modules are as desired, or for `modules.node_sync_timeout_seconds`; returns those
        that a start has to do without, as `ID: why`."""
        late = await self._gate.passed(self.engine, self._reception.doing)
        named = {each.partition(":")[0] for each in late}
        down = (record for record in self._store.all() if record.id not in named and _is_down(record))
        return (*late, *(f"{record.id}: {record.reason or record.phase.name}" for record in down))

    def awaited(self) -> tuple[str, ...]:
        """Modules that `settled` waits for now, as `ID: why`."""
        on_the_way = self._gate.awaited(self._reception.doing)
        if on_the_way or self.engine.resting:
            return on_the_way
        return tuple(f"{record.id}: {record.phase.name}" for record in self._store.all() if _is_down(record))

    # --- for instance hooks ---------------------------------------------------------------------
    def desired_ids(self) -> set[str]:
        """Modules that should run, whether they do or not."""
        return {record.id for record in self._store.all() if should_run(record)}

    def served_since(self, moment: dt.datetime | None) -> set[str]:
        """Modules that should run and were ACTIVE at any time from this moment on."""
        found = (record for record in self._store.all() if should_run(record))
        return {record.id for record in found if served_since(record, moment)}

    # --- parts ----------------------------------------------------------------------------------
    def _opened_verifier(self) -> Verifier:
        assert self._verifier is not None, "open comes first"
        return self._verifier

    def _forget(self, id: str) -> None:
        self.logs.forget(id)
        self.metrics.forget(id)
        self._on_gone()


def _is_down(record: PackageRecord) -> bool:
    """Should the module run, but does not?"""
    return should_run(record) and record.phase is not ModulePhase.ACTIVE


def should_run(record: PackageRecord | None) -> bool:
    """Should the module run? One that an operator deactivated, paused or removed receives no
    notifications."""
    return record is not None and record.intent is ModuleIntent.ACTIVE


def served_since(record: PackageRecord, moment: dt.datetime | None) -> bool:
    """Was the module ACTIVE at any time from this moment on (None: ever)? A daemon that ended left it ACTIVE:
    it counts as such until the next daemon starts it. Where its history does not reach back far enough, it
    counts as ACTIVE."""
    if record.phase is ModulePhase.ACTIVE:
        return True
    left = [step.at for step in record.history if step.from_phase is ModulePhase.ACTIVE]
    if left:
        return moment is None or max(left) >= moment
    return len(record.history) >= HISTORY_LENGTH and (moment is None or record.history[0].at > moment)
