"""The hooks of the node's modules in the lives of its instances.

A module may change a start, and is notified when a run has its process, when it is about to be stopped, and how
it ended. Nothing that a module does, or fails to do, delays a start or a stop for longer than the budget.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog

from corral.daemon.hooks.run_notifications import NOTIFICATION_HOOKS, STOPPED, STOPPING, NotificationQueue
from corral.daemon.hooks.start_hook import STARTING, HookBudget, Tuning, WaitNotice, call_start_hooks
from corral.daemon.hooks.stop_notifications import PendingStopNotifications, StopNotification, StoppedRunFile
from corral.daemon.prepare.prepared_start import Proposal, values_of
from corral.modules.scope import Scope
from corral.sdk.instances import ExitInfo, InstanceHandle
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock

_UNSETTLED: Final = "the node's modules: they were not settled when the start could not wait any longer"
_GATE_SHARE: Final = 0.5
"""Of what a start has left; the rest is for its modules' hooks, and what then remains for itself."""
_log = structlog.get_logger("corral.daemon.hooks")


class StartModules(Protocol):
    """What the hooks need of the node's modules."""

    def serving(self) -> list[Scope]:
        """Those that are ACTIVE."""

    def wanted(self) -> Collection[str]:
        """Those that shall run, whether they do or not; what an operator holds back is not among them."""

    def served_since(self, moment: dt.datetime | None) -> Collection[str]:
        """Of those that shall run: which were ACTIVE at any time from this moment on, also before this daemon's
        time."""

    async def settled(self) -> tuple[str, ...]:
        """Waits until the modules are as they should be, for a bounded time; returns those that are not,
        each with why. Returns at once when there is nothing to wait for."""

    def awaited(self) -> tuple[str, ...]:
        """What `settled` waits for at the moment, as `ID: why`."""


class _Live(NamedTuple):
    """A run that has its process."""

    present: Callable[[], InstanceHandle]
    hearers: set[str]
    """Modules that were ACTIVE in its life."""


