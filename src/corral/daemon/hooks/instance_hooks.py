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
    """The node's modules, as far as the hooks need them."""

    def serving(self) -> list[Scope]:
        """Modules that are ACTIVE."""

    def desired_ids(self) -> Collection[str]:
        """Modules that shall run, whether they do or not, without those that an operator holds back."""

    def served_since(self, moment: dt.datetime | None) -> Collection[str]:
        """Of those that shall run: which were ACTIVE at any time from this moment on, also before this daemon's
        time."""

    async def settled(self) -> tuple[str, ...]:
        """Waits until the modules are as they should be, for a bounded time; returns those that are not,
        each with why. Returns at once when there is nothing to wait for."""

    def awaited(self) -> tuple[str, ...]:
        """Modules that `settled` waits for at the moment, as `ID: why`."""


class _Live(NamedTuple):
    """A run that has its process."""

    present: Callable[[], InstanceHandle]
    modules: set[str]
    """Modules that were ACTIVE in its life."""


class InstanceHooks:
    """One for the daemon. `module_serves` is called for each module that becomes ACTIVE, `module_unwanted` for each
    that shall not run any more; `close` is the end."""

    def __init__(self, *, modules: StartModules, budget_seconds: float, clock: Clock) -> None:
        self.budget_seconds = budget_seconds
        """Time that all modules together may take of one start, or of one stop."""
        self._modules = modules
        self._clock = clock
        self._queues: dict[Scope, NotificationQueue] = {}
        self._live: dict[str, _Live] = {}
        self._exits: dict[str, StopNotification] = {}
        """Exits whose notifications are under way; modules that become ACTIVE meanwhile get them, too."""
        self._has_stopped_hook: dict[str, bool] = {}
        """Of the modules that were ACTIVE under this daemon, whether they have the hook."""
        self._pending = PendingStopNotifications(self._spawn)
        self._tasks = Tasks()
        self._closed = False
        self._ended_modules = False
        """Closed, with modules that were ACTIVE: they end with the daemon."""

    # --- a start --------------------------------------------------------------------------------
    async def starting(
        self, proposal: Proposal, *, patience: float, waits: Callable[[str], None] = lambda _: None
    ) -> Tuning:
        """The start as modules change it. `patience`: the start has so many seconds left in all; at least a
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
            _log.info(
                "start_hooks.finished", instance=proposal.spec.instance_id, modules=len(scopes), took_ms=took
            )
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
        for queue in self._live_queues():
            live.modules.add(queue.scope.module_id)
            queue.notify_started(run, handle)

    def stopping(self, handle: InstanceHandle) -> asyncio.Future[Any] | None:
        """The run is about to be stopped. Done when every module was notified; None: no module has the hook."""
        futures = [queue.notify(STOPPING, handle) for queue in self._live_queues()]
        return _all(future for future in futures if future is not None)

    def stopped(self, run: str, handle: InstanceHandle, exit: ExitInfo, file: StoppedRunFile) -> None:
        """The run has ended. For a module that should be notified and is not running the notification stays pending,
        written to `file`. When this daemon ends before that, the next one notifies again."""
        live = self._live.pop(run, None)
        if self._closed:
            return
        modules = live.modules if live is not None else set(self._modules.served_since(handle.started_at))
        end = self._exits[run] = StopNotification(run, handle, exit, file=file, modules=modules)
        for queue in self._live_queues():
            end.notify(queue)
        self._spawn(self._notify_all(end), f"hooks/stopped/{run}")

    async def _notify_all(self, end: StopNotification) -> None:
        """Modules that start with the daemon are notified of runs that ended before, too."""
        try:
            await self._modules.settled()
            for queue in self._live_queues():
                end.notify(queue)
            await end.settled()
        finally:
            del self._exits[end.run]
        desired = self._modules.desired_ids()
        pending = {id for id in end.not_notified() if id in desired and self._has_stopped_hook.get(id, True)}
        self._pending.add(end.run, end.file, pending)

    def restore_pending(self, run: str, file: StoppedRunFile, modules: Iterable[str]) -> None:
        """An earlier daemon left this: an exit whose notifications to these modules are pending. Comes before new ones."""
        pending, desired = set(modules), self._modules.desired_ids()
        still = {id for id in pending if id in desired}
        self._pending.add(run, file, still, kept=still == pending)
        for queue in self._live_queues():  # they may be ACTIVE before the pending notifications were read
            self._pending.notify_one(queue, run)

    def module_serves(self, scope: Scope) -> None:
        """The module has become ACTIVE, for the first time or again: it gets its pending stop notifications, then one
        for every live run."""
        former = self._queues.pop(scope, None)
        if former is not None:
            former.retired = True
        queue = self._queue_of(scope)
        if not self._has_stopped_hook.get(scope.module_id, True):
            self._pending.dismiss(scope.module_id)
        if queue is None:
            return
        self._pending.notify(queue)
        for end in self._exits.values():
            end.notify(queue)
        for run, live in list(self._live.items()):
            live.modules.add(scope.module_id)
            queue.notify_started(run, msgspec.structs.replace(live.present(), adopted=True))

    def module_unwanted(self, module_id: str) -> None:
        """An operator paused, deactivated or removed the module: drop every pending stop notification for it."""
        for live in self._live.values():
            live.modules.discard(module_id)
        for end in self._exits.values():
            end.modules.discard(module_id)
        self._has_stopped_hook.pop(module_id, None)
        self._pending.dismiss(module_id)

    def _live_queues(self) -> list[NotificationQueue]:
        """Of the modules that are ACTIVE now; those of others are forgotten."""
        serving = [scope for scope in self._modules.serving() if not scope.process.death.done()]
        for scope, queue in list(self._queues.items()):
            if not queue.live:
                queue.retired = True
                del self._queues[scope]
        found = [self._queue_of(scope) for scope in serving]
        return [queue for queue in found if queue is not None]

    def _queue_of(self, scope: Scope) -> NotificationQueue | None:
        """None for a module that has none of these hooks."""
        self._has_stopped_hook[scope.module_id] = STOPPED in scope.hooks
        if self._closed or not NOTIFICATION_HOOKS & scope.hooks:
            return None
        queue = self._queues.get(scope)
        if queue is None:
            queue = self._queues[scope] = NotificationQueue(scope, self._spawn)
        return queue

    # --- the end --------------------------------------------------------------------------------
    async def close(self) -> None:
        """Returns at once: the next daemon sends the stop notifications that are pending."""
        self._ended_modules = self._ended_modules or bool(self._modules.serving())
        self._closed = True
        await self._tasks.close()
        self._queues.clear()
        self._live.clear()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._closed:  # the next daemon does it
            work.close()
            return
        self._tasks.spawn(work, name=name)


def _all(futures: Iterable[asyncio.Future[Any]]) -> asyncio.Future[Any] | None:
    found = list(futures)
    return asyncio.gather(*found, return_exceptions=True) if found else None
