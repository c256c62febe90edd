"""Readiness of an instance without probes: it has lived for `min_alive_ms` and, if it has a port `primary`, one of its
processes listens there. The rule only reports this: it ends no run."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from typing import Final

from corral.daemon.probes.listening_sockets import RunSockets
from corral.domain.groups.instance_records import LeasedPort

FIRST_WORD_SECONDS: Final = 1.0
WORD_SECONDS: Final = 5.0
"""What a run waits for is reported after the first of these, and again, where it changed, after the second."""
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 3.0
_AGAIN_SECONDS: Final = 5.0
_AGAIN_AGE: Final = 2.0
_BACK_PAUSE: Final = 1.0


class PacedReasons:
    """Reports a text when it differs from the last one, and never in quick succession."""

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported = ""
        self._next = asyncio.get_running_loop().time() + FIRST_WORD_SECONDS

    def offer(self, text: str) -> None:
        now = asyncio.get_running_loop().time()
        if text != self._reported and now >= self._next:
            self._reported, self._next = text, now + WORD_SECONDS
            self._report(text)


class BuiltInRule:
    """The rule for one run. `alive_in`: how many seconds are left until it has lived long enough; `changed`: it is
    ready, or not any more and why; `waits`: what it waits for; `late`: it lives, and a check found that it does not
    listen."""

    def __init__(
        self,
        *,
        sockets: RunSockets,
        port: LeasedPort | None,
        alive_in: Callable[[], float],
        ready: bool,
        changed: Callable[[bool, str], None],
        waits: Callable[[str], None],
        late: Callable[[], None],
        name: str,
        again_seconds: float = _AGAIN_SECONDS,
    ) -> None:
        self._sockets = sockets
        self._port = port
        self._alive_in = alive_in
        self._ready = ready
        self._changed = changed
        self._waits = waits
        self._late = late
        self._again = again_seconds
        self._spread = zlib.crc32(name.encode()) / 2**32

    def holds_at_once(self) -> bool:
        """Whether there is nothing to wait for; then `changed` is not called for it."""
        self._ready = self._ready or (self._port is None and self._alive_in() <= 0)
        return self._ready

    async def follow(self) -> None:
        """Run as long as anything can change."""
        if not self._ready:
            await self._until_alive()
        if self._port is None:
            if not self._ready:
                self._set(True, "")
            return
        pause = _FIRST_PAUSE
        while True:
            if not self._ready:
                await self._until_it_listens(self._port, pause)
            await self._until_it_stopped_listening(self._port)
            pause = _BACK_PAUSE

    async def _until_alive(self) -> None:
        reasons = PacedReasons(self._waits)
        while (left := self._alive_in()) > 0:
            await asyncio.sleep(min(left, FIRST_WORD_SECONDS))
            reasons.offer("it is ready when it has lived for 'min_alive_ms'")

    async def _until_it_listens(self, port: LeasedPort, pause: float) -> None:
        reasons = PacedReasons(self._waits)
        while missing := await self._sockets.missing(port):
            self._late()
            reasons.offer(missing)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_PAUSE)
        self._set(True, "")

    async def _until_it_stopped_listening(self, port: LeasedPort) -> None:
        """Wait for two checks that find nothing: one may have come between two sockets of a server."""
        await asyncio.sleep(self._again * self._spread)
        misses = 0
        while misses < 2:
            await asyncio.sleep(self._again)
            missing = await self._sockets.missing(port, max_age=min(_AGAIN_AGE, self._again))
            misses = misses + 1 if missing else 0
        self._set(False, missing.replace(" yet", " any more"))

    def _set(self, ready: bool, reason: str) -> None:
        self._ready = ready
        self._changed(ready, reason)
