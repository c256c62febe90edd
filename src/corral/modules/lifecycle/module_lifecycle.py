"""Lifecycle of one module on this host: the next step is decided, carried out and stored.

`corral.domain.modules.lifecycle_decisions` decides the next step; it is carried out, and stored with its events, before
anything of it is bound or published. Only the module's actor calls these methods, so no two steps run at the
same time.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from corral.domain.events import Draft
from corral.domain.modules import lifecycle_decisions as decisions
from corral.domain.modules.lifecycle_decisions import Todo, View, stepped
from corral.domain.modules.phases import ModuleIntent, ModulePhase, ModuleTrigger
from corral.domain.modules.records import PackageRecord
from corral.modules.lifecycle.engine_deps import EngineDeps
from corral.modules.lifecycle.loaded_module import LoadedModule, drop_generation
from corral.modules.lifecycle.module_failure import ModuleFailure, death_failure, failure_details
from corral.modules.lifecycle.restart_backoff import SPAWN_ATTEMPTS
from corral.modules.process.circuit_breaker import CallCounts

_MOST_ACTS: Final = 100
"""Most acts in one go, before other modules get a turn."""
_HOST_RESTARTED: Final = "host_restarted"
_log = structlog.get_logger("corral.modules.lifecycle")


class ModuleLifecycle:
    """State of one module on this host, from its first load to its removal."""

    def __init__(self, id: str, deps: EngineDeps, nudge: Callable[[], None]) -> None:
        self.id = id
        self.deps = deps
        self.nudge = nudge
        self.counts = CallCounts()
        self.run = self.new_run()
        self.candidate: LoadedModule | None = None
        """A new version under trial, beside the old one."""
        self.retiring: set[asyncio.Task[object]] = set()
        """Former versions on their way out."""
        self.pending_failure: ModuleFailure | None = None
        self.requested_reason = ""
        self.resume_at: float | None = None
        self._lost = _HOST_RESTARTED
        self._waiting_since: float | None = None
        self._deaths: list[float] = []
        self._zygote_deaths: list[float] = []
        """Times at which the module died with the zygote; not counted as its own deaths."""
        self._failed_spawns = 0
        """How often in a row no process could be spawned."""
        self.unpublished: list[Draft] = []
        """Events about its capabilities, published with the next step that is stored."""
        self.closing_events: list[Draft] = []
        """Events published with the step to ACTIVE or FAILED that ends the current operation."""

    def new_run(self) -> LoadedModule:
        return LoadedModule(
            self.deps, counts=self.counts, died=self.nudge, breaker_opened=self._handle_open_breaker
        )

    def require(self) -> PackageRecord:
        record = self.deps.store.find(self.id)
        if record is None:
            raise decisions.not_installed(self.id, [known.id for known in self.deps.store.all()])
        return record

    # --- deciding -------------------------------------------------------------------------------
    async def converge(self) -> PackageRecord | None:
        """Act until nothing is left to do; None when the package was removed. Raises what the package store
        raises: then nothing is lost, and the next attempt resumes from here."""
        for _ in range(_MOST_ACTS):
            record = self.deps.store.find(self.id)
            if record is None:
                self.resume_at = self._waiting_since = None
                return None
            await self._handle_death(record)
            self._catch_up(record)
            decision = decisions.decide(self._view(record))
            if decision.todo is Todo.REST:
                return record
            try:
                await self._act(decision.todo, record, decision.reason)
            except ModuleFailure as failure:
                self._handle_failure(failure)
        self.nudge()
        return self.deps.store.find(self.id)

    def _catch_up(self, record: PackageRecord) -> None:
        """A step may have been stored though its answer was lost: then the cause of the step is over, too.
        Else an old failure would affect the next attempt, and a wait that has ended would never be
        cleared."""
        if record.phase is not ModulePhase.WAITING:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self.deps.clock.monotonic()
        if record.phase is ModulePhase.FAILED:
            self.pending_failure = None
        if record.phase in (ModulePhase.FAILED, ModulePhase.ACTIVE):
            self.closing_events.clear()

    def _view(self, record: PackageRecord) -> View:
        deps, now = self.deps, self.deps.clock.monotonic()
        hosted = deps.hosts(record.manifest)
        self._be_seen(record, hosted=hosted)
        if self.resume_at is not None and now >= self.resume_at:
            self.resume_at = None
        limit = deps.config.activation.wait_timeout_seconds
        waited = now - self._waiting_since if self._waiting_since is not None else 0.0
        return View(
            phase=record.phase,
            intent=record.intent,
            reason=record.reason,
            hosted=hosted,
            enabled=deps.config.enabled,
            runs=self.run.state,
            unresolved=deps.capabilities.missing(record.manifest) if hosted else (),
            conflict=deps.capabilities.rival(record.manifest) if hosted else "",
            waited_out=bool(limit) and waited >= limit,
            backing_off=self.resume_at is not None,
            lost=self._lost if deps.config.enabled else decisions.MODULES_DISABLED,
            failed_reason=self.pending_failure.reason if self.pending_failure else "",
            inactive_reason=self.requested_reason,
        )

    def _be_seen(self, record: PackageRecord, *, hosted: bool) -> None:
        """Listed among the consumers as long as its desired state is ACTIVE and it has not FAILED."""
        if hosted and record.intent is ModuleIntent.ACTIVE and record.phase is not ModulePhase.FAILED:
            self.deps.capabilities.watch(record.manifest)
        else:
            self.deps.capabilities.unwatch(self.id)

    def due(self) -> float | None:
        """Time, on the monotonic clock, of the next `converge` without an outside event. A time that has
        passed already counts, once: the `converge` that follows clears it."""
        limit = self.deps.config.activation.wait_timeout_seconds
        times = [] if self.resume_at is None else [self.resume_at]
        if limit and self._waiting_since is not None:
            times.append(self._waiting_since + limit)
        return min(times, default=None)

    # --- acting ---------------------------------------------------------------------------------
    async def _act(self, todo: Todo, record: PackageRecord, reason: str) -> None:
        match todo:
            case Todo.LOAD:
                self.resume_at = None
                if self.run.scope is not None and self.run.sha256 != record.sha256:
                    await self.run.unload()  # an upgrade was stored though its answer was lost
                await self.run.load(record)
                self._failed_spawns = 0
                await self.change(lambda record: decisions.loaded(record, reason=reason, at=self.now()))
                self._log_step(ModulePhase.WAITING, reason)
                self._waiting_since = self.deps.clock.monotonic()
            case Todo.START:
                await self.run.start(record)
                await self.go_active(record)
            case Todo.BIND:
                self.run.bind()
            case Todo.STOP:
                await self.step(ModuleTrigger.STOP, reason=reason)
                self.run.rest()
            case Todo.FINISH_STOP:
                await self.leave_start(ModuleTrigger.STOPPED, reason=reason)
            case Todo.WITHDRAW:
                await self.leave_start(ModuleTrigger.STOP, reason=reason)
            case Todo.UNLOAD:
                await self.run.unload()
            case Todo.REWIND:
                await self.change(lambda record: decisions.rewound(record, reason=reason, at=self.now()))
                self._waiting_since, self._lost = None, _HOST_RESTARTED
            case Todo.EXPLAIN:
                await self.change(lambda record: msgspec.structs.replace(record, reason=reason))
            case _:
                await self.fail(self.pending_failure or ModuleFailure(reason))

    async def go_active(self, record: PackageRecord) -> None:
        """WAITING -> ACTIVE, stored and then bound in one go. `record` makes the new record from the stored
        one: its own, or the new version's in an upgrade."""
        generation = self.run.scope.generation if self.run.scope else record.generation
        await self.change(
            lambda stored: msgspec.structs.replace(
                stepped(stored, ModuleTrigger.BOUND, reason="", at=self.now()),
                generation=generation,
                previous_version="",
                data_version=stored.version,
            ),
            also=[
                *(self.deps.capabilities.binding_events(record.manifest) if self.run.scope else ()),
                *self.closing_events,
            ],
        )
        self.closing_events.clear()
        self.run.bind()
        self._waiting_since = None
        self._log_step(ModulePhase.ACTIVE, "")
        if generation != record.generation:
            drop_generation(self.deps, self.id, record.generation)

    async def leave_start(self, trigger: ModuleTrigger, *, reason: str) -> None:
        """`on_stop` where it was started, clean-up, and the step back to INSTALLED; before that step, the end
        of the process of a module that is held back. A process that died meanwhile is handled first: its
        reason is more exact."""
        await self.run.stop()
        if self.run.dead:
            return
        self.unpublished += self.deps.capabilities.clearing_events(self.id, reason=reason)
        await self.run.clear_start()
        self.deps.capabilities.release(self.id)
        if self.require().intent is not ModuleIntent.ACTIVE:
            self._lost = reason  # in case the step cannot be stored now
            await self.run.unload()
        await self.step(trigger, reason=reason)
        self._waiting_since = None

    async def fail(self, failure: ModuleFailure) -> None:
        """FAILED: the scope is closed and the process ended, also when the store refuses the step now; then
        the step is retried."""
        self.pending_failure = failure
        self.unpublished += self.deps.capabilities.clearing_events(self.id, reason=failure.reason)
        details = failure_details(failure, self.run.scope, at=self.now())
        tried = self.run.scope.generation if self.run.scope else None
        try:
            record = await self.change(
                lambda stored: stepped(
                    stored, ModuleTrigger.FAIL, reason=failure.reason, at=self.now(), failure=details
                ),
                also=self.closing_events,
            )
        finally:
            self.deps.capabilities.release(self.id)
            await self.run.discard()
        self.pending_failure, self._waiting_since = None, None
        self._deaths.clear()
        self._failed_spawns = 0
        self.closing_events.clear()
        self._log_step(ModulePhase.FAILED, failure.reason)
        if tried is not None and tried != record.generation:
            drop_generation(self.deps, self.id, tried)

    # --- deaths and failures ---------------------------------------------------------------------
    async def _handle_death(self, record: PackageRecord) -> None:
        """A process that ended by itself: its registrations are removed, and it is started again after a
        pause, unless it died too often."""
        scope = self.run.scope
        if scope is None or not self.run.dead:
            return
        failure = death_failure(scope.process.death.result(), scope)
        _log.warning("module_process.lost", module=self.id, reason=failure.reason)
        self.unpublished += self.deps.capabilities.clearing_events(self.id, reason=failure.reason)
        self.deps.capabilities.release(self.id)
        await self.run.discard()
        self._lost = failure.reason
        if record.intent is ModuleIntent.ACTIVE:
            self._back_off(failure)

    def _back_off(self, failure: ModuleFailure) -> None:
        """Set the time of the restart after its process was lost, if it is restarted at all."""
        now = self.deps.clock.monotonic()
        deaths = self._zygote_deaths if failure.blameless else self._deaths
        deaths.append(now)
        mended = len(deaths) if failure.blameless else self.deps.config.deaths_before_failed
        delay = decisions.restart_delay(deaths, now=now, mended=mended, steps=self.deps.pace.restarts)
        if delay is None or (failure.death is not None and failure.death.blamed):
            self.pending_failure = self.pending_failure or failure
        else:
            self.resume_at = now + delay + (failure.death.held_seconds if failure.death is not None else 0.0)

    def _handle_failure(self, failure: ModuleFailure) -> None:
        """A failure during the start: the module becomes FAILED, unless the failure was not its own. A module
        that never gets a process, for whatever reason, is not tried for ever."""
        self._failed_spawns = self._failed_spawns + 1 if failure.blameless and failure.death is None else 0
        if not failure.blameless:
            self.pending_failure = self.pending_failure or failure
        elif self._failed_spawns >= SPAWN_ATTEMPTS:
            message = (
                f"it got no process {self._failed_spawns} times in a row; the last time: {failure.message}"
            )
            self.pending_failure = self.pending_failure or ModuleFailure(failure.reason, message)
        elif self.run.scope is None:  # nothing was loaded yet; else the death is handled next
            self._back_off(failure)

    def _handle_open_breaker(self, run: LoadedModule, what: str) -> None:
        if run is self.run and self.pending_failure is None:
            self.pending_failure = ModuleFailure(
                f"hook_overrun:{what}", "three calls in a row were not answered in time"
            )
            self.nudge()

    # --- storage --------------------------------------------------------------------------------
    def now(self) -> dt.datetime:
        return self.deps.clock.now()

    async def change(
        self, change: Callable[[PackageRecord], PackageRecord], also: Sequence[Draft] = ()
    ) -> PackageRecord:
        """Store a change, with the events that belong to it and those not published yet."""
        unpublished = list(self.unpublished)
        record = await self.deps.store.step(self.id, change, also=[*unpublished, *also])
        del self.unpublished[: len(unpublished)]
        return record

    async def step(self, trigger: ModuleTrigger, *, reason: str, version: str = "") -> PackageRecord:
        record = await self.change(
            lambda stored: stepped(stored, trigger, reason=reason, at=self.now(), version=version)
        )
        self._log_step(record.phase, reason)
        return record

    def _log_step(self, phase: ModulePhase, reason: str) -> None:
        log = _log.warning if phase is ModulePhase.FAILED else _log.info
        log("module.transition", module=self.id, phase=phase.value, reason=reason)
