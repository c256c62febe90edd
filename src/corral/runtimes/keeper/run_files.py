"""The files of a run and its lock: a frozen format, written by keeper, shim and rescue, read by any later
daemon.

`record` lists the processes of a run, and so does `record.copy`, in case the first is removed or truncated;
`exit` is how its main process ended (see `exit_file`); `failed` why its program was not executed; `empty`
that no process of it is left. All are text, begin with a name and a version, and a reader ignores keys it
does not know: the writer may be years older or newer than the reader. The lock is held while a process of the
run exists, or is being started.

A run's files matter only as long as the machine is up (the boot id shows it), so a rename suffices for most
of them: the kernel keeps what was written, whichever process is killed. `exit` alone is synced, because a
report after a power failure is made from it.

Only the standard library, and little of it: the keeper imports this.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

LOCK = "lock"
RECORD = "record"
RECORD_COPY = "record.copy"
EXIT = "exit"
FAILED = "failed"
EMPTY = "empty"
NOT_EMPTY = ".empty"
"""Becomes `empty` by a rename, which needs no space on a full disk. Before the execution it is `failed`."""
INPUT = "in"
OUTPUT = "out"
CONSOLE = "console"

VERSION = 1
FAILED_BYTES = 8192
_PATH_BYTES = 4096


class TooNew(ValueError):
    """A file in a version whose meaning this reader does not know."""


class RunRecord:
    """The processes of a run, and what a successor of its shim needs."""

    __slots__ = (
        "boot",
        "marks",
        "oom_file",
        "pid",
        "procs",
        "quota_bytes",
        "rescued",
        "run",
        "segment_bytes",
        "shim",
        "shim_start",
        "start",
        "started_boot_ns",
        "started_ns",
        "tty",
    )

    def __init__(
        self,
        *,
        run: str,
        pid: int,
        start: int,
        shim: int,
        shim_start: int,
        boot: str,
        started_ns: int,
        segment_bytes: int,
        quota_bytes: int,
        tty: bool = False,
        procs: tuple[str, ...] = (),
        marks: tuple[str, ...] = (),
        oom_file: str = "",
        rescued: bool = False,
        started_boot_ns: int = 0,
    ) -> None:
        self.run = run
        self.pid = pid
        self.start = start
        self.shim = shim
        self.shim_start = shim_start
        self.boot = boot
        self.started_ns = started_ns
        self.segment_bytes = segment_bytes
        self.quota_bytes = quota_bytes
        self.tty = tty
        self.procs = procs
        """Kernel files that list its processes; empty without control groups."""
        self.marks = marks
        """Without control groups: the mark in the environment of its processes."""
        self.oom_file = oom_file
        self.rescued = rescued
        """`shim` is a rescue: the workload does not descend from it."""
        self.started_boot_ns = started_boot_ns
        """When the program was executed, since the boot; 0: by an earlier version. `start` is when its process was
        forked, which a spare shim does ahead."""

    def text(self) -> str:
        lines = [f"corral-record {VERSION}"]
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, tuple):
                lines += [f"{name}={item}" for item in value]
            else:
                lines.append(f"{name}={int(value) if isinstance(value, bool) else value}")
        return "\n".join(lines) + "\nend=1\n"


class ExecFailure:
    """Why the program was not executed: the step that failed, its errno, and the path it concerns."""

    __slots__ = ("errno", "path", "stage")

    def __init__(self, stage: str, errno: int, path: str) -> None:
        self.stage = stage
        self.errno = errno
        self.path = path

    def encoded(self) -> bytes:
        path = self.path.replace("\n", "?")[:_PATH_BYTES]
        lines = (
            f"corral-failed {VERSION}",
            f"stage={self.stage}",
            f"errno={self.errno}",
            f"path={path}",
            "end=1",
        )
        return os.fsencode("\n".join(lines) + "\n")


def read_record(directory: str) -> RunRecord | None:
    """None when there is none. Raises `TooNew`, and ValueError or KeyError for a damaged one without a copy.

    A blank one counts as none: it was complete when it got its name, so a power failure emptied it, and no
    process of that boot is left.
    """
    try:
        record = _record(directory, RECORD)
    except TooNew:
        raise
    except (ValueError, KeyError):
        copy = _copied_record(directory)
        if copy is None:
            raise
        return copy
    return record or _copied_record(directory)


def _copied_record(directory: str) -> RunRecord | None:
    try:
        return _record(directory, RECORD_COPY)
    except TooNew:
        raise
    except (ValueError, KeyError):
        return None


def _record(directory: str, name: str) -> RunRecord | None:
    content = read_content(directory, name)
    return None if content is None or _blank(content) else parse_record(content)


def parse_record(content: bytes) -> RunRecord:
    """The content of `record`. Raises `TooNew`, and ValueError or KeyError when it is damaged."""
    values, lists = _values(content, "corral-record")
    return RunRecord(
        run=values["run"],
        pid=int(values["pid"]),
        start=int(values["start"]),
        shim=int(values["shim"]),
        shim_start=int(values["shim_start"]),
        boot=values["boot"],
        started_ns=int(values["started_ns"]),
        segment_bytes=int(values["segment_bytes"]),
        quota_bytes=int(values["quota_bytes"]),
        tty=values.get("tty", "0") == "1",
        procs=tuple(lists.get("procs", ())),
        marks=tuple(lists.get("marks", ())),
        oom_file=values.get("oom_file", ""),
        rescued=values.get("rescued", "0") == "1",
        started_boot_ns=int(values.get("started_boot_ns", "0")),
    )


def write_record(directory: str, record: RunRecord) -> None:
    """Replace the record as a whole, and its copy."""
    content = os.fsencode(record.text())
    replace_file(directory, RECORD, content)
    with contextlib.suppress(OSError):  # the copy is needed only if the record is damaged later
        replace_file(directory, RECORD_COPY, content)


def repair_record(directory: str, record: RunRecord) -> None:
    """Write the record again where it or its copy was removed or damaged. A full disk, or a directory that is
    gone, changes nothing."""
    with contextlib.suppress(OSError):
        for name in (RECORD, RECORD_COPY):
            try:
                whole = _record(directory, name) is not None
            except (ValueError, KeyError):
                whole = False
            if not whole:
                replace_file(directory, name, os.fsencode(record.text()))


def was_executed(directory: str) -> bool:
    """Whether the program of a run was executed, by the files beside its record: `failed` is made before the
    workload is released and becomes `.empty` at the execution, which stays until no process is left. (Earlier versions
    made both, and removed the first.)"""
    names = os.listdir(directory)  # noqa: PTH208 - no pathlib in the keeper
    return EMPTY in names or (NOT_EMPTY in names and FAILED not in names)


def replace_file(directory: str, name: str, content: bytes) -> None:
    """Write the file whole or not at all."""
    temporary = f"{directory}/.{name}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        if os.write(descriptor, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), temporary)
    except OSError:
        os.unlink(temporary)  # noqa: PTH108
        raise
    finally:
        os.close(descriptor)
    os.rename(temporary, f"{directory}/{name}")  # noqa: PTH104 - no pathlib in the keeper


def read_failure(directory: str) -> ExecFailure | None:
    """None when the program was executed, or when that is not decided yet (see `undecided`)."""
    return parse_failure(read_content(directory, FAILED))


def parse_failure(content: bytes | None) -> ExecFailure | None:
    """The content of `failed`; None when it is blank, or being written."""
    if content is None or _blank(content):
        return None
    try:
        values, _ = _values(content, "corral-failed")
        return ExecFailure(values["stage"], int(values["errno"]), values.get("path", ""))
    except TooNew:
        raise
    except (ValueError, KeyError):
        return None  # being written


def undecided(directory: str) -> bool:
    """Whether `failed` is still blank: it is made before the workload is released, filled by a workload
    that could not be executed, and renamed by the shim (or a rescue) when it was."""
    content = read_content(directory, FAILED)
    return content is not None and _blank(content)


def open_failed(directory: str) -> int:
    """Make `failed`, blank, with its blocks: on a full disk a program that was never executed must not look
    like one that exited."""
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(f"{directory}/{FAILED}", flags, 0o600)
    os.posix_fallocate(descriptor, 0, FAILED_BYTES)
    return descriptor


def mark_executed(directory: str) -> None:
    """Record that the program was executed. Idempotent. A disk without space for the name loses `.empty`, which is then
    made at the end."""
    try:
        os.rename(f"{directory}/{FAILED}", f"{directory}/{NOT_EMPTY}")  # noqa: PTH104
    except FileNotFoundError:
        return
    except OSError:
        remove(directory, FAILED)


def is_empty(directory: str) -> bool:
    try:
        os.stat(f"{directory}/{EMPTY}")  # noqa: PTH116
    except FileNotFoundError:
        return False
    return True


def mark_empty(directory: str) -> None:
    """Record that no process of the run is left and its console is complete. Idempotent."""
    try:
        os.rename(f"{directory}/{NOT_EMPTY}", f"{directory}/{EMPTY}")  # noqa: PTH104
    except FileNotFoundError:
        make_file(directory, EMPTY)


def make_file(directory: str, name: str) -> None:
    os.close(os.open(f"{directory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def remove(directory: str, *names: str) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{directory}/{name}")  # noqa: PTH108


def _blank(content: bytes) -> bool:
    return not content.strip(b"\0")


def _values(content: bytes, kind: str) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Each key's last value, and all of them."""
    lines = os.fsdecode(content.rstrip(b"\0")).split("\n")
    name, _, version = lines[0].partition(" ")
    if name != kind or not version.isdecimal():
        raise ValueError(f"not a {kind} file")
    if int(version) > VERSION:
        raise TooNew(f"{kind} file of version {version}")
    pairs = [line.partition("=") for line in lines[1:] if "=" in line]
    values = {key: value for key, _, value in pairs}
    if "end" not in values:
        raise ValueError(f"a {kind} file that was cut short")
    lists: dict[str, list[str]] = {}
    for key, _, value in pairs:
        lists.setdefault(key, []).append(value)
    return values, lists


def read_content(directory: str, name: str) -> bytes | None:
    """The content of this file of a run; None when there is none."""
    try:
        descriptor = os.open(f"{directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return os.read(descriptor, 65536)
    finally:
        os.close(descriptor)


def was_attempted(directory: str) -> bool:
    """Whether a start of this run was ever attempted. Without an attempt, no process of it can be left."""
    return os.path.exists(f"{directory}/{LOCK}")  # noqa: PTH110 - as the neighbours name files


def try_lock(directory: str) -> int | None:
    """The lock's descriptor, ours until it and all its copies are closed; None when it is held."""
    descriptor = os.open(f"{directory}/{LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
