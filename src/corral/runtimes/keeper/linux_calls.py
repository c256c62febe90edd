"""System calls that the standard library lacks. Loaded before any fork, never after."""

from __future__ import annotations

import ctypes
import os
import signal

_SET_PDEATHSIG = 1
_SET_CHILD_SUBREAPER = 36
_SET_NO_NEW_PRIVS = 38
_CAP_AMBIENT = 47
_CAP_AMBIENT_CLEAR_ALL = 4

_PIDFD_GETFD = 438

_libc = ctypes.CDLL(None, use_errno=True)
_prctl = _libc.prctl
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_prctl.restype = ctypes.c_int


def set_name(name: bytes) -> None:
    """Set the name that `ps` and `top` show; at most 15 bytes. Through a file: a call of libc would cost each
    shim 200 kB of pages that it shares now."""
    descriptor = os.open("/proc/self/comm", os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, name)
    finally:
        os.close(descriptor)


def become_subreaper() -> None:
    """Every orphan among our descendants becomes our child."""
    _checked(_prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def die_with_parent(parent: int) -> None:
    """SIGKILL when our parent ends. A change of user before this call is fine, one after it undoes it."""
    _checked(_prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:  # the parent ended before the call took effect
        os.kill(os.getpid(), signal.SIGKILL)


def renounce_privileges() -> None:
    """No program executed from here on gains rights by its set-user-id bit or file capabilities."""
    _checked(_prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _prctl(_CAP_AMBIENT, _CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)  # kernels without them have none to clear


def pidfd_getfd(process: int, descriptor: int) -> int:
    """A copy of a descriptor of another process, which we must be allowed to trace."""
    copy = _libc.syscall(
        ctypes.c_long(_PIDFD_GETFD), ctypes.c_int(process), ctypes.c_int(descriptor), ctypes.c_uint(0)
    )
    if copy < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    os.set_inheritable(copy, False)
    return int(copy)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
