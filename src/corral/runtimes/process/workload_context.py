"""The context in which a workload runs: runtime, user, directory and environment.

The file `runtime` of a run names the runtime that started it, with its user and directory. The daemon writes
it before it orders the spawn. It holds no environment: there may be secrets in it. A provider remembers the
environment of what it started itself; for an adopted run it is read from the kernel's record of the main
process.
"""

from __future__ import annotations

import os
import pathlib
from typing import Final

import msgspec

from corral.errors import Code, Rejected
from corral.system.accounts import RunUser
from corral.system.files import write_all

MARK: Final = "runtime"
PROCESS: Final = "process"
VERSION: Final = 1
_MARK_BYTES: Final = 1024 * 1024


class RuntimeMark(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file `runtime`. Unknown keys are ignored: the writer may be newer."""

    version: int = VERSION
    runtime: str
    directory: str
    user: RunUser
    run: str = ""
    """The runtime's name; empty in marks of earlier versions."""


def write_mark(run_directory: str, mark: RuntimeMark) -> None:
    """Replace the mark as a whole. Not synced: it matters only while the machine is up, as the run does."""
    temporary = f"{run_directory}/.{MARK}.{os.getpid()}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, msgspec.json.encode(mark))
    finally:
        os.close(descriptor)
    os.replace(temporary, f"{run_directory}/{MARK}")  # noqa: PTH105 - often


def is_marked(run_directory: str) -> bool:
    """Whether a spawn of this run was ordered, by a daemon that writes marks."""
    return os.path.exists(f"{run_directory}/{MARK}")  # noqa: PTH110


def read_mark(run_directory: str) -> RuntimeMark | None:
    """None for a run that was started before there were marks, or whose mark is damaged."""
    try:
        mark = msgspec.json.decode(_content(f"{run_directory}/{MARK}"), type=RuntimeMark)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError):
        return None
    if mark.version > VERSION:
        raise Rejected(
            Code.FORMAT_TOO_NEW,
            f"the run in {run_directory} was started by a newer Corral: runtime mark of version {mark.version}",
            hint="run the version that started it, or a newer one",
        )
    return mark


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MARK_BYTES)
    finally:
        os.close(descriptor)


def runtime_of(run_directory: str) -> str:
    """The name of the runtime that a run was started with; `process` by default."""
    mark = read_mark(run_directory)
    return PROCESS if mark is None else mark.runtime


class WorkloadContext(msgspec.Struct, frozen=True, kw_only=True):
    user: RunUser
    directory: str
    environment: dict[str, str]


def context_of(run_directory: str, pid: int) -> WorkloadContext | None:
    """The context of a run whose main process is `pid`, which the caller holds; None when it has ended."""
    process = pathlib.Path(f"/proc/{pid}")
    try:
        environment = _environment(process)
        mark = read_mark(run_directory)
        if mark is not None:
            return WorkloadContext(user=mark.user, directory=mark.directory, environment=environment)
        return WorkloadContext(
            user=_user(process), directory=str((process / "cwd").readlink()), environment=environment
        )
    except OSError:
        return None


def _environment(process: pathlib.Path) -> dict[str, str]:
    entries = (entry.partition(b"=") for entry in (process / "environ").read_bytes().split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in entries if name}


def _user(process: pathlib.Path) -> RunUser:
    """The user of a run without a mark: that of its process now."""
    lines = (line.partition(":\t") for line in (process / "status").read_text().splitlines())
    values = {name: value.split() for name, _, value in lines}
    uid, gid = int(values["Uid"][0]), int(values["Gid"][0])
    if os.geteuid() != 0:
        return RunUser(name=str(uid))
    groups = tuple(int(group) for group in values["Groups"])
    return RunUser(name=str(uid), uid=uid, gid=gid, groups=groups)
