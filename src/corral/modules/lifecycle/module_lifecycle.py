"""Lifecycle of one module on this host: the next step is decided, carried out and stored.

`corral.domain.module_decisions` decides the next step; the act is thin; the step is stored, with its events,
before anything of it is bound or published. Only the module's actor calls in here, so no two steps run at
the same time.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import structlog

from corral.domain import module_decisions as decisions
from corral.domain.events import Draft
from corral.domain.module_decisions import Todo, View, stepped
from corral.domain.module_phases import ModuleIntent, ModulePhase, ModuleTrigger
from corral.domain.module_records import PackageRecord
from corral.modules.lifecycle.engine_deps import EngineDeps
from corral.modules.lifecycle.loaded_module import LoadedModule, drop_generation
from corral.modules.lifecycle.module_failure import ModuleFailure, death_failure, failure_story
from corral.modules.process.circuit_breaker import CallCounts

_MOST_ACTS: Final = 100
"""After so many acts in one go the others get a turn."""
BIRTHS_TRIED: Final = 10
"""So often in a row a module may get no process, each time after a pause; then it is FAILED. One that loses the
zygote for all of them is found out sooner."""
_HOST_RESTARTED: Final = "host_restarted"
_log = structlog.get_logger("corral.modules.lifecycle")


class ModuleLifecycle:
    """What this host knows of one module, from its first load to its removal."""

    def __init__(self, id: str, kit: EngineDeps, nudge: Callable[[], None]) -> None:
        self.id = id
        self.kit = kit
        self.nudge = nudge
        self.counts = CallCounts()
        self.run = self.new_run()
        self.candidate: LoadedModule | None = None
        """A new version that is being tried, beside the old one."""
        self.retiring: set[asyncio.Task[object]] = set()
        """Former versions on their way out."""
        self.doomed: ModuleFailure | None = None
        self.wish = ""
        self.resume_at: float | None = None
        self._lost = _HOST_RESTARTED
        self._waiting_since: float | None = None
        self._deaths: list[float] = []
        self._bereavements: list[float] = []
        """When it died with the zygote: that is not held against it."""
        self._unborn = 0
        """How often in a row it got no process at all."""
        self.untold: list[Draft] = []
        """What has happened to its capabilities, to be told with the next step that is stored."""
        self.epilogue: list[Draft] = []
        """To be told with the step to ACTIVE, or FAILED, that ends what is under way."""

    def new_run(self) -> LoadedModule:
        return LoadedModule(
            self.kit, counts=self.counts, died=self.nudge, breaker_opened=self._mind_open_breaker
        )

    def require(self) -> PackageRecord:
        record = self.kit.book.find(self.id)
        if record is None:
            raise decisions.not_installed(self.id, [known.id for known in self.kit.book.all()])
        return record

    # --- deciding -------------------------------------------------------------------------------
    async def converge(self) -> PackageRecord | None:
        """Go on until nothing is left to do; None when the package is gone. Raises what the book raises:
        then nothing is lost, and the next attempt goes on from here."""
        for _ in range(_MOST_ACTS):
            record = self.kit.book.find(self.id)
            if record is None:
                self.resume_at = self._waiting_since = None
                return None
            await self._mind_death(record)
            self._catch_up(record)
            decision = decisions.decide(self._view(record))
            if decision.todo is Todo.REST:
                return record
            try:
                await self._act(decision.todo, record, decision.reason)
            except ModuleFailure as trouble:
                self._mind_trouble(trouble)
        self.nudge()
        return self.kit.book.find(self.id)

    def _catch_up(self, record: PackageRecord) -> None:
        """A step may have been stored though its answer got lost: what led to it is over then, too. Else an
        old failure would strike the next attempt, and a wait that has ended would be looked at for ever."""
        if record.phase is not ModulePhase.WAITING:
            self._waiting_since = None
        elif self._waiting_since is None:
            self._waiting_since = self.kit.clock.monotonic()
        if record.phase is ModulePhase.FAILED:
            self.doomed = None
        if record.phase in (ModulePhase.FAILED, ModulePhase.ACTIVE):
            self.epilogue.clear()

    def _view(self, record: PackageRecord) -> View:
        kit, now = self.kit, self.kit.clock.monotonic()
        hosted = kit.hosts(record.manifest)
        self._be_seen(record, hosted=hosted)
        if self.resume_at is not None and now >= self.resume_at:
            self.resume_at = None
        limit = kit.config.activation.wait_timeout_seconds
        waited = now - self._waiting_since if self._waiting_since is not None else 0.0
        return View(
            phase=record.phase,
            intent=record.intent,
            reason=record.reason,
            hosted=hosted,
            enabled=kit.config.enabled,
            runs=self.run.state,
            unresolved=kit.capabilities.missing(record.manifest) if hosted else (),
            conflict=kit.capabilities.rival(record.manifest) if hosted else "",
            waited_out=bool(limit) and waited >= limit,
            backing_off=self.resume_at is not None,
            lost=self._lost if kit.config.enabled else decisions.MODULES_DISABLED,
            doomed=self.doomed.reason if self.doomed else "",
            wish=self.wish,
        )

    def _be_seen(self, record: PackageRecord, *, hosted: bool) -> None:
        """Among the consumers, as long as it is wanted and not given up."""
        if hosted and record.intent is ModuleIntent.ACTIVE and record.phase is not ModulePhase.FAILED:
            self.kit.capabilities.watch(record.manifest)
        else:
            self.kit.capabilities.unwatch(self.id)

    def due(self) -> float | None:
        """When, on the monotonic clock, it has to be looked at again though nothing happens. A time that has
        passed already counts, once: the look that it brings about does away with it."""
        limit = self.kit.config.activation.wait_timeout_seconds
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
                    await self.run.unload()  # an upgrade was stored though its answer got lost
                await self.run.load(record)
                self._unborn = 0
                await self.change(lambda record: decisions.loaded(record, reason=reason, at=self.now()))
                self._log_step(ModulePhase.WAITING, reason)
                self._waiting_since = self.kit.clock.monotonic()
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
                await self.fail(self.doomed or ModuleFailure(reason))

    async def go_active(self, record: PackageRecord) -> None:
        """WAITING -> ACTIVE, stored and then bound in one go. `record` is what becomes of the stored one:
        its own, or the new version's in an upgrade."""
        generation = self.run.scope.generation if self.run.scope else record.generation
        await self.change(
            lambda stored: msgspec.structs.replace(
                stepped(stored, ModuleTrigger.BOUND, reason="", at=self.now()),
                generation=generation,
                previous_version="",
                data_version=stored.version,
            ),
            also=[
                *(self.kit.capabilities.binding_told(record.manifest) if self.run.scope else ()),
                *self.epilogue,
            ],
        )
        self.epilogue.clear()
        self.run.bind()
        self._waiting_since = None
        self._log_step(ModulePhase.ACTIVE, "")
        if generation != record.generation:
            drop_generation(self.kit, self.id, record.generation)

    async def leave_start(self, trigger: ModuleTrigger, *, reason: str) -> None:
        """`on_stop` where it was started, clean-up, and the step back to INSTALLED; before that step, the end of
        the process of a module that is held back. A process that died meanwhile is minded first: its reason is
        the better one."""
        await self.run.stop()
        if self.run.dead:
            return
        self.untold += self.kit.capabilities.clearing_told(self.id, reason=reason)
        await self.run.clear_start()
        self.kit.capabilities.release(self.id)
        if self.require().intent is not ModuleIntent.ACTIVE:
            self._lost = reason  # should the step not be stored now
            await self.run.unload()
        await self.step(trigger, reason=reason)
        self._waiting_since = None

    async def fail(self, trouble: ModuleFailure) -> None:
        """FAILED: the scope is closed and the process ended, also when the store does not take the step
        now; then it is tried again."""
        self.doomed = trouble
        self.untold += self.kit.capabilities.clearing_told(self.id, reason=trouble.reason)
        story = failure_story(trouble, self.run.scope, at=self.now())
        tried = self.run.scope.generation if self.run.scope else None
        try:
            record = await self.change(
                lambda stored: stepped(
                    stored, ModuleTrigger.FAIL, reason=trouble.reason, at=self.now(), failure=story
                ),
                also=self.epilogue,
            )
        finally:
            self.kit.capabilities.release(self.id)
            await self.run.discard()
        self.doomed, self._waiting_since = None, None
        self._deaths.clear()
        self._unborn = 0
        self.epilogue.clear()
        self._log_step(ModulePhase.FAILED, trouble.reason)
        if tried is not None and tried != record.generation:
            drop_generation(self.kit, self.id, tried)

    # --- what happens to it ---------------------------------------------------------------------
    async def _mind_death(self, record: PackageRecord) -> None:
        """A process that ended by itself: what it held is taken away, and it is started again after a
        pause, unless it died too often."""
        scope = self.run.scope
        if scope is None or not self.run.dead:
            return
        trouble = death_failure(scope.process.death.result(), scope)
        _log.warning("module.process_ended", module=self.id, reason=trouble.reason)
        self.untold += self.kit.capabilities.clearing_told(self.id, reason=trouble.reason)
        self.kit.capabilities.release(self.id)
        await self.run.discard()
        self._lost = trouble.reason
        if record.intent is ModuleIntent.ACTIVE:
            self._back_off(trouble)

    def _back_off(self, trouble: ModuleFailure) -> None:
        """When it is started again after its process was lost, if at all."""
        now = self.kit.clock.monotonic()
        deaths = self._bereavements if trouble.blameless else self._deaths
        deaths.append(now)
        mended = len(deaths) if trouble.blameless else self.kit.config.deaths_before_failed
        delay = decisions.restart_delay(deaths, now=now, mended=mended, steps=self.kit.pace.restarts)
        if delay is None or (trouble.death is not None and trouble.death.blamed):
            self.doomed = self.doomed or trouble
        else:
            self.resume_at = now + delay + (trouble.death.held_seconds if trouble.death is not None else 0.0)

    def _mind_trouble(self, trouble: ModuleFailure) -> None:
        """Something went wrong while it was brought up: it is given up, unless it could not help it. What never
        gets a process, whoever is to blame, is not tried for ever."""
        self._unborn = self._unborn + 1 if trouble.blameless and trouble.death is None else 0
        if not trouble.blameless:
            self.doomed = self.doomed or trouble
        elif self._unborn >= BIRTHS_TRIED:
            told = f"it got no process {self._unborn} times in a row; the last time: {trouble.message}"
            self.doomed = self.doomed or ModuleFailure(trouble.reason, told)
        elif self.run.scope is None:  # it had no more than begun; else its death is minded next
            self._back_off(trouble)

    def _mind_open_breaker(self, run: LoadedModule, what: str) -> None:
        if run is self.run and self.doomed is None:
            self.doomed = ModuleFailure(
                f"hook_overrun:{what}", "three calls in a row were not answered in time"
            )
            self.nudge()

    # --- what is stored -------------------------------------------------------------------------
    def now(self) -> dt.datetime:
        return self.kit.clock.now()

    async def change(
        self, change: Callable[[PackageRecord], PackageRecord], also: Sequence[Draft] = ()
    ) -> PackageRecord:
        """Store a change, with the events that belong to it and those not told yet."""
        untold = list(self.untold)
        record = await self.kit.book.step(self.id, change, also=[*untold, *also])
        del self.untold[: len(untold)]
        return record

    async def step(self, trigger: ModuleTrigger, *, reason: str, version: str = "") -> PackageRecord:
        record = await self.change(
            lambda stored: stepped(stored, trigger, reason=reason, at=self.now(), version=version)
        )
        self._log_step(record.phase, reason)
        return record

    def _log_step(self, phase: ModulePhase, reason: str) -> None:
        say = _log.warning if phase is ModulePhase.FAILED else _log.info
        say("module.transition", module=self.id, phase=phase.value, reason=reason)
