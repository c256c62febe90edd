"""Word of changes in a run's directory, for a window. The standard library lacks it."""

from __future__ import annotations

import ctypes
import os

MODIFIED = 0x002
MOVED_IN = 0x080
CREATED = 0x100
DELETED_ITSELF = 0x400
_NONBLOCK = os.O_NONBLOCK | os.O_CLOEXEC
_EVENTS_BYTES = 65536

_libc = ctypes.CDLL(None, use_errno=True)


class Changes:
    """A descriptor to poll. Watches what exists; what cannot be watched is looked at once a second."""

    def __init__(self) -> None:
        self.descriptor = int(_libc.inotify_init1(_NONBLOCK))

    def watch(self, path: str, mask: int) -> None:
        if self.descriptor >= 0:
            _libc.inotify_add_watch(self.descriptor, os.fsencode(path), ctypes.c_uint32(mask))

    def forget(self) -> None:
        """Read away what happened: whoever is woken looks at everything."""
        try:
            while os.read(self.descriptor, _EVENTS_BYTES):
                pass
        except OSError:
            return
