"""Facts of the kernel about processes: whether a pid is still the process it was, and how a process ended.

Standard library only: keeper, shim and daemon share it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct

_STATE = 0
_PARENT = 1
_THREADS = 17
_START_TIME = 19
_EXIT_STATUS = 49
"""Places in /proc/PID/stat after the command's name: fields 3, 4, 20, 22 and 52 of its manual page."""

_boot: list[str] = []

_PIDFD_GET_INFO = 0xC040FF0B
_PIDFD_INFO_EXIT = 1 << 3
_INFO_BYTES = 64
_EXIT_CODE_AT = 60


def boot_id() -> str:
    """Identifies the time since the machine was started; a pid is meaningless in another."""
    if not _boot:
        _boot.append(_content("/proc/sys/kernel/random/boot_id").decode().strip())
    return _boot[0]


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which the process was made; None when there is no such process."""
    fields = _stat(pid)
    return int(fields[_START_TIME]) if fields else None


def parents() -> list[tuple[int, int, int]]:
    """Every process with its parent and its start time, as they were a moment ago."""
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 - no pathlib in the keeper
        fields = _stat(int(name)) if name.isdecimal() else []
        if fields:
            found.append((int(name), int(fields[_PARENT]), int(fields[_START_TIME])))
    return found


def is_alive(pid: int, start: int) -> bool:
    """Whether this very process exists and is no zombie. The caller holds a pidfd made before. A zombie with
    more threads counts as alive: only its first thread has ended."""
    fields = _stat(pid)
    if not fields or int(fields[_START_TIME]) != start:
        return False
    return fields[_STATE] not in (b"Z", b"X") or int(fields[_THREADS]) > 1


def is_runnable(pid: int, start: int) -> bool:
    """Whether this very process exists and is neither stopped nor a zombie."""
    fields = _stat(pid)
    return bool(fields) and int(fields[_START_TIME]) == start and fields[_STATE] in (b"R", b"S", b"D")


def open_process(pid: int, start: int) -> int | None:
    """A pidfd of this very process; None when it is gone. The pidfd is opened first and the start time
    compared then: if the pid is reused later, the descriptor still refers to the process that was compared.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.ESRCH, errno.EINVAL):
            return None
        raise
    if is_alive(pid, start):
        return descriptor
    os.close(descriptor)
    return None


def has_ended(pidfd: int) -> bool:
    """Whether the process has ended, reaped or not. Does not wait."""
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def exit_witness(pidfd: int, pid: int, start: int) -> int | None:
    """The raw wait status of an ended process that need not be our child; None when the kernel does not have
    it. The kernel remembers the status of a reaped process (since 6.15), and shows that of a zombie."""
    info = bytearray(_INFO_BYTES)
    struct.pack_into("=Q", info, 0, _PIDFD_INFO_EXIT)
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, info)
    except OSError:
        return _zombie_status(pid, start)
    (mask,) = struct.unpack_from("=Q", info, 0)
    if not mask & _PIDFD_INFO_EXIT:
        return _zombie_status(pid, start)
    (status,) = struct.unpack_from("=i", info, _EXIT_CODE_AT)
    return int(status)


def _zombie_status(pid: int, start: int) -> int | None:
    """The status of a zombie, for an init process may reap late. It reads 0 for a user who may not see it; a
    user who may read the link of a namespace may see it."""
    fields = _stat(pid)
    if not fields or int(fields[_START_TIME]) != start or fields[_STATE] != b"Z":
        return None
    try:
        os.readlink(f"/proc/{pid}/ns/user")  # noqa: PTH115 - no pathlib in the keeper
    except OSError:
        return None
    return int(fields[_EXIT_STATUS])


def raw_status(code: int, value: int) -> int:
    """The raw wait status that `waitid`'s si_code and si_status stand for."""
    if code == os.CLD_EXITED:
        return (value & 0xFF) << 8
    return value | 0x80 if code == os.CLD_DUMPED else value


def environment_has(pid: str, marks: tuple[str, ...]) -> bool:
    """Whether the environment of a process, as it was executed, holds all of these `NAME=value`."""
    entries = (kernel_file(f"/proc/{pid}/environ") or b"").split(b"\0")
    return bool(marks) and all(os.fsencode(mark) in entries for mark in marks)


def kernel_file(path: str) -> bytes | None:
    """The whole content of a kernel file; None when there is none, or it may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    content = b""
    try:
        while piece := os.read(descriptor, 65536):
            content += piece
    except OSError:
        return None  # the process ended while it was read
    finally:
        os.close(descriptor)
    return content


def _stat(pid: int) -> list[bytes]:
    try:
        return _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return []  # it ended, perhaps between two calls


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)
