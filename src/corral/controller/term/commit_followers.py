"""Those who look at memory after each commit, each guarded from the others.

What the store has taken is a fact, and memory has it: a follower that fails changes nothing about either. It is
logged, it goes on with the next commit, and soon it reads what it keeps anew from memory. Only memory itself
must not fail: then the process ends, and the next one begins from the store.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from corral.store.port import Commit
from corral.system.aio.backoff import Backoff
from corral.system.aio.tasks import Tasks

_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 30.0
"""Between two times that the same follower reads everything: one that fails at every commit must not cost more
than a full read now and then."""
_log = structlog.get_logger("corral.controller.term")


class Follower(Protocol):
    """Keeps something that follows from memory, such as an index, or orders that were sent."""

    def follow(self, commit: Commit) -> None:
        """A commit is in memory: take over what it changed. Synchronous and quick."""

    def resync(self) -> None:
        """Take over all that memory holds, whatever was missed. Idempotent."""


class Followers:
    """In their order. `follow` never raises; `run` mends those that failed."""

    def __init__(self) -> None:
        self._followers: dict[str, Follower] = {}
        self._stale: dict[str, int] = {}
        """Those that failed and have not read anew since: how many commits each could not take."""
        self._pauses: dict[str, tuple[Backoff, float]] = {}
        """For each that failed: how long it waits before it reads anew, and when it last did."""
        self._wake = asyncio.Event()

    def add(self, name: str, follower: Follower, *, before: str = "") -> None:
        """Behind all others, or right before one: whoever hears of an event may rely on those before."""
        later = {before: self._followers.pop(before)} if before else {}
        self._followers |= {name: follower, **later}

    @property
    def stale(self) -> list[str]:
        """The names of those that may lag behind memory."""
        return sorted(self._stale)

    def follow(self, commit: Commit) -> None:
        for name, follower in self._followers.items():
            try:
                follower.follow(commit)
            except Exception:
                if name not in self._stale:  # said once, and how many they were when it is mended
                    _log.exception("follower.failed", follower=name, commit=commit.number)
                self._stale[name] = self._stale.get(name, 0) + 1
                self._wake.set()

    async def run(self) -> None:
        """Until cancelled. Each waits for its own turn: one that fails for long keeps no other from being mended."""
        mending: dict[str, asyncio.Task[None]] = {}
        async with Tasks() as tasks:
            while True:
                self._wake.clear()
                mending = {name: task for name, task in mending.items() if not task.done()}
                for name in self.stale:
                    if name not in mending:
                        mending[name] = tasks.spawn(self._mend_later(name), name=f"followers/mend/{name}")
                await self._wake.wait()

    async def _mend_later(self, name: str) -> None:
        while name in self._stale:
            await asyncio.sleep(self._pause(name))
            self._mend(name)

    def _pause(self, name: str) -> float:
        """Twice as long each time, until it was well for a while."""
        now = asyncio.get_running_loop().time()
        backoff, until = self._pauses.get(name) or (Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE), now)
        if now - until > 2 * _LONGEST_PAUSE:
            backoff.reset()
        pause = backoff.delay()
        self._pauses[name] = backoff, now + pause
        return pause

    def _mend(self, name: str) -> None:
        failed = self._stale.pop(name, 0)
        try:
            self._followers[name].resync()
        except Exception:
            _log.exception("follower.resync_failed", follower=name, commits=failed)
            self._stale[name] = failed
        else:
            _log.warning("follower.resynced", follower=name, commits=failed)
