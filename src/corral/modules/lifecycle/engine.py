"""Module engine of a host: all modules, each driven by its own actor, their shared parts, and their
metrics."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
import structlog

from corral.domain.modules.lifecycle_decisions import first_step, not_installed
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.records import PackageRecord
from corral.domain.modules.verbs import Verb
from corral.modules.capabilities.capability_registry import CapabilityRegistry
from corral.modules.capabilities.remote_capabilities import RemoteCapabilities
from corral.modules.lifecycle import operator_requests as verbs
from corral.modules.lifecycle.engine_deps import EngineDeps, GenerationKeeper
from corral.modules.lifecycle.engine_shutdown import close_modules
from corral.modules.lifecycle.loader import ArchiveSupply, ModuleLoader
from corral.modules.lifecycle.module_actor import ModuleActor, ending
from corral.modules.lifecycle.module_lifecycle import ModuleLifecycle
from corral.modules.lifecycle.restart_backoff import RestartBackoff
from corral.modules.lifecycle.upgrade import Upgrade, UpgradeOutcome
from corral.modules.package_store import PackageStore
from corral.modules.process.circuit_breaker import CallCounts
from corral.modules.process.process_port import ModuleSpawner
from corral.modules.process.process_values import Sample
from corral.modules.scope import Scope
from corral.modules.services.command_table import CommandTable
from corral.modules.services.host_operations import NoticeHandler, Operation, OperationTable
from corral.modules.services.route_table import RouteTable, not_active, without_part
from corral.sdk.protocol.messages import CALL_CAPABILITY, CapabilityRequest, HealthAnswer
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.system.config_sections import ModuleHostSection

_log = structlog.get_logger("corral.modules.lifecycle")


@contextlib.asynccontextmanager
async def unguarded() -> AsyncIterator[None]:
    """Upgrade lease for a host where no other could upgrade at the same time."""
    yield


class LiveModule(msgspec.Struct, frozen=True, kw_only=True):
    """The running part of a module."""

    pid: int
    sample: Sample | None
    registrations: tuple[tuple[str, str], ...]
    """Kind and name: `route`, `subscription`, `task`, `command`, `capability`."""
    calls: int
    failures: int
    overruns: int
    seconds: float
    longest_seconds: float
    log: tuple[str, ...] = ()
    """Its last log lines, and the failures of its calls."""


class ModuleEngine:
    """Verbs return once the module has settled; they may be called at any time, for any module, and run one
    after the other for each module. `close` at the end."""

    def __init__(
        self,
        *,
        host: ModuleHost,
        store: PackageStore,
        spawner: ModuleSpawner,
        supply: ArchiveSupply,
        operations: Sequence[Operation] = (),
        data: GenerationKeeper | None = None,
        config: ModuleHostSection,
        clock: Clock,
        notices: Mapping[str, NoticeHandler] | None = None,
        upgrade_guard: Callable[[], AbstractAsyncContextManager[None]] = unguarded,
        pace: RestartBackoff | None = None,
        node_id: str = "",
        remote: RemoteCapabilities | None = None,
        on_serving: Callable[[Scope], None] = lambda _: None,
    ) -> None:
        """`remote` is another host's registry, for requirements from there; `on_serving` is called each time
        a module has become ACTIVE, with its scope."""
        self._store = store
        self._clock = clock
        self._actors: dict[str, ModuleActor] = {}
        self._background = Tasks()
        self._closing = False
        self.capabilities = CapabilityRegistry(host, self._capabilities_changed, clock=clock, remote=remote)
        self.routes = RouteTable(store)
        self.commands = CommandTable()
        route_call = Operation(method=CALL_CAPABILITY, body=CapabilityRequest, handler=self._call_capability)
        loader = ModuleLoader(
            host=host,
            spawner=spawner,
            supply=supply,
            operations=OperationTable([*operations, route_call]),
            notices=notices or {},
            capabilities=self.capabilities,
            config=config,
            clock=clock,
            node_id=node_id,
        )
        self._deps = EngineDeps(
            host=host,
            store=store,
            loader=loader,
            capabilities=self.capabilities,
            routes=self.routes,
            commands=self.commands,
            data=data,
            config=config,
            clock=clock,
            pace=pace or RestartBackoff(),
            upgrade_guard=upgrade_guard,
            later=self._later,
            on_serving=on_serving,
        )

    # --- the whole ------------------------------------------------------------------------------
    async def boot(self, settled: Callable[[str], None] = lambda _: None) -> None:
        """Bring every module to its desired state; steps that the last host left unfinished are walked back
        by the table first. `settled` is called for each module that has come as far as it gets by itself.
        Returns when all have; a failure affects only its own module."""

        async def settle(id: str) -> None:
            try:
                await self._settle(id)
            finally:
                settled(id)

        asked = [settle(record.id) for record in self._store.all()]
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(outcome, Exception):
                _log.warning("module_boot.retried", error=str(outcome))
        self.capabilities.settle(not self._closing)

    @property
    def resting(self) -> bool:
        """Is nothing under way with any module?"""
        return all(actor.idle for actor in self._actors.values())

    async def rest(self) -> None:
        """Wait until everything that is due by now was done, of all modules."""
        asked = [self._settle(id) for id in list(self._actors)]
        await asyncio.gather(*asked, return_exceptions=True)

    async def close(self, *, budget: float) -> list[str]:
        """Shutdown of the host: `on_stop` and `on_unload` of all, consumers before their providers, within
        `budget` seconds in all. Modules that are not done are killed, and their ids returned. Stored phases
        stay: a shutdown is no failure."""
        self._closing = True
        self.capabilities.settle(False)
        actors = list(self._actors.values())
        await asyncio.gather(*(actor.close() for actor in actors))
        stragglers = await close_modules([actor.life for actor in actors], budget=budget, clock=self._clock)
        # What is cut short here is done at the next boot; processes are killed.
        await asyncio.sleep(0)  # each task has to have begun, to clean up
        await self._background.close()
        return stragglers

    def _later(self, work: Coroutine[Any, Any, object], name: str) -> asyncio.Task[object]:
        return self._background.spawn(work, name=name)

    # --- verbs ----------------------------------------------------------------------------------
    async def install(self, record: PackageRecord) -> PackageRecord:
        """Store a new package and bring it to its intent. ALREADY_EXISTS when it is installed."""
        await self._store.add(first_step(record, at=self._clock.now()))
        return await self._settle(record.id)

    async def upgrade(self, record: PackageRecord, *, rollback: bool = True) -> UpgradeOutcome:
        """Replace the stored package by this one. `UpgradeFailed` when the old one served and the new one did
        not come up; with `rollback` the old one serves again then."""
        actor = self._actor(record.id)
        return await actor.ask(lambda: Upgrade(actor.life, record, rollback=rollback).run())

    async def act(
        self, id: str, verb: Verb, *, reason: str = "", settings: dict[str, Any] | None = None
    ) -> PackageRecord:
        """Carry out an operator's request; returns the record afterwards, after UNINSTALL the last one.
        `reason` is that of a pause; `settings` are the new ones, without: the present ones.
        ILLEGAL_TRANSITION where the verb's rule is not met. The data of an uninstalled module stays until it
        is dropped."""
        record = await self._ask(id, lambda life: verbs.act(life, verb, reason=reason, settings=settings))
        if verb is Verb.UNINSTALL and self._store.find(id) is None and id in self._actors:
            await self._actors.pop(id).close()
        return record

    async def set_intent(self, id: str, intent: ModuleIntent, *, paused_reason: str = "") -> PackageRecord:
        """Follow an intent that was decided elsewhere; unlike the operator's verbs also while FAILED."""
        return await self._ask(id, lambda life: verbs.set_intent(life, intent, paused_reason))

    async def _settle(self, id: str) -> PackageRecord:
        return await self._ask(id, verbs.settled)

    async def _ask(
        self, id: str, verb: Callable[[ModuleLifecycle], Awaitable[PackageRecord]]
    ) -> PackageRecord:
        actor = self._actor(id)
        return await actor.ask(lambda: verb(actor.life))

    def _actor(self, id: str) -> ModuleActor:
        if self._closing:
            raise ending(id)
        actor = self._actors.get(id)
        if actor is None:
            if self._store.find(id) is None:
                raise not_installed(id, [known.id for known in self._store.all()])
            actor = self._actors[id] = ModuleActor(id, self._deps)
        return actor

    # --- reads ----------------------------------------------------------------------------------
    def scope(self, id: str) -> Scope | None:
        """The scope of a module that has a process, ACTIVE or not."""
        actor = self._actors.get(id)
        return actor.life.run.scope if actor else None

    def serving(self) -> list[Scope]:
        """The scopes of the modules that are ACTIVE here, by id."""
        scopes = [self.scope(id) for id in sorted(self._actors)]
        return [scope for scope in scopes if scope is not None and scope.serving]

    def live(self, id: str) -> LiveModule | None:
        """The running part of a module; None when it has no process."""
        actor = self._actors.get(id)
        scope = actor.life.run.scope if actor else None
        if actor is None or scope is None:
            return None
        counts: CallCounts = actor.life.counts
        return LiveModule(
            pid=scope.process.pid,
            sample=scope.process.sample(),
            registrations=tuple(scope.registrations()),
            calls=counts.calls,
            failures=counts.failures,
            overruns=counts.overruns,
            seconds=counts.seconds,
            longest_seconds=counts.longest_seconds,
            log=tuple(scope.log_tail),
        )

    def all_live(self) -> dict[str, LiveModule]:
        """The running part of each module that has a process, by id."""
        found = {id: self.live(id) for id in sorted(self._actors)}
        return {id: module for id, module in found.items() if module is not None}

    async def health(self, id: str) -> HealthAnswer:
        """Result of its `health_check`. MODULE_NOT_ACTIVE while it does not serve, NOT_FOUND without a part
        on this host."""
        record = self._store.find(id)
        if record is None:
            raise not_installed(id, [known.id for known in self._store.all()])
        if self._deps.host not in record.manifest.hosts:
            raise without_part(record, self._deps.host)
        scope = self.scope(id)
        if scope is None or not scope.serving:
            raise not_active(record)
        return await scope.health()

    # --- capabilities ---------------------------------------------------------------------------
    async def _call_capability(self, scope: Scope, request: CapabilityRequest) -> object:
        return await self.capabilities.call(scope, request)

    def _capabilities_changed(self, ids: set[str]) -> None:
        """Send the new states to every handle at once; modules that have to stop, or may start, do so in
        their own turn."""
        for actor in list(self._actors.values()):
            record = self._store.find(actor.id)
            if record is None:
                continue
            if ids & {requirement.id for requirement in record.manifest.capabilities.requires}:
                actor.life.run.send_states(record.manifest)
                actor.nudge()
            if actor.life.candidate is not None and actor.life.candidate.scope is not None:
                actor.life.candidate.send_states(actor.life.candidate.scope.manifest)


