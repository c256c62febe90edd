"""Message bodies about an instance's files and the processes beside it, requested by a module on a node."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.sdk.protocol.messages import Body

MOST_READ: Final = 262_144
"""Most bytes of a file in one answer."""
MOST_WRITTEN: Final = 1_048_576
"""Most bytes written or appended at once."""
MOST_ENTRIES: Final = 10_000


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory below an instance's directory.

    ```python
    logs = [entry for entry in entries if entry.kind == "file" and entry.path.endswith(".log")]
    ```
    """

    path: str
    """Relative, with `/`."""
    kind: str
    """`file`, `directory`, `link` or `other`."""
    size: int = 0
    modified_at: dt.datetime | None = None


class ReadFile(Body, frozen=True, kw_only=True):
    instance_id: str
    path: str
    offset: int = 0
    length: int = 65_536


class FileBytes(Body, frozen=True, kw_only=True):
    content: bytes = b""


class WriteFile(Body, frozen=True, kw_only=True):
    instance_id: str
    path: str
    content: bytes = b""
    append: bool = False


class WalkFiles(Body, frozen=True, kw_only=True):
    instance_id: str
    path: str = ""
    limit: int = 1000


class FileList(Body, frozen=True, kw_only=True):
    entries: tuple[FileEntry, ...] = ()


class RemoveFile(Body, frozen=True, kw_only=True):
    instance_id: str
    path: str


class FileRemoved(Body, frozen=True, kw_only=True):
    removed: bool = False


class SpawnProcess(Body, frozen=True, kw_only=True):
    instance_id: str
    name: str
    command: tuple[str, ...]
    env: dict[str, str] = msgspec.field(default_factory=dict)


class ListProcesses(Body, frozen=True, kw_only=True):
    instance_id: str


class StopProcess(Body, frozen=True, kw_only=True):
    instance_id: str
    name: str
    grace: float = 2.0


class ProcessBody(Body, frozen=True, kw_only=True):
    """A process beside an instance, as `corral.sdk.SideProcess` shows it."""

    name: str
    command: tuple[str, ...] = ()
    pid: int = 0
    started_at: dt.datetime | None = None
    running: bool = False
    exit_code: int | None = None
    signal: str = ""
    output: str = ""


class ProcessList(Body, frozen=True, kw_only=True):
    processes: tuple[ProcessBody, ...] = ()


class ProcessFound(Body, frozen=True, kw_only=True):
    process: ProcessBody | None = None
