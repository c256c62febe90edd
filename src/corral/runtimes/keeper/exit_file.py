"""`exit`: how the main process of a run ended, in a line with a checksum, written in place.

Written by the first process that saw it: shim, rescue, keeper or daemon. Part of the frozen format in
`run_files`.
"""

from __future__ import annotations

import binascii
import fcntl
import os

from corral.runtimes.keeper.run_files import EXIT, VERSION, TooNew, read_content

EXIT_BYTES = 512
_UNKNOWN = "unknown"
_LINE_BYTES = 128


class StoredExit:
    """The content of `exit`: the raw wait status, or None when it could not be learned; and whether the
    kernel had killed a process of the run by then because memory ran out."""

    __slots__ = ("at_ns", "oom", "seen", "status", "who")

    def __init__(self, status: int | None, at_ns: int, who: str, oom: bool, seen: bool = True) -> None:
        self.status = status
        self.at_ns = at_ns
        self.who = who
        self.oom = oom
        self.seen = seen
        """False: only seen later that it had ended, at this time."""


def allocate_exit(directory: str) -> None:
    """Allocate the block of `exit` before the start, so that a full disk cannot hide how a run ended."""
    descriptor = os.open(f"{directory}/{EXIT}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, EXIT_BYTES)
    finally:
        os.close(descriptor)


def read_exit(directory: str) -> StoredExit | None:
    """None while it is not recorded how the main process ended."""
    content = read_content(directory, EXIT)
    if not content:
        return None
    line, newline, _ = content.partition(b"\n")
    body, _, check = line.rpartition(b" ")
    fields = body.decode("ascii", "replace").split()
    if not newline or len(fields) < 5 or fields[0] != "corral-exit":
        return None
    if _check(body) != check:
        return None
    if int(fields[1]) > VERSION:
        raise TooNew(f"exit file of version {fields[1]}")
    status = None if fields[2] == _UNKNOWN else int(fields[2])
    return StoredExit(status, int(fields[3]), fields[4], "oom" in fields[5:], "unseen" not in fields[5:])


def write_exit(
    directory: str,
    status: int | None,
    *,
    at_ns: int,
    who: str,
    oom: bool = False,
    seen: bool = True,
    sync: bool = True,
) -> None:
    """Record how the main process ended. A known status stays: the first report is the best one, and a report
    without a status never replaces one with it."""
    text = _UNKNOWN if status is None else str(status)
    more = f"{' oom' if oom else ''}{'' if seen else ' unseen'}"
    body = f"corral-exit {VERSION} {text} {at_ns} {who}{more}".encode("ascii")
    descriptor = os.open(f"{directory}/{EXIT}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        known = read_exit(directory)
        if known is not None and (known.status is not None or status is None):
            return
        os.pwrite(descriptor, (body + b" " + _check(body) + b"\n").ljust(_LINE_BYTES, b"\0"), 0)
        fcntl.flock(descriptor, fcntl.LOCK_UN)  # other processes need not wait for the disk
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _check(body: bytes) -> bytes:
    return b"%08x" % binascii.crc32(body)
