"""Changes of the files of instances, and whole files of theirs: ordered over the node's session, with contents over the data
channel. Nothing is held in memory but the piece that is on its way."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

import msgspec

from corral.controller.distribution.instance_files import InstanceFileQuestions, is_digest
from corral.controller.distribution.ports import FileUploads
from corral.controller.sessions.node_links import NodeLink
from corral.controller.sessions.offered_files import OfferedFile, OfferedFiles
from corral.domain.file_paths import check_path
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import NodeId
from corral.errors import Code, Retryable
from corral.system.aio.tasks import Tasks, first_of
from corral.system.controller_config import FilesSection
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import ControllerMessage

CHANGE_SECONDS: Final = 180.0
"""How long a node may take for a change without fetching anything: it digests, compares and writes to its disk."""
OPEN_SECONDS: Final = 300.0
"""How long it may take before it begins to send: it digests a file, or packs a directory."""
AT_ONCE: Final = 6
"""The most transfers of instances' files with one node; fewer than it may have in progress in all."""
UNPACK: Final = "unpack"
INLINE: Final = 64 * 1024
"""Contents up to this size go with the order."""
_PER_FILE: Final = 4096
"""The overhead of an archive per file, long names included."""


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change, and what must hold for it."""

    verb: str
    path: str
    target: str = ""
    recursive: bool = False
    replace: bool = False
    if_digests: tuple[str, ...] = ()
    must_exist: bool = False
    must_be_absent: bool = False


class FileBody(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a file that is written, on this controller's disk."""

    file: pathlib.Path
    size: int
    sha256: str


class ChangedFiles(msgspec.Struct, frozen=True, kw_only=True):
    digest: str = ""
    """Of the file that is there now; empty: not known."""
    former: str = ""
    size: int = 0
    entries: int = 0
    unchanged: bool = False


