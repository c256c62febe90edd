"""Word of changes in a run's directories, for a window. Standard library only.

By `F_NOTIFY`, not by inotify: of that the kernel gives a user 128 instances, and a node full of windows
would leave none for its daemon. A directory tells of one change and is then asked again, so a console
that is flooded wakes its window no more often than the window asks.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal

_ENTRIES = fcntl.DN_CREATE | fcntl.DN_DELETE | fcntl.DN_RENAME
_PIPE_BYTES = 4096


class DirectoryChanges:
    """A descriptor to poll. What cannot be watched has to be looked at now and then. One a process: word
    comes as SIGIO."""

    def __init__(self, directory: str, console: str) -> None:
        self.descriptor, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGIO, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._watched: list[tuple[int, int]] = []
        for path, mask in ((directory, _ENTRIES), (console, _ENTRIES | fcntl.DN_MODIFY)):
            with contextlib.suppress(OSError):
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                self._watched.append((os.open(path, flags), mask))

    def ask(self) -> None:
        """Be told of the next change. Whoever looks afterwards misses nothing."""
        for descriptor, mask in self._watched:
            with contextlib.suppress(OSError):  # a kernel or a file system without it
                fcntl.fcntl(descriptor, fcntl.F_NOTIFY, mask)

    def forget(self) -> None:
        """Read away what was told: whoever is woken looks at everything."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.descriptor, _PIPE_BYTES):
                pass
