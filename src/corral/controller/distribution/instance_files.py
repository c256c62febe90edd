"""Queries of files in the directories of instances: sent over the node's session, answered under the same id."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar, cast

import msgspec

from corral.controller.distribution.ports import offline
from corral.controller.sessions.node_links import NodeLink, NodeLinks, answer_of, dismiss
from corral.domain.file_paths import MOST_BYTES, MOST_ENTRIES, check_path
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import NodeId
from corral.domain.spec import invalid
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.sdk.instance_files import FileEntry
from corral.system.entropy import Entropy, new_id
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import ControllerMessage

ANSWER_SECONDS: Final = 8.0
"""The deadline of a walk or a read as a whole; shorter than the default deadline of a module's capability
call."""
MAX_WAITING: Final = 16
"""The most open queries to one node."""
LISTING_BYTES: Final = 1024 * 1024
"""The most bytes of paths in one listing, whatever names workloads give their files."""
_TEXT: Final = 500
_KINDS: Final = frozenset({"file", "directory", "link", "other"})
_PASSING: Final = frozenset(
    {Code.TIMEOUT, Code.UNREACHABLE, Code.SHUTTING_DOWN, Code.RATE_LIMITED, Code.FILE_UNREADABLE}
)

Answer = wire.InstanceFileTree | wire.InstanceFileContent
A = TypeVar("A", wire.InstanceFileTree, wire.InstanceFileContent)


class FileListing(msgspec.Struct, frozen=True, kw_only=True):
    entries: tuple[FileEntry, ...]
    truncated: bool
    """The listing is incomplete."""


class FilePart(msgspec.Struct, frozen=True, kw_only=True):
    content: bytes
    size: int
    """The size of the whole file when it was read."""


class _Question(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    kind: type[Answer]
    answer: asyncio.Future[Answer]


class InstanceFileQuestions:
    """Open queries. Every query has a deadline and ends with its session: NODE_OFFLINE, NOT_SUPPORTED,
    TIMEOUT, RATE_LIMITED, or the node's own code."""

    def __init__(self, *, links: NodeLinks, entropy: Entropy, seconds: float = ANSWER_SECONDS) -> None:
        self._links = links
        self._entropy = entropy
        self._seconds = seconds
        self._open: dict[str, _Question] = {}

    async def walk(self, record: InstanceRecord, path: str, *, limit: int) -> FileListing:
        """The entries below `path` (empty: everything), a directory before its entries, names in order.
        NOT_FOUND, PATH_REFUSED."""
        if path:
            check_path(path, field="path")
        if not 0 < limit <= MOST_ENTRIES:
            raise invalid("limit", f"{limit} is not possible", f"ask for 1 to {MOST_ENTRIES}")
        async with _deadline(record.node, self._seconds):
            link = self._link(record.node)
            return await self._full_walk(link, record, path, limit=limit)

    async def read(self, record: InstanceRecord, path: str, *, offset: int, length: int) -> FilePart:
        """`length` bytes from `offset`, fewer only at the end of the file. NOT_FOUND, PATH_REFUSED."""
        check_path(path, field="path")
        if not 0 <= offset < 2**63:
            raise invalid("offset", f"{offset} is not possible", "count bytes from 0")
        if not 0 < length <= MOST_BYTES:
            raise invalid("length", f"{length} is not possible", f"ask for 1 to {MOST_BYTES} bytes")
        async with _deadline(record.node, self._seconds):
            link = self._link(record.node)
            part = await self._read(link, record, path, offset=offset, length=length)
            return FilePart(content=part.content[:length], size=max(part.total_size_bytes, 0))

    def answered(self, node_id: NodeId, answer: Answer) -> None:
        """A node's answer; only that of the queried node counts."""
        question = self._open.get(answer.request_id)
        if (
            question is not None
            and question.node_id == node_id
            and isinstance(answer, question.kind)
            and not question.answer.done()
        ):
            question.answer.set_result(answer)

    def close(self) -> None:
        """End all queries with the term: no answer will arrive."""
        dismiss(question.answer for question in self._open.values())

    # walks

    async def _full_walk(
        self, link: NodeLink, record: InstanceRecord, path: str, *, limit: int
    ) -> FileListing:
        """Query page by page, until the listing or the limit is complete."""
        found: list[FileEntry] = []
        room, after = LISTING_BYTES, b""
        while True:
            tree = await self._walk(link, record, limit=limit - len(found), path=path, after=after)
            for entry in tree.entries:
                room -= len(entry.path)
                if len(found) >= limit or room < 0:
                    return FileListing(entries=tuple(found), truncated=True)
                found.append(_entry(entry))
            if not tree.next or not tree.entries or len(found) >= limit:
                return FileListing(entries=tuple(found), truncated=tree.truncated)
            after = tree.next

    async def _walk(
        self, link: NodeLink, record: InstanceRecord, *, limit: int, path: str = "", after: bytes = b""
    ) -> wire.InstanceFileTree:
        def message(request_id: str) -> ControllerMessage:
            question = wire.WalkInstanceFiles(
                request_id=request_id,
                group=record.group,
                instance_id=record.id,
                max_entries=limit,
                path=path,
                after=after,
            )
            return ControllerMessage(walk_instance_files=question)

        return await self._ask(link, record.node, wire.InstanceFileTree, message)

    # reads

    async def _read(
        self, link: NodeLink, record: InstanceRecord, path: str, *, offset: int, length: int
    ) -> wire.InstanceFileContent:
        def message(request_id: str) -> ControllerMessage:
            question = wire.ReadInstanceFile(
                request_id=request_id,
                group=record.group,
                instance_id=record.id,
                path=path,
                max_bytes=length,
                offset=offset,
            )
            return ControllerMessage(read_instance_file=question)

        return await self._ask(link, record.node, wire.InstanceFileContent, message)

    # queries

    def _link(self, node_id: NodeId) -> NodeLink:
        link = self._links.find(node_id)
        if link is None:
            raise offline(node_id)
        if not link.facts.supports.files:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"the daemon of node '{node_id}' cannot be asked for files",
                hint="update it",
            )
        return link

    async def _ask(
        self, link: NodeLink, node_id: NodeId, kind: type[A], message: Callable[[str], ControllerMessage]
    ) -> A:
        if sum(1 for each in self._open.values() if each.node_id == node_id) >= MAX_WAITING:
            raise Retryable(
                Code.RATE_LIMITED,
                f"node '{node_id}' has {MAX_WAITING} questions about files to answer already",
                retry_after=1.0,
            )
        request_id = new_id("files", self._entropy)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[request_id] = _Question(node_id=node_id, kind=kind, answer=answer)
        try:
            if not link.send(message(request_id)):
                raise offline(node_id)
            reply = cast(A, await answer_of(answer, over=link.over, gone=offline(node_id)))
        finally:
            del self._open[request_id]
        if reply.error:
            raise _refusal(node_id, reply.error)
        return reply


@contextlib.asynccontextmanager
async def _deadline(node_id: NodeId, seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Retryable(
            Code.TIMEOUT,
            f"node '{node_id}' did not answer within {seconds:g} s",
            hint="it may be busy; try again",
            retry_after=1.0,
        ) from None


def _entry(entry: wire.FileEntry) -> FileEntry:
    kind = entry.kind if entry.kind in _KINDS else "directory" if entry.is_dir else "file"
    return FileEntry(
        path=entry.path, kind=kind, size=max(entry.size_bytes, 0), modified_at=_time(entry.modified_at_ms)
    )


def _time(milliseconds: int) -> dt.datetime | None:
    """A file time as a valid time: workloads can set any."""
    try:
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC) if milliseconds else None
    except (OverflowError, OSError, ValueError):
        return None


def _refusal(node_id: NodeId, error: str) -> CorralError:
    """The node's error message, under the code at its start."""
    name, colon, text = error.partition(": ")
    code = Code.__members__.get(name) if colon else None
    if code is None:
        code, text = Code.FILE_UNREADABLE, error
    kind = Retryable if code in _PASSING else Rejected
    return kind(code, f"node '{node_id}': {text[:_TEXT]}")
