"""Who watches which console: a wake-up for each that is watched, and none for the others."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Iterator

from corral.controller.events.wakeup import Wakeup
from corral.domain.ids import InstanceId


class Watchers:
    """Readers are woken together, once for everything that came together."""

    def __init__(self) -> None:
        self._wakeups: dict[InstanceId, Wakeup] = {}
        self._count: collections.Counter[InstanceId] = collections.Counter()

    def any(self, id: InstanceId) -> bool:
        return id in self._wakeups

    def wake(self, id: InstanceId) -> None:
        wakeup = self._wakeups.get(id)
        if wakeup is not None:
            wakeup.wake()

    @contextlib.contextmanager
    def one_more(self, id: InstanceId, *, on_change: Callable[[InstanceId], None]) -> Iterator[Wakeup]:
        """Watch for as long as this lasts; `on_change` is called with the first one and after the last."""
        wakeup = self._wakeups.get(id)
        if wakeup is None:
            wakeup = self._wakeups[id] = Wakeup()
            on_change(id)
        self._count[id] += 1
        try:
            yield wakeup
        finally:
            self._count[id] -= 1
            if not self._count[id]:
                del self._count[id], self._wakeups[id]
                on_change(id)