class OpenedFile(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on their way from a node."""

    size: int
    digest: str
    """Empty: of a part, which has none."""
    blocks: AsyncIterator[bytes]
    """Raises when what came is not what was announced."""


class InstanceFileTransfers:
    """Orders to nodes. NODE_OFFLINE, NOT_SUPPORTED, TIMEOUT, RATE_LIMITED, or the node's own code."""

    def __init__(
        self,
        questions: InstanceFileQuestions,
        *,
        uploads: FileUploads,
        offers: OfferedFiles,
        limits: FilesSection,
        change_seconds: float = CHANGE_SECONDS,
        open_seconds: float = OPEN_SECONDS,
    ) -> None:
        self._questions = questions
        self._uploads = uploads
        self._offers = offers
        self.limits = limits
        self._change_seconds = change_seconds
        self._open_seconds = open_seconds
        self._under_way: Counter[NodeId] = Counter()

    async def change(
        self, record: InstanceRecord, change: FileChange, body: FileBody | None = None
    ) -> ChangedFiles:
        """Have the node do it. FileChanged when what must hold does not, NOT_FOUND, ALREADY_EXISTS, PATH_REFUSED, DISK_FULL:
        then nothing was changed, unless the refusal says so. After NODE_OFFLINE and TIMEOUT it is not known."""
        check_path(change.path, field="path")
        link = self._questions.link(record.node, changes=True)
        request_id = self._questions.new_request()
        order = _order(record, change, request_id, self.limits)
        with self._counted(record.node), contextlib.ExitStack() as stack:
            async with _quiet_limit(record.node, self._change_seconds) as limit:
                if body is not None:
                    order.size_bytes, order.sha256 = body.size, body.sha256
                    if body.size <= INLINE:
                        order.content = await asyncio.to_thread(body.file.read_bytes)
                    else:
                        offer = OfferedFile(
                            node_id=record.node, path=body.file, size=body.size, moved=limit.extend
                        )
                        stack.enter_context(self._offers.offered(request_id, offer))
                answer = await self._questions.ask(
                    link,
                    record.node,
                    wire.InstanceFilesAnswer,
                    lambda _: ControllerMessage(change_instance_files=order),
                    request_id=request_id,
                )
        return ChangedFiles(
            digest=answer.sha256 if is_digest(answer.sha256) else "",
            former=answer.former_sha256 if is_digest(answer.former_sha256) else "",
            size=max(answer.size_bytes, 0),
            entries=max(answer.entries, 0),
            unchanged=answer.unchanged,
        )

    @contextlib.asynccontextmanager
    async def opened(
        self, record: InstanceRecord, path: str, *, offset: int = 0, length: int = 0, archive: bool = False
    ) -> AsyncIterator[OpenedFile]:
        """A file, whole or `length` bytes (0: the rest) from an offset on, or a directory as tar.gz. BODY_TOO_LARGE,
        ARCHIVE_TOO_LARGE, NOT_FOUND, PATH_REFUSED."""
        if path or not archive:
            check_path(path, field="path")
        link = self._questions.link(record.node, changes=True)
        request_id, limits = self._questions.new_request(), self.limits
        order = wire.SendInstanceFile(
            request_id=request_id,
            group=record.group,
            instance_id=record.id,
            path=path,
            offset=offset,
            length=length,
            archive=archive,
            max_bytes=limits.max_unpacked_bytes if archive else limits.max_bytes,
            max_files=limits.max_entries,
        )
        most = order.max_bytes + (limits.max_entries * _PER_FILE if archive else 0)
        with (
            self._counted(record.node),
            self._uploads.expect_stream(request_id, node_id=record.node, max_bytes=most) as stream,
        ):
            async with Tasks() as tasks, contextlib.aclosing(stream.blocks()) as blocks:
                asking = tasks.spawn(
                    self._sent(link, record.node, order), name=f"distribution/files/{record.id}", awaited=True
                )
                head, *others = await first_of(stream.head, asking, link.over, timeout=self._open_seconds)
                if head is None:
                    if others[0] is not None:
                        others[0].result()
                    raise _too_slow(record.node, self._open_seconds)
                found = head.result()
                digest = found.digest if is_digest(found.digest) else ""
                yield OpenedFile(size=found.size, digest=digest, blocks=blocks)

    async def _sent(self, link: NodeLink, node_id: NodeId, order: wire.SendInstanceFile) -> None:
        await self._questions.ask(
            link,
            node_id,
            wire.InstanceFilesAnswer,
            lambda _: ControllerMessage(send_instance_file=order),
            request_id=order.request_id,
        )

    @contextlib.contextmanager
    def _counted(self, node_id: NodeId) -> Iterator[None]:
        if self._under_way[node_id] >= AT_ONCE:
            raise Retryable(
                Code.RATE_LIMITED,
                f"{AT_ONCE} files of instances of node '{node_id}' are on their way already",
                hint="try again when one has arrived",
                retry_after=2.0,
            )
        self._under_way[node_id] += 1
        try:
            yield
        finally:
            self._under_way[node_id] -= 1
            if not self._under_way[node_id]:
                del self._under_way[node_id]


def _order(
    record: InstanceRecord, change: FileChange, request_id: str, limits: FilesSection
) -> wire.ChangeInstanceFiles:
    return wire.ChangeInstanceFiles(
        request_id=request_id,
        group=record.group,
        instance_id=record.id,
        verb=change.verb,
        path=change.path,
        target=change.target,
        if_digests=change.if_digests,
        must_exist=change.must_exist,
        must_be_absent=change.must_be_absent,
        recursive=change.recursive,
        replace=change.replace,
        max_bytes=limits.max_unpacked_bytes if change.verb == UNPACK else limits.max_bytes,
        max_entries=limits.max_entries,
    )


class _QuietLimit:
    """Ends a wait in which nothing moves for too long."""

    def __init__(self, timeout: asyncio.Timeout, seconds: float) -> None:
        self._timeout = timeout
        self._seconds = seconds

    def extend(self) -> None:
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)


@contextlib.asynccontextmanager
async def _quiet_limit(node_id: NodeId, seconds: float) -> AsyncIterator[_QuietLimit]:
    try:
        async with asyncio.timeout(seconds) as timeout:
            yield _QuietLimit(timeout, seconds)
    except TimeoutError:
        raise _too_slow(node_id, seconds) from None


def _too_slow(node_id: NodeId, seconds: float) -> Retryable:
    return Retryable(
        Code.TIMEOUT,
        f"node '{node_id}' did nothing about it for {seconds:g} s, or is gone",
        hint="look at the file before you try again",
        retry_after=5.0,
    )
