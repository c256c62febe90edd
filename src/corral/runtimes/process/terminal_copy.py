"""A copy of the terminal that a living shim or rescue holds.

Who has the master of a terminal cannot open it again by its name: the descriptor itself is copied out of the
other process. The kernel allows that to whoever may trace it: root always may, others where the system does not
restrict tracing to descendants.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

from corral.runtimes.keeper.linux_calls import pidfd_getfd
from corral.runtimes.keeper.proc_facts import has_ended

_MASTERS: Final = ("/dev/ptmx", "/dev/pts/ptmx")


def copy_of_terminal(minder: int, pid: int) -> int | None:
    """`minder` is a pidfd of `pid`, which holds one terminal at most; None when it has none, or the kernel
    refuses."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208 - names alone
            if os.readlink(f"/proc/{pid}/fd/{name}") in _MASTERS:  # noqa: PTH115
                descriptor = pidfd_getfd(minder, int(name))
                if not has_ended(minder):  # else what we read may be another's
                    return descriptor
                os.close(descriptor)
    return None
