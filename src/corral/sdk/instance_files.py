"""The capability `corral.instance.files`: reads the directory of an instance."""

from __future__ import annotations

from typing import Final, Protocol

from corral.sdk.protocol.instance_messages import FileEntry as FileEntry

INSTANCE_FILES: Final = "corral.instance.files"
"""Id of the built-in capability: `ctx.capabilities.require(INSTANCE_FILES, InstanceFiles)`."""


class InstanceFiles(Protocol):
    """Bounded, and never outside the instance's directory: links are named by `walk` and followed by neither.

    Answers come from the instance's node: `Refused` with code `NODE_OFFLINE` while it is not connected,
    `NOT_FOUND` for an instance or a path that does not exist, `PATH_REFUSED` for a path that is no regular
    file, or leads out; `HostTimeout` when the node is too slow.

    ```python
    files = ctx.capabilities.require(INSTANCE_FILES, InstanceFiles)
    entries = await files.call.walk(instance_id="lobby-1", path="logs")
    text = await files.call.read(instance_id="lobby-1", path="logs/latest.log", length=4096)
    ```
    """

    async def walk(self, *, instance_id: str, path: str = "", limit: int = 1000) -> list[FileEntry]:
        """Everything below `path`, a directory before its content, sorted by name; at most `limit` entries
        (10,000), and no more than a megabyte of paths."""
        ...

    async def read(self, *, instance_id: str, path: str, offset: int = 0, length: int = 65_536) -> bytes:
        """Up to `length` bytes from the offset on (262,144 at most); fewer at the end of the file, none after
        it."""
        ...
