"""Process setup: turns a fork of the zygote into a module process: its own session, limits, user,
descriptors."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Any, Final, NoReturn

from corral.sdk.runner.proc_table import content
from corral.sdk.runner.zygote_messages import EXIT_BROKEN, EXIT_MEMORY, Spawn

Runner = Callable[[socket.socket, list[str]], Any]

_SET_PDEATHSIG: Final = 1
_SET_DUMPABLE: Final = 4
_SET_CHILD_SUBREAPER: Final = 36
_SET_NO_NEW_PRIVS: Final = 38
_OPEN_FILES: Final = 1024
_STACK_BYTES: Final = 4 << 20
"""Stack of each thread that Python starts: it counts against the memory limit whether it is used or not."""
_USER_PROCESSES: Final = 16
"""Factor of the kernel's limit per user: it counts a user's processes together, whichever module they belong
to; the exact limit is watched elsewhere; this one only slows down a fork bomb."""
_NICEST: Final = 19
_OOM_SCORE: Final = b"500"
_ARGUMENTS_FROM: Final = 45
"""Index behind the name in /proc/PID/stat of the start of the arguments; the next field is their end."""
_TITLE_MOST: Final = 1 << 16

_prctl = ctypes.CDLL(None, use_errno=True).prctl
_prctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong]
_prctl.restype = ctypes.c_int


def become_subreaper() -> None:
    """Every orphan among our descendants becomes our child."""
    _call(_SET_CHILD_SUBREAPER, 1)


def become_module(order: Spawn, channel: int, words: int, zygote: int, run: Runner) -> NoReturn:
    """Never returns: not into the zygote's stack, and not through its exit handlers."""
    code = 0
    try:
        _reset_signals()
        behind = _session_nice("self")
        os.setsid()
        channel, words = _keep_only(channel, words)
        faulthandler.enable(words)
        _bound(order)
        _stand_back(order.nice, behind)
        _change_user(order)
        _call(_SET_NO_NEW_PRIVS, 1)
        _belong_to(zygote)
        set_name(f"mod:{order.name}")
        set_title(f"corral module {order.name}")
        run(socket.socket(fileno=channel), list(order.paths))
    except MemoryError:
        code = EXIT_MEMORY
    except SystemExit as ending:
        code = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        code = EXIT_BROKEN
        _write_text(words, traceback.format_exc())
    finally:
        os._exit(code & 0xFF)


def _reset_signals() -> None:
    """Ignore signals that a service manager may send to a whole service at once, such as SIGTERM; a module
    ends by the host's `finish`. Handlers that do nothing, since SIG_IGN would be inherited by programs it
    starts."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _unmoved)


def _unmoved(_number: int, _frame: object) -> None:
    """Does nothing."""


def _keep_only(channel: int, words: int) -> tuple[int, int]:
    """Close the zygote's other descriptors, which belong to other modules, and its log."""
    empty = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    for standard in (0, 1, 2):
        os.dup2(empty, standard)
    low, high = sorted((channel, words))
    os.closerange(3, low)
    os.closerange(low + 1, high)
    os.closerange(high + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    return channel, words


def _bound(order: Spawn) -> None:
    sys.dont_write_bytecode = True
    threading.stack_size(_STACK_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    most = min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(resource.RLIMIT_DATA, (order.memory_bytes, order.memory_bytes))
    with contextlib.suppress(OSError):  # a container may forbid it; then the kernel chooses by size only
        _write("/proc/self/oom_score_adj", _OOM_SCORE)


def _stand_back(nice: int, session: int) -> None:
    """Lower the CPU priority below the host's. Where the kernel shares the CPU between sessions first, `nice`
    counts only within one: then this new session is lowered by as much against the host's."""
    os.nice(nice)
    _set_session_nice(session + nice)


def stand_with(pid: int) -> None:
    """Give our session the same CPU share as that process's."""
    nice = _session_nice(pid)
    if nice != _session_nice("self"):
        _set_session_nice(nice)


def _session_nice(pid: int | str) -> int:
    """`nice` of a session; 0 where the kernel has no such thing, and where it gives no value: the first
    process of a machine is in no session of this kind, nor is what it starts without making one."""
    with contextlib.suppress(OSError, ValueError):
        words = content(f"/proc/{pid}/autogroup").split()
        return int(words[-1]) if words else 0
    return 0


def _set_session_nice(nice: int) -> None:
    with contextlib.suppress(OSError):  # no such kernel; or not root, which alone may set it often
        _write("/proc/self/autogroup", str(min(nice, _NICEST)).encode())


def _change_user(order: Spawn) -> None:
    if order.uid < 0:
        return
    bound = order.processes * _USER_PROCESSES
    resource.setrlimit(resource.RLIMIT_NPROC, (bound, bound))
    os.setgroups(order.groups)
    os.setresgid(order.gid, order.gid, order.gid)
    os.setresuid(order.uid, order.uid, order.uid)
    _call(_SET_DUMPABLE, 1)  # else it may not even read its own /proc/self/fd


def _belong_to(zygote: int) -> None:
    """Die with the zygote. Set after the change of user, which would undo it."""
    _call(_SET_PDEATHSIG, signal.SIGKILL)
    become_subreaper()
    if os.getppid() != zygote:  # it ended before this was set
        os.kill(os.getpid(), signal.SIGKILL)


def set_name(name: str) -> None:
    """Set the name that `ps` and `top` show."""
    _write("/proc/self/comm", name.encode()[:15])


def set_title(title: str) -> None:
    """Set the command that `ps` shows: written over the zygote's, in this process only, as far as there is
    room."""
    fields = content("/proc/self/stat").rpartition(b")")[2].split()
    start, end = int(fields[_ARGUMENTS_FROM]), int(fields[_ARGUMENTS_FROM + 1])
    room = end - start
    if start and 0 < room < _TITLE_MOST:  # 0: a kernel that does not report it
        ctypes.memmove(start, title.encode()[: room - 1].ljust(room, b"\0"), room)


def _write(path: str, text: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text)
    finally:
        os.close(descriptor)


def _write_text(words: int, text: str) -> None:
    with contextlib.suppress(OSError):  # there is no other place to report to
        os.write(words, text.encode(errors="replace"))


def _call(option: int, value: int) -> None:
    if _prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