class InstanceHooks:
    """One for the daemon. `module_serves` is called for each module that becomes ACTIVE, `module_unwanted` for each
    that shall not run any more; `close` is the end."""

    def __init__(self, *, modules: StartModules, budget_seconds: float, clock: Clock) -> None:
        self.budget_seconds = budget_seconds
        """What all modules together may take of one start, or of one stop."""
        self._modules = modules
        self._clock = clock
        self._lanes: dict[Scope, NotificationQueue] = {}
        self._live: dict[str, _Live] = {}
        self._ends: dict[str, StopNotification] = {}
        """Exits whose notifications are under way; modules that become ACTIVE meanwhile get them, too."""
        self._hears_ends: dict[str, bool] = {}
        """Of the modules that were ACTIVE under this daemon, whether they have the hook."""
        self._owed = PendingStopNotifications(self._spawn)
        self._tasks = Tasks()
        self._closed = False
        self._ended_modules = False
        """Closed, with modules that were ACTIVE: they end with the daemon."""

    # --- a start --------------------------------------------------------------------------------
    async def starting(
        self, proposal: Proposal, *, patience: float, waits: Callable[[str], None] = lambda _: None
    ) -> Tuning:
        """What the modules make of a start. `patience`: the start has so many seconds left in all; at least a
        quarter of them is left on return. `waits` is called with what the start waits for, if that lasts; empty: it continues."""
        until = self._clock.monotonic() + patience
        with WaitNotice(self._modules.awaited, waits):
            missing = await self._gate(patience * _GATE_SHARE)
        tuning = Tuning(values=values_of(proposal.spec))
        scopes = [scope for scope in self._modules.serving() if STARTING in scope.hooks]
        if scopes and not self._closed:
            began = self._clock.monotonic()
            seconds = min(self.budget_seconds, max(0.0, until - began) / 2)
            tuning = await call_start_hooks(scopes, proposal, HookBudget(seconds, budget=self.budget_seconds))
            took = round((self._clock.monotonic() - began) * 1000, 2)
            _log.info("hooks.asked", instance=proposal.spec.instance_id, modules=len(scopes), took_ms=took)
        if self._ended_modules:
            # Without them it would not be what it should: the next daemon begins it, with its modules.
            await asyncio.sleep(max(0.0, until - self._clock.monotonic()) / 2)
        return msgspec.structs.replace(tuning, missing=missing) if missing else tuning

    async def _gate(self, seconds: float) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(seconds):
                return await self._modules.settled()
        except TimeoutError:
            return (_UNSETTLED,)

    # --- notifications -------------------------------------------------------------------------
    def started(self, run: str, present: Callable[[], InstanceHandle], *, adopted: bool = False) -> None:
        """The run has its process; `present` returns its present state. Modules that become ACTIVE later are
        notified then, until the run has ended."""
        handle = msgspec.structs.replace(present(), adopted=adopted)
        before = self._modules.served_since(handle.started_at) if adopted else ()
        live = self._live[run] = _Live(present, set(before))
        for lane in self._serving_lanes():
            live.hearers.add(lane.scope.module_id)
            lane.tell_started(run, handle)

    def stopping(self, handle: InstanceHandle) -> asyncio.Future[Any] | None:
        """The run is about to be stopped. Done when every module was notified; None: no module has the hook."""
        telling = [lane.tell(STOPPING, handle) for lane in self._serving_lanes()]
        return _all(heard for heard in telling if heard is not None)

    def stopped(self, run: str, handle: InstanceHandle, exit: ExitInfo, file: StoppedRunFile) -> None:
        """The run has ended. For a module that should be notified and is not running the notification stays pending,
        written to `file`. When this daemon ends before that, the next one notifies again."""
        live = self._live.pop(run, None)
        if self._closed:
            return
        hearers = live.hearers if live is not None else set(self._modules.served_since(handle.started_at))
        end = self._ends[run] = StopNotification(run, handle, exit, file=file, hearers=hearers)
        for lane in self._serving_lanes():
            end.tell(lane)
        self._spawn(self._see_told(end), f"hooks/stopped/{run}")

    async def _see_told(self, end: StopNotification) -> None:
        """Modules that start with the daemon are notified of runs that ended before, too."""
        try:
            await self._modules.settled()
            for lane in self._serving_lanes():
                end.tell(lane)
            await end.heard()
        finally:
            del self._ends[end.run]
        wanted = self._modules.wanted()
        owed = {id for id in end.untold() if id in wanted and self._hears_ends.get(id, True)}
        self._owed.add(end.run, end.file, owed)

    def still_owed(self, run: str, file: StoppedRunFile, modules: Iterable[str]) -> None:
        """An earlier daemon left this: an exit whose notifications to these modules are pending. Comes before new ones."""
        owed, wanted = set(modules), self._modules.wanted()
        still = {id for id in owed if id in wanted}
        self._owed.add(run, file, still, kept=still == owed)
        for lane in self._serving_lanes():  # they may be ACTIVE before the pending notifications were read
            self._owed.tell_one(lane, run)

    def module_serves(self, scope: Scope) -> None:
        """The module has become ACTIVE, for the first time or again: it gets its pending stop notifications, then one
        for every live run."""
        former = self._lanes.pop(scope, None)
        if former is not None:
            former.retired = True
        lane = self._lane(scope)
        if not self._hears_ends.get(scope.module_id, True):
            self._owed.dismiss(scope.module_id)
        if lane is None:
            return
        self._owed.tell(lane)
        for end in self._ends.values():
            end.tell(lane)
        for run, live in list(self._live.items()):
            live.hearers.add(scope.module_id)
            lane.tell_started(run, msgspec.structs.replace(live.present(), adopted=True))

    def module_unwanted(self, module_id: str) -> None:
        """An operator paused, deactivated or removed the module: drop every pending stop notification for it."""
        for live in self._live.values():
            live.hearers.discard(module_id)
        for end in self._ends.values():
            end.hearers.discard(module_id)
        self._hears_ends.pop(module_id, None)
        self._owed.dismiss(module_id)

    def _serving_lanes(self) -> list[NotificationQueue]:
        """Of the modules that are ACTIVE now; those of others are forgotten."""
        serving = [scope for scope in self._modules.serving() if not scope.process.death.done()]
        for scope, lane in list(self._lanes.items()):
            if not lane.live:
                lane.retired = True
                del self._lanes[scope]
        found = [self._lane(scope) for scope in serving]
        return [lane for lane in found if lane is not None]

    def _lane(self, scope: Scope) -> NotificationQueue | None:
        """None for a module that has none of these hooks."""
        self._hears_ends[scope.module_id] = STOPPED in scope.hooks
        if self._closed or not NOTIFICATION_HOOKS & scope.hooks:
            return None
        lane = self._lanes.get(scope)
        if lane is None:
            lane = self._lanes[scope] = NotificationQueue(scope, self._spawn)
        return lane

    # --- the end --------------------------------------------------------------------------------
    async def close(self) -> None:
        """Returns at once: the next daemon sends the stop notifications that are pending."""
        self._ended_modules = self._ended_modules or bool(self._modules.serving())
        self._closed = True
        await self._tasks.close()
        self._lanes.clear()
        self._live.clear()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._closed:  # the next daemon does it
            work.close()
            return
        self._tasks.spawn(work, name=name)


def _all(telling: Iterable[asyncio.Future[Any]]) -> asyncio.Future[Any] | None:
    found = list(telling)
    return asyncio.gather(*found, return_exceptions=True) if found else None
