"""Notifications of one module process about runs: in order for each instance, concurrent for several."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, NamedTuple

import structlog

from corral.errors import CorralError
from corral.modules.process.call_failures import ModuleBusy, ModuleRaised
from corral.modules.scope import Scope
from corral.sdk.instances import ExitInfo, InstanceHandle
from corral.sdk.protocol.messages import HOOK_PREFIX, HookAnswer, HookArguments

STARTED: Final = "on_instance_started"
STOPPING: Final = "on_instance_stopping"
STOPPED: Final = "on_instance_stopped"
NOTIFICATION_HOOKS: Final = frozenset({STARTED, STOPPING, STOPPED})

_AT_ONCE: Final = 16
"""As many threads as a module has for hooks that block; the rest waits here, where it has no deadline."""
_MOST_WAITING: Final = 8192
_BUSY_SECONDS: Final = 0.05
_log = structlog.get_logger("corral.daemon.hooks")

Spawn = Callable[[Coroutine[Any, Any, None], str], object]
"""Makes a task that its owner ends at the latest with itself."""
Fetch = Callable[[], Awaitable[dict[str, Any] | None]]
"""Fetches the arguments of a hook when its turn has come; None: the notification is not needed any more."""


class _Notification(NamedTuple):
    hook: str
    values: dict[str, Any] | Fetch
    done: asyncio.Future[bool]
    """Over, one way or another: whether the module was called, or was gone before. Cancelled when it is not
    over and never will be."""


class NotificationQueue:
    """Lives from a module's becoming ACTIVE until it is no longer. What still waits then is dropped: the next
    process of the module is notified again of every live run."""

    def __init__(self, scope: Scope, spawn: Spawn) -> None:
        self.scope = scope
        self.retired = False
        self._spawn = spawn
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._waiting: dict[str, deque[_Notification]] = {}
        self._waiting_count = 0
        self._begun: set[str] = set()

    @property
    def live(self) -> bool:
        return not self.retired and self.scope.serving and not self.scope.process.death.done()

    def notify_started(self, run: str, handle: InstanceHandle) -> None:
        """Once for each run."""
        if run not in self._begun and self.notify(STARTED, handle) is not None:
            self._begun.add(run)

    def notify_stopped(self, run: str, handle: InstanceHandle, exit: ExitInfo) -> asyncio.Future[bool] | None:
        self._begun.discard(run)
        return self.notify(STOPPED, handle, exit=exit)

    def notify_pending(self, id: str, fetch: Fetch) -> asyncio.Future[bool] | None:
        """Queue a pending stop notification of an earlier run. Its exit is fetched when its turn has come: many of
        them cost no more than their places in the queue."""
        return self._add(STOPPED, id, fetch)

    def notify(self, hook: str, handle: InstanceHandle, **more: object) -> asyncio.Future[bool] | None:
        """Queue a notification behind the others of this instance; None: the module lacks the hook, or is not live."""
        return self._add(hook, handle.instance_id, {"handle": handle, **more})

    def _add(self, hook: str, id: str, values: dict[str, Any] | Fetch) -> asyncio.Future[bool] | None:
        if hook not in self.scope.hooks or not self.live:
            return None
        if self._waiting_count >= _MOST_WAITING:  # runs come and go faster than the module handles them
            _log.error("hook_notification.refused", module=self.scope.module_id, instance=id, hook=hook)
            return None
        notification = _Notification(hook, values, asyncio.get_running_loop().create_future())
        self._waiting_count += 1
        notifications = self._waiting.get(id)
        if notifications is None:
            notifications = self._waiting[id] = deque((notification,))
            self._spawn(self._deliver(id, notifications), f"hooks/notify/{id}/{self.scope.module_id}")
        else:
            notifications.append(notification)
        return notification.done

    async def _deliver(self, id: str, notifications: deque[_Notification]) -> None:
        try:
            while notifications:
                async with self._places:
                    called = await self._call(id, notifications[0])
                self._waiting_count -= 1
                done = notifications.popleft().done
                if not done.done():
                    done.set_result(called)
        finally:
            del self._waiting[id]
            self._waiting_count -= len(notifications)
            for notification in notifications:
                notification.done.cancel()

    async def _call(self, id: str, notification: _Notification) -> bool:
        """Call the hook with the module's own deadline; lateness counts against the module. False: it was gone."""
        if not self.live:
            return False
        values = notification.values if isinstance(notification.values, dict) else await notification.values()
        if values is None:
            return True
        while self.live:
            try:
                await self.scope.call(
                    notification.hook,
                    HOOK_PREFIX + notification.hook,
                    HookArguments(values=values),
                    answer=HookAnswer,
                    deadline=self.scope.hook_deadline,
                )
            except ModuleBusy:  # with other calls: the hook was not called
                await asyncio.sleep(_BUSY_SECONDS)
                continue
            except ModuleRaised:
                pass  # logged already, with its traceback
            except CorralError as error:
                _log.warning(
                    "hook_notification.failed",
                    module=self.scope.module_id,
                    instance=id,
                    hook=notification.hook,
                    reason=str(error),
                )
            return True
        return False
