"""A lock for each key."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class _LockEntry:
    """The lock of one key, and how many hold it or wait for it."""

    __slots__ = ("lock", "users")

    def __init__(self, holders: int) -> None:
        self.lock: asyncio.Lock | asyncio.Semaphore
        self.lock = asyncio.Lock() if holders == 1 else asyncio.Semaphore(holders)
        self.users = 0


class KeyedLocks(Generic[K]):
    """At most one holder per key at a time (or `holders` of them), in order of arrival. A key without holders
    and waiters uses no memory."""

    def __init__(self, *, holders: int = 1) -> None:
        self._holders = holders
        self._entries: dict[K, _LockEntry] = {}

    def __len__(self) -> int:
        """Keys that are held or waited for."""
        return len(self._entries)

    def users(self, key: K) -> int:
        """How many hold the lock of this key or wait for it."""
        entry = self._entries.get(key)
        return entry.users if entry is not None else 0

    def hold(self, key: K) -> Hold[K]:
        """Use as `async with`, once."""
        return Hold(self._entries, key, self._holders)


class Hold(Generic[K]):
    """One turn with the lock of one key."""

    __slots__ = ("_entries", "_entry", "_holders", "_key")

    def __init__(self, entries: dict[K, _LockEntry], key: K, holders: int) -> None:
        self._entries = entries
        self._key = key
        self._holders = holders
        self._entry: _LockEntry

    async def __aenter__(self) -> None:
        entry = self._entries.get(self._key)
        if entry is None:
            entry = self._entries[self._key] = _LockEntry(self._holders)
        self._entry = entry
        entry.users += 1
        try:
            await entry.lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._entry.lock.release()
        self._leave()

    def _leave(self) -> None:
        """Remove the entry with its last user, not when the lock is free: between two holders it is free for
        a moment, too."""
        self._entry.users -= 1
        if not self._entry.users:
            del self._entries[self._key]
