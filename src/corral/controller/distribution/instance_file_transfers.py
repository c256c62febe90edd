"""Changes of the files of instances, and whole files of theirs: ordered over the node's session, with contents over the data
channel. Nothing is held in memory but the piece that is on its way."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Final, TypeVar

import msgspec

from corral.controller.distribution.file_turns import FileTurns
from corral.controller.distribution.instance_files import InstanceFileQuestions, is_digest
from corral.controller.distribution.ports import FileUploads, offline
from corral.controller.sessions.node_links import NodeLink
from corral.controller.sessions.offered_files import OfferedFile, OfferedFiles
from corral.domain.file_paths import check_named
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import NodeId
from corral.errors import Code, Retryable
from corral.system.aio.tasks import first_of
from corral.system.controller_config import FilesSection
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import ControllerMessage

CHANGE_SECONDS: Final = 180.0
"""How long a node may take for a change without fetching anything: it digests, compares and writes to its disk."""
OPEN_SECONDS: Final = 300.0
"""How long it may take before it begins to send: it digests a file, or packs a directory."""
CHANGES_AT_ONCE: Final = 6
DOWNLOADS_AT_ONCE: Final = 4
"""With one node; together fewer than the transfers it may have in progress in all. They are counted apart: who reads slowly
keeps nobody from changing files."""
CHANGES_PER_CALLER, CHANGES_PER_INSTANCE = 3, 4
DOWNLOADS_PER_CALLER, DOWNLOADS_PER_INSTANCE = 2, 3
"""So neither one caller has all of an instance's, nor one instance all of a node's."""
UNPACK: Final = "unpack"
INLINE: Final = 64 * 1024
"""Contents up to this size go with the order."""
_PER_FILE: Final = 4096
"""The overhead of an archive per file, long names included."""


T = TypeVar("T")


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
    mode: int = 0
    """Of a file that is written; 0: that of the file before, or 644."""


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
    left_out: int
    """Entries of a directory that its archive lacks."""
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
        self.changes = FileTurns(
            "changes of files",
            at_once=CHANGES_AT_ONCE,
            per_caller=CHANGES_PER_CALLER,
            per_instance=CHANGES_PER_INSTANCE,
        )
        self.downloads = FileTurns(
            "downloads",
            at_once=DOWNLOADS_AT_ONCE,
            per_caller=DOWNLOADS_PER_CALLER,
            per_instance=DOWNLOADS_PER_INSTANCE,
        )

    async def change(
        self,
        record: InstanceRecord,
        change: FileChange,
        body: FileBody | None = None,
        *,
        caller: str,
        change_id: str = "",
        repeated: bool = False,
    ) -> ChangedFiles:
        """Have the node do it. FileChanged when what must hold does not, NOT_FOUND, ALREADY_EXISTS, PATH_REFUSED, DISK_FULL:
        then nothing was changed, unless the refusal says so. After NODE_OFFLINE and TIMEOUT it is not known. With `repeated`
        the node says what became of the change with this id, or MAY_HAVE_ARRIVED, and does nothing."""
        check_named(change.path, field="path")
        link = self._questions.link(record.node, changes=True, modes=change.mode != 0)
        request_id = self._questions.new_request()
        order = _order(record, change, request_id, self.limits)
        order.change_id, order.repeated = change_id, repeated
        with contextlib.ExitStack() as turn, contextlib.ExitStack() as stack:
            turn.enter_context(self.changes.taken(record.node, caller=caller, instance=record.id))
            async with _quiet_limit(record.node, self._change_seconds) as limit:
                if body is not None and not repeated:
                    order.size_bytes, order.sha256 = body.size, body.sha256
                    if body.size <= INLINE:
                        order.content = await asyncio.to_thread(body.file.read_bytes)
                    else:
                        offer = OfferedFile(
                            node_id=record.node, path=body.file, size=body.size, moved=limit.extend
                        )
                        stack.enter_context(self._offers.offered(request_id, offer))
                asking = self._questions.ask(
                    link,
                    record.node,
                    wire.InstanceFilesAnswer,
                    lambda _: ControllerMessage(change_instance_files=order),
                    request_id=request_id,
                    gone=_unanswered(record.node),
                )
                async with self._questions.ordered(
                    asking, turn.pop_all(), record, self._change_seconds
                ) as answered:
                    answer = await asyncio.shield(answered)
        return ChangedFiles(
            digest=answer.sha256 if is_digest(answer.sha256) else "",
            former=answer.former_sha256 if is_digest(answer.former_sha256) else "",
            size=max(answer.size_bytes, 0),
            entries=max(answer.entries, 0),
            unchanged=answer.unchanged,
        )

    @contextlib.asynccontextmanager
    async def opened(
        self,
        record: InstanceRecord,
        path: str,
        *,
        offset: int = 0,
        length: int = 0,
        archive: bool = False,
        caller: str,
    ) -> AsyncIterator[OpenedFile]:
        """A file, whole or `length` bytes (0: the rest) from an offset on, or a directory as tar.gz. BODY_TOO_LARGE,
        ARCHIVE_TOO_LARGE, NOT_FOUND, PATH_REFUSED."""
        if path or not archive:
            check_named(path, field="path")
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
            world=bool(record.home),
        )
        most = order.max_bytes + (limits.max_entries * _PER_FILE if archive else 0)
        with contextlib.ExitStack() as turn, contextlib.ExitStack() as stack:
            turn.enter_context(self.downloads.taken(record.node, caller=caller, instance=record.id))
            stream = stack.enter_context(
                self._uploads.expect_stream(request_id, node_id=record.node, max_bytes=most)
            )
            async with (
                self._questions.ordered(
                    self._sent(link, record.node, order), turn.pop_all(), record, self._open_seconds
                ) as answered,
                contextlib.aclosing(stream.blocks()) as blocks,
            ):
                head, *others = await first_of(stream.head, answered, link.over, timeout=self._open_seconds)
                if head is None:
                    if others[0] is not None:
                        others[0].result()
                    if link.over.is_set():
                        raise offline(record.node)
                    raise _too_slow(record.node, self._open_seconds)
                found = head.result()
                digest = found.digest if is_digest(found.digest) else ""
                yield OpenedFile(size=found.size, digest=digest, left_out=found.left_out, blocks=blocks)

    async def _sent(self, link: NodeLink, node_id: NodeId, order: wire.SendInstanceFile) -> None:
        await self._questions.ask(
            link,
            node_id,
            wire.InstanceFilesAnswer,
            lambda _: ControllerMessage(send_instance_file=order),
            request_id=order.request_id,
        )


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
        mode=change.mode,
        world=bool(record.home),
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


def _unanswered(node_id: NodeId) -> Retryable:
    return Retryable(
        Code.NODE_OFFLINE,
        f"the connection to node '{node_id}' ended before it had answered: the change may have been made",
        hint="wait until the node is back, then look at the file, or repeat the request with its Idempotency-Key",
        retry_after=5.0,
    )


def _too_slow(node_id: NodeId, seconds: float) -> Retryable:
    return Retryable(
        Code.TIMEOUT,
        f"node '{node_id}' did nothing about it for {seconds:g} s, or is gone",
        hint="look at the file before you try again",
        retry_after=5.0,
    )
