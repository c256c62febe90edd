"""Locks by name, for as long as somebody holds or awaits one."""

from __future__ import annotations

import asyncio
import weakref


class Turns:
    """One lock a name. Nothing is kept of a name that nobody asks for."""

    def __init__(self) -> None:
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._locks)

    def of(self, name: str) -> asyncio.Lock:
        """The lock of this name; the caller's reference keeps it."""
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        return lock
