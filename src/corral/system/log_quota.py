"""How often the same thing is said: what repeats itself must not push everything else out of the log."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from corral.system.clock import Clock

SECONDS: Final = 1.0
_MOST_KINDS: Final = 1000


class LogQuota:
    """One line a second of each kind; the next one says how many were left out.

    ```python
    if (unsaid := quota.admit("module.task_failed", module_id)) is not None:
        _log.warning("module.task_failed", module=module_id, unsaid=unsaid)
    ```
    """

    def __init__(self, *, clock: Clock, seconds: float = SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._kinds: OrderedDict[tuple[str, ...], tuple[float, int]] = OrderedDict()

    def admit(self, *kind: str) -> int | None:
        """None: say nothing now. Else how many of this kind were not said since the last one."""
        now = self._clock.monotonic()
        quiet_until, unsaid = self._kinds.pop(kind, (now, 0))
        if now < quiet_until:
            self._kinds[kind] = quiet_until, unsaid + 1
            return None
        self._kinds[kind] = now + self._seconds, 0
        if len(self._kinds) > _MOST_KINDS:
            self._kinds.popitem(last=False)
        return unsaid
