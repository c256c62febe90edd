"""The hooks of the node's modules in the lives of its instances.

A module may change a start, and is told when a run has its process, when it is about to be stopped, and how
it ended. Nothing it does, or leaves undone, keeps a run from starting or ending for longer than the budget.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

import msgspec
import structlog

from corral.daemon.hooks.asking import STARTING, ask
from corral.daemon.hooks.start_values import Proposal, Tuning, values_of
from corral.daemon.hooks.telling import STOPPING, TOLD, Lane
from corral.modules.scope import Scope
from corral.sdk.instances import ExitInfo, InstanceHandle
from corral.system.clock import Clock

_UNSETTLED: Final = "the node's modules: they were not settled when the start could not wait any longer"
_GATE_SHARE: Final = 0.5
"""Of what a start has left; the rest is for its modules' hooks, and what then remains for itself."""
_BACK_SECONDS: Final = 15.0
"""Ends are kept so long for a module whose process died, or that was stopped: it may come again."""
_log = structlog.get_logger("corral.daemon.hooks")


class StartModules(Protocol):
    """What the hooks need of the node's modules."""

    def serving(self) -> list[Scope]:
        """Those that are ACTIVE."""

    async def settled(self) -> tuple[str, ...]:
        """Waits until the modules are as they should be, for a bounded time; returns those that are not,
        each with why. Returns at once when there is nothing to wait for."""


class _End:
    """The end of a run, and who was told of it."""

    def __init__(self, run: str, handle: InstanceHandle, exit: ExitInfo) -> None:
        self.run = run
        self._handle = handle
        self._exit = exit
        self._telling: dict[Lane, asyncio.Future[bool] | None] = {}

    def tell(self, lane: Lane) -> None:
        """Once for each module: again only when its process was gone before it could be called."""
        if lane not in self._telling and not self._was_told(lane.scope.module_id):
            self._telling[lane] = lane.tell_stopped(self.run, self._handle, self._exit)

    def _was_told(self, module_id: str) -> bool:
        return any(
            telling is not None and telling.done() and not telling.cancelled() and telling.result()
            for lane, telling in self._telling.items()
            if lane.scope.module_id == module_id
        )

    async def heard(self) -> None:
        for telling in list(self._telling.values()):
            if telling is not None:
                await telling