HostMetric = tuple[str, str, bool, list[tuple[str, float]]]
"""Name, help text, whether it is a counter, and the value of each module."""


def leak_metric(leaked: Mapping[str, int]) -> HostMetric:
    """Number of processes of each module that did not end when sent `finish`."""
    help = "Processes of a module that lingered or had to be killed."
    return "leaked", help, False, [(id, float(count)) for id, count in sorted(leaked.items())]


def host_metrics(live: Mapping[str, LiveModule]) -> Iterator[HostMetric]:
    """Modules without a process are left out."""
    shown = list(live.items())
    samples = [(id, module.sample) for id, module in shown if module.sample is not None]
    yield "cpu_seconds", "Processor time of a module.", True, [(m, s.cpu_seconds) for m, s in samples]
    yield "memory_bytes", "Memory of a module.", False, [(m, float(s.memory_bytes)) for m, s in samples]
    yield "threads", "Threads of a module.", False, [(m, float(s.threads)) for m, s in samples]
    yield "processes", "Processes of a module.", False, [(m, float(s.processes)) for m, s in samples]
    yield "calls", "Calls into a module.", True, [(m, float(c.calls)) for m, c in shown]
    yield "call_failures", "Calls that failed.", True, [(m, float(c.failures)) for m, c in shown]
    yield "call_seconds", "Time spent in calls.", True, [(m, c.seconds) for m, c in shown]
