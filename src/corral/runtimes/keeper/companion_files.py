"""The files of a companion, in `beside/NAME` of its run's directory: a frozen format, as the run's own.

`lock` is held by its minder as long as anything of it exists or is being started; `record` lists its
processes; `exit` is how it ended (see `exit_file`); `output` has the last part of its output; `stop` holds a
stop request to its minder; `lost` marks that one of its minders was killed. All but `record` and `lost` have
their blocks before it is executed, so a full disk hides nothing.

Only the standard library, and little of it: the keeper imports this.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os

from corral.runtimes.keeper import exit_file, run_files

BESIDE = "beside"
OUTPUT = "output"
STOP = "stop"
LOST = "lost"
OUTPUT_BYTES = 4096
VERSION = 1
_STOP_BYTES = 32


class CompanionRecord:
    """The processes of a companion. A pid is valid only with its start time and boot."""

    __slots__ = ("boot", "command", "mark", "minder", "minder_start", "pid", "start", "started_ns")

    def __init__(
        self,
        *,
        command: tuple[str, ...],
        pid: int,
        start: int,
        minder: int,
        minder_start: int,
        boot: str,
        started_ns: int,
        mark: str,
    ) -> None:
        self.command = command
        self.pid = pid
        self.start = start
        self.minder = minder
        self.minder_start = minder_start
        self.boot = boot
        self.started_ns = started_ns
        self.mark = mark
        """The mark in the environment of the companion and of all that it starts."""


def place_of(run_directory: str, name: str) -> str:
    return f"{run_directory}/{BESIDE}/{name}"


def names_in(run_directory: str) -> list[str]:
    """Every name that was used and not removed, in order."""
    try:
        return sorted(os.listdir(f"{run_directory}/{BESIDE}"))  # noqa: PTH208 - no pathlib in the keeper
    except FileNotFoundError:
        return []


def try_lock(place: str) -> int | None:
    """The lock's descriptor; None when it is held. FileNotFoundError when the place is gone."""
    descriptor = _open_lock(place)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def take_lock(place: str) -> int:
    """Take the lock, waiting until it is free: the minder ends soon after the run's main process."""
    descriptor = _open_lock(place)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def _open_lock(place: str) -> int:
    return os.open(f"{place}/{run_files.LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def prepare(place: str) -> None:
    """Make the files of a new companion, with the lock held. The results of an earlier one are removed."""
    run_files.remove(place, run_files.RECORD, run_files.EXIT)
    exit_file.allocate_exit(place)
    for name, size in ((OUTPUT, OUTPUT_BYTES), (STOP, _STOP_BYTES)):
        descriptor = os.open(f"{place}/{name}", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)


def forget(place: str) -> None:
    """Remove the files of a companion that was never executed."""
    run_files.remove(place, run_files.RECORD, run_files.EXIT, OUTPUT, STOP)


def mark_lost(place: str) -> None:
    """Record that processes of a companion without a minder may not have been found. The mark stays, whatever
    follows."""
    with contextlib.suppress(OSError):  # a full disk: then `exit` records it until the next one of this name
        run_files.make_file(place, LOST)


def is_lost(place: str) -> bool:
    return os.path.exists(f"{place}/{LOST}")  # noqa: PTH110 - no pathlib in the keeper


def write_record(place: str, record: CompanionRecord) -> None:
    values = {name: getattr(record, name) for name in record.__slots__}
    content = json.dumps({"version": VERSION, **values}).encode("ascii")
    run_files.replace_file(place, run_files.RECORD, content)


def read_record(place: str) -> CompanionRecord | None:
    """None when there is none, or a power failure emptied it. ValueError for a damaged one, or one of a newer
    version whose meaning is unknown."""
    content = _whole(f"{place}/{run_files.RECORD}")
    if not content.strip(b"\0"):
        return None
    values = json.loads(content)
    if not isinstance(values, dict) or not isinstance(values.get("version"), int):
        raise ValueError("not the record of a companion")
    if values["version"] > VERSION:
        raise run_files.TooNew(f"record of a companion of version {values['version']}")
    try:
        return CompanionRecord(
            command=tuple(values["command"]),
            pid=values["pid"],
            start=values["start"],
            minder=values["minder"],
            minder_start=values["minder_start"],
            boot=values["boot"],
            started_ns=values["started_ns"],
            mark=values["mark"],
        )
    except KeyError as error:
        raise ValueError(f"the record of a companion lacks {error}") from None


def write_output(place: str, kept: bytes) -> None:
    _write_in_place(f"{place}/{OUTPUT}", kept.ljust(OUTPUT_BYTES, b"\0"))


def read_output(place: str) -> str:
    return _whole(f"{place}/{OUTPUT}")[:OUTPUT_BYTES].rstrip(b"\0").decode("utf-8", "replace")


def ask_to_stop(place: str, grace: float) -> None:
    """Write the stop request; the minder reads it when it is woken."""
    _write_in_place(f"{place}/{STOP}", b"%d\n" % round(grace * 1000))


def asked_to_stop(place: str) -> float | None:
    """The seconds of grace of the stop request; None when there is no request."""
    request = _whole(f"{place}/{STOP}").partition(b"\n")[0].strip(b"\0")
    return int(request) / 1000 if request.isdigit() else None


def _write_in_place(path: str, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, content, 0)
    finally:
        os.close(descriptor)


def _whole(path: str) -> bytes:
    """The whole content; empty when there is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    content = b""
    try:
        while piece := os.read(descriptor, 65536):
            content += piece
    finally:
        os.close(descriptor)
    return content
