"""Followers of commits: components that update themselves from memory after each commit, isolated from each
other.

A commit is stored and in memory before followers run, so a follower that fails changes neither. The failure
is logged, the follower continues with the next commit, and after a pause it resynchronises from memory. Only
memory itself must not fail: then the process ends, and the next one begins from the store.
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
"""The longest pause between two resynchronisations of one follower. Pauses grow so that a follower which
fails at every commit does not cost a full read each time."""
_log = structlog.get_logger("corral.controller.term")


class Follower(Protocol):
    """A component derived from memory, such as an index or the orders that were sent."""

    def follow(self, commit: Commit) -> None:
        """Apply a commit that is in memory. Synchronous and quick."""

    def resync(self) -> None:
        """Rebuild from all of memory, whatever was missed. Idempotent."""


class Followers:
    """The followers in their order. `follow` never raises; `run` resynchronises those that failed."""

    def __init__(self) -> None:
        self._followers: dict[str, Follower] = {}
        self._stale: dict[str, int] = {}
        """Followers that failed and have not resynchronised since, with the number of commits each has
        missed."""
        self._pauses: dict[str, tuple[Backoff, float]] = {}
        """For each follower that failed: the backoff before its next resynchronisation, and the time of the
        last one."""
        self._wake = asyncio.Event()

    def add(self, name: str, follower: Follower, *, before: str = "") -> None:
        """Add a follower at the end, or right before another one: a follower may rely on those before it."""
        later = {before: self._followers.pop(before)} if before else {}
        self._followers |= {name: follower, **later}

    @property
    def stale(self) -> list[str]:
        """The names of the followers that may lag behind memory."""
        return sorted(self._stale)

    def follow(self, commit: Commit) -> None:
        for name, follower in self._followers.items():
            try:
                follower.follow(commit)
            except Exception:
                if name not in self._stale:  # logged once; the number of missed commits is logged on recovery
                    _log.exception("follower.failed", follower=name, commit=commit.number)
                self._stale[name] = self._stale.get(name, 0) + 1
                self._wake.set()

    async def run(self) -> None:
        """Resynchronise failed followers until cancelled. Each has its own pause: one that keeps failing does
        not delay another."""
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
        """The next pause of a follower: doubled each time, reset after a while without failure."""
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
            _log.exception("follower_resync.failed", follower=name, commits=failed)
            self._stale[name] = failed
        else:
            _log.warning("follower_resync.finished", follower=name, commits=failed)