class InstanceHooks:
    """One for the daemon. `module_serves` hears of each module that becomes ACTIVE; `close` is the end."""

    def __init__(self, *, modules: StartModules, budget_seconds: float, clock: Clock) -> None:
        self.budget_seconds = budget_seconds
        """What all modules together may take of one start, or of one stop."""
        self._modules = modules
        self._clock = clock
        self._lanes: dict[Scope, Lane] = {}
        self._live: dict[str, Callable[[], InstanceHandle]] = {}
        self._ends: dict[str, _End] = {}
        """Those that modules which are about to come up shall hear of."""
        self._away: dict[str, float] = {}
        """Modules that were ACTIVE a moment ago, and until when ends are kept for them."""
        self._returned = asyncio.Event()
        """Set, and replaced, when a module has become ACTIVE."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._ended_modules = False
        """Closed, with modules that were ACTIVE: they end with the daemon."""

    # --- a start --------------------------------------------------------------------------------
    async def starting(self, proposal: Proposal, *, patience: float) -> Tuning:
        """What the modules make of a start. `patience`: the start has so many seconds left in all; at least a
        quarter of them is left on return."""
        until = self._clock.monotonic() + patience
        missing = await self._gate(patience * _GATE_SHARE)
        tuning = Tuning(values=values_of(proposal.spec))
        scopes = [scope for scope in self._modules.serving() if STARTING in scope.hooks]
        if scopes and not self._closed:
            began = self._clock.monotonic()
            tuning = await ask(
                scopes, proposal, seconds=min(self.budget_seconds, max(0.0, until - began) / 2)
            )
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

    # --- what modules are told ------------------------------------------------------------------
    def started(self, run: str, present: Callable[[], InstanceHandle], *, adopted: bool = False) -> None:
        """It has its process; `present` gives it as it is when asked. Modules that become ACTIVE later hear of
        it then, until it has ended."""
        self._live[run] = present
        handle = msgspec.structs.replace(present(), adopted=adopted)
        for lane in self._serving_lanes():
            lane.tell_started(run, handle)

    def stopping(self, handle: InstanceHandle) -> asyncio.Future[Any] | None:
        """It is about to be stopped. Done when every module has heard it; None: nobody wants to."""
        telling = [lane.tell(STOPPING, handle) for lane in self._serving_lanes()]
        return _all(heard for heard in telling if heard is not None)

    def stopped(self, run: str, handle: InstanceHandle, exit: ExitInfo, told: Callable[[], None]) -> None:
        """It has ended. `told` is called when nobody is left to hear it; never, when we end before."""
        self._live.pop(run, None)
        if self._closed:
            return
        end = self._ends[run] = _End(run, handle, exit)
        for lane in self._serving_lanes():
            end.tell(lane)
        self._spawn(self._see_told(end, told), f"hooks/stopped/{run}")

    async def _see_told(self, end: _End, told: Callable[[], None]) -> None:
        """Who comes up with the daemon, or comes back from a death, hears of what ended before it, too."""
        try:
            await self._modules.settled()
            for lane in self._serving_lanes():
                end.tell(lane)
            await end.heard()
            await self._all_back()
            await end.heard()
        finally:
            del self._ends[end.run]
        await asyncio.to_thread(told)

    async def _all_back(self) -> None:
        """Until no module is away that may come back, for a bounded time."""
        self._serving_lanes()
        until = self._clock.monotonic() + _BACK_SECONDS
        while (left := min(until, max(self._away.values(), default=0.0)) - self._clock.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._returned.wait()

    def module_serves(self, scope: Scope) -> None:
        """It has become ACTIVE, for the first time or anew: it hears of every run that lives, and before of
        those that have just ended."""
        former = self._lanes.pop(scope, None)
        if former is not None:
            former.retired = True
        self._away.pop(scope.module_id, None)
        self._returned.set()
        self._returned = asyncio.Event()
        lane = self._lane(scope)
        if lane is None:
            return
        for end in self._ends.values():
            end.tell(lane)
        for run, present in list(self._live.items()):
            lane.tell_started(run, msgspec.structs.replace(present(), adopted=True))

    def _serving_lanes(self) -> list[Lane]:
        """Of the modules that are ACTIVE now; those of others are forgotten."""
        serving = [scope for scope in self._modules.serving() if not scope.process.death.done()]
        here = {scope.module_id for scope in serving}
        for scope, lane in list(self._lanes.items()):
            if not lane.live:
                lane.retired = True
                del self._lanes[scope]
                if scope.module_id not in here:
                    self._away[scope.module_id] = self._clock.monotonic() + _BACK_SECONDS
        found = [self._lane(scope) for scope in serving]
        return [lane for lane in found if lane is not None]

    def _lane(self, scope: Scope) -> Lane | None:
        """None for a module that has none of these hooks."""
        if self._closed or not TOLD & scope.hooks:
            return None
        lane = self._lanes.get(scope)
        if lane is None:
            lane = self._lanes[scope] = Lane(scope, self._spawn)
        return lane

    # --- the end --------------------------------------------------------------------------------
    async def close(self) -> None:
        """At once: what modules have not heard of an end, the next daemon tells them."""
        self._ended_modules = self._ended_modules or bool(self._modules.serving())
        self._closed = True
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._lanes.clear()
        self._live.clear()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("hooks.failed", task=task.get_name(), exc_info=error)


def _all(telling: Iterable[asyncio.Future[Any]]) -> asyncio.Future[Any] | None:
    found = list(telling)
    return asyncio.gather(*found, return_exceptions=True) if found else None
