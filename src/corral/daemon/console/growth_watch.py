"""Watch for the growth of consoles: one inotify descriptor for all of them.

A watch fires once and is removed: a console that is written to all the time is polled, and costs no event. The standard
library has no inotify, so libc is called directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import structlog

_IN_MODIFY: Final = 0x2
_IN_CREATE: Final = 0x100
_IN_IGNORED: Final = 0x8000
_IN_ONLYDIR: Final = 0x01000000
_IN_ONESHOT: Final = 0x80000000
_MASK: Final = _IN_MODIFY | _IN_CREATE | _IN_ONLYDIR | _IN_ONESHOT
_EVENT: Final = struct.Struct("iIII")
_READ_BYTES: Final = 64 * 1024
_log = structlog.get_logger("corral.daemon.console")

K = TypeVar("K")


class GrowthWatch(Generic[K]):
    """Calls `grown` with the key of each directory in which a file grew or appeared since it was armed. Use as a
    context manager, within a running loop. Where inotify is not available, `grown` is never called: every user of this
    class polls now and then anyhow."""

    def __init__(self, grown: Callable[[K], None]) -> None:
        self._grown = grown
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = -1
        self._keys: dict[int, K] = {}
        self._watches: dict[K, set[int]] = {}
        """Those of `_keys`, by key."""
        self._refused = False

    def __enter__(self) -> GrowthWatch[K]:
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            self._refuse(ctypes.get_errno())
        else:
            asyncio.get_running_loop().add_reader(self._fd, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def arm(self, key: K, directory: str) -> None:
        """Call `grown` at the next growth, once. Growth before this call is not reported: check again after it."""
        if self._fd < 0:
            return
        watch = self._libc.inotify_add_watch(self._fd, os.fsencode(directory), ctypes.c_uint32(_MASK))
        if watch >= 0:
            self._forget(watch)  # the same directory was armed for another key, and is only watched once
            self._keys[watch] = key
            self._watches.setdefault(key, set()).add(watch)
        elif (code := ctypes.get_errno()) != errno.ENOENT:
            self._refuse(code)

    def is_armed(self, key: K) -> bool:
        """Whether `grown` will be called at its next growth."""
        return key in self._watches

    def disarm(self, key: K) -> None:
        for watch in self._watches.pop(key, ()):
            del self._keys[watch]
            self._libc.inotify_rm_watch(self._fd, watch)

    def _forget(self, watch: int) -> K | None:
        key = self._keys.pop(watch, None)
        if key is not None:
            watches = self._watches[key]
            watches.discard(watch)
            if not watches:
                del self._watches[key]
        return key

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            events = os.read(self._fd, _READ_BYTES)
            at = 0
            while at < len(events):
                watch, mask, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                key = self._forget(watch)  # fired once, or removed with its directory
                if key is not None and not mask & _IN_IGNORED:
                    self._grown(key)

    def _refuse(self, code: int) -> None:
        """Log once, however many watches are refused."""
        if not self._refused:
            self._refused = True
            _log.warning(
                "console_watch.refused",
                reason=os.strerror(code),
                hint="consoles are looked at once a second; raise fs.inotify.max_user_watches or _instances",
            )
