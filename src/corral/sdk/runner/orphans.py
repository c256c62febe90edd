"""Reaping orphans: whatever the programs of a module leave behind becomes a child of the module's process.

Its own children are the module's to wait for, and nobody may take their exit status away. Orphans are told
from them by their session. Our process leads a session and so can never be in another one; a child that it
makes is born in it, and can leave it only for a session that has the child's own number. Who is in a third
one was born by somebody else. Orphans that stayed in our session cannot be told apart, and stay until the
end of the module.
"""

from __future__ import annotations

import asyncio
import os
from typing import Final

from corral.sdk.runner.proc_table import children, content

_SECONDS: Final = 2.0


class OrphanReaper:
    """Looks every other second; with no children that is a matter of microseconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def start(self) -> None:
        self._loop.call_later(_SECONDS, self._look)

    def _look(self) -> None:
        try:
            reap_orphans()
        finally:
            self.start()


def reap_orphans() -> int:
    """How many orphans that had ended are gone now."""
    own = os.getpid()
    if os.getsid(0) != own:
        return 0  # then nothing can be concluded from sessions
    return sum(_reap(pid, own) for pid in children(own) if _is_ended_orphan(pid, own))


def _reap(pid: int, own: int) -> bool:
    """The descriptor is opened before the second look: what is seen is true of that very process."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _is_ended_orphan(pid, own):
            return False
        return os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG) is not None
    except ChildProcessError:
        return False  # somebody else waited for it
    finally:
        os.close(descriptor)


def _is_ended_orphan(pid: int, own: int) -> bool:
    try:
        fields = content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return False
    return len(fields) > 3 and fields[0] == b"Z" and int(fields[3]) not in (0, own, pid)
