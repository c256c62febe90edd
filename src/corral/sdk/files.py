"""Files of the instances on this node: `ctx.files`."""

from __future__ import annotations

from typing import Final

from corral.sdk.errors import Refused
from corral.sdk.instance_files import FileEntry
from corral.sdk.protocol.instance_messages import (
    MOST_WRITTEN,
    FileBytes,
    FileList,
    FileRemoved,
    ReadFile,
    RemoveFile,
    WalkFiles,
    WriteFile,
)
from corral.sdk.protocol.messages import READ_FILE, REMOVE_FILE, WALK_FILES, WRITE_FILE, Nothing
from corral.sdk.runner_port import HostLink

_INSTEAD: Final = (
    "on the controller require the capability `corral.instance.files`, which reads and lists; to write, "
    "run a part of the module on the nodes (`hosts: [controller, daemon]`)"
)


class Files:
    """`ctx.files`, on a node. Never outside the instance's directory, and no link is followed, whatever the
    instance puts in its place meanwhile. Paths are relative to that directory, with `/`.

    It works from `on_instance_starting` on, until the directory is removed, some time after the end.
    `Refused` with code `NOT_FOUND` for an instance, a directory or a path that does not exist, `PATH_REFUSED`
    for a path that is no regular file or leads out, `DISK_FULL` when the disk is full; nothing was written then.
    On the controller every call is `Refused` with `NOT_SUPPORTED`.

    ```python
    async def on_instance_starting(self, spec: InstanceSpec) -> None:
        await self.ctx.files.write(spec.instance_id, "config/exporter.json", b'{"port": 9400}')

    async def on_instance_stopped(self, handle: InstanceHandle, exit: ExitInfo) -> None:
        for entry in await self.ctx.files.walk(handle.instance_id, "crash-reports"):
            report = await self.ctx.files.read(handle.instance_id, entry.path, length=4096)
    ```
    """

    def __init__(self, link: HostLink, *, here: bool) -> None:
        self._link = link
        self._here = here

    async def read(self, instance_id: str, path: str, *, offset: int = 0, length: int = 65_536) -> bytes:
        """Up to `length` bytes from the offset on (262,144 at most); fewer at the end of the file, none after
        it."""
        self._check()
        body = ReadFile(instance_id=instance_id, path=path, offset=offset, length=length)
        return (await self._link.call(READ_FILE, body, FileBytes)).content

    async def write(self, instance_id: str, path: str, content: bytes, *, append: bool = False) -> None:
        """Write the whole file, or append to it; 1 MiB at most at once. Missing directories are created and
        belong, as the file does, to the user the instance runs as. A file that is replaced keeps its mode,
        and a process that has it open reads the old one; a new one has 0644. Written whole or not at all."""
        self._check()
        if len(content) > MOST_WRITTEN:
            raise Refused(
                f"'{path[:80]}' would get {len(content):,} bytes at once, and {MOST_WRITTEN:,} are taken",
                code="BODY_TOO_LARGE",
                hint="append it in parts",
            )
        body = WriteFile(instance_id=instance_id, path=path, content=bytes(content), append=append)
        await self._link.call(WRITE_FILE, body, Nothing)

    async def walk(self, instance_id: str, path: str = "", *, limit: int = 1000) -> list[FileEntry]:
        """Everything below `path`, a directory before its content, sorted by name; at most `limit` entries
        (10,000), and no more than 256 KiB of them."""
        self._check()
        body = WalkFiles(instance_id=instance_id, path=path, limit=limit)
        return list((await self._link.call(WALK_FILES, body, FileList)).entries)

    async def remove(self, instance_id: str, path: str) -> bool:
        """Remove a file, a link, or an empty directory; False when there was none."""
        self._check()
        body = RemoveFile(instance_id=instance_id, path=path)
        return (await self._link.call(REMOVE_FILE, body, FileRemoved)).removed

    def _check(self) -> None:
        if not self._here:
            raise Refused(
                "ctx.files is for modules on a node; this one runs on the controller",
                code="NOT_SUPPORTED",
                hint=_INSTEAD,
            )
