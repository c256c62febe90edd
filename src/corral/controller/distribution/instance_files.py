"""Queries of files in the directories of instances: sent over the node's session, answered under the same id."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final, TypeVar, cast

import msgspec

from corral.controller.distribution.file_turns import FileTurns
from corral.controller.distribution.ports import offline
from corral.controller.sessions.node_links import NodeLink, NodeLinks, answer_of, dismiss
from corral.domain.file_paths import MOST_BYTES, MOST_DIGESTED, MOST_ENTRIES, check_named
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import NodeId
from corral.domain.spec import invalid
from corral.errors import Code, CorralError, FileChanged, Rejected, Retryable
from corral.system.aio.tasks import Tasks
from corral.system.entropy import Entropy, new_id
from corral.wire.v1 import instance_pb2 as wire
from corral.wire.v1.link_pb2 import ControllerMessage

ANSWER_SECONDS: Final = 8.0
"""The deadline of a walk or a read as a whole; shorter than the default deadline of a module's capability
call."""
QUESTIONS_AT_ONCE: Final = 16
QUESTIONS_PER_CALLER, QUESTIONS_PER_INSTANCE = 6, 8
"""Open walks and reads of one node, and how many of these are of one caller or about one instance."""
LISTING_BYTES: Final = 1024 * 1024
"""The most bytes of paths in one listing, whatever names workloads give their files."""
_CLOSE_SECONDS: Final = 1.0
_TEXT: Final = 500
_DIGEST: Final = 64
_HEX: Final = frozenset("0123456789abcdef")
_KINDS: Final = frozenset({"file", "directory", "link", "other"})
_PASSING: Final = frozenset(
    {
        Code.TIMEOUT,
        Code.UNREACHABLE,
        Code.SHUTTING_DOWN,
        Code.RATE_LIMITED,
        Code.FILE_UNREADABLE,
        Code.DISK_FULL,
    }
)

Answer = wire.InstanceFileTree | wire.InstanceFileContent | wire.InstanceFilesAnswer
T = TypeVar("T")
A = TypeVar("A", wire.InstanceFileTree, wire.InstanceFileContent, wire.InstanceFilesAnswer)


class ListedFile(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a directory; `mode`, `digest` and `binary` are None where they are not known."""

    path: str
    kind: str
    size: int
    modified_at: dt.datetime | None = None
    mode: int | None = None
    digest: str | None = None
    binary: bool | None = None


class FileListing(msgspec.Struct, frozen=True, kw_only=True):
    entries: tuple[ListedFile, ...]
    truncated: bool
    """The listing is incomplete."""
    next: bytes = b""
    """Where the next listing begins; empty: nothing follows that could be listed."""


class WalkRequest(msgspec.Struct, frozen=True, kw_only=True):
    path: str = ""
    limit: int
    depth: int = 0
    """0: as deep as the node goes."""
    after: bytes = b""
    digests: int = 0
    """Digests of files up to this size."""


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
        self.turns = FileTurns(
            "questions about files",
            at_once=QUESTIONS_AT_ONCE,
            per_caller=QUESTIONS_PER_CALLER,
            per_instance=QUESTIONS_PER_INSTANCE,
        )
        self._orders = Tasks()

    async def walk(self, record: InstanceRecord, request: WalkRequest, *, caller: str) -> FileListing:
        """The entries below its path (empty: everything), a directory before its entries, names in order.
        NOT_FOUND, PATH_REFUSED."""
        if request.path:
            check_named(request.path, field="path")
        if not 0 < request.limit <= MOST_ENTRIES:
            raise invalid("limit", f"{request.limit} is not possible", f"ask for 1 to {MOST_ENTRIES}")
        link = self.link(record.node, changes=request.digests > 0)
        return await self._in_turn(
            record, caller, lambda asked: self._full_walk(link, record, request, asked)
        )

    async def look(self, record: InstanceRecord, path: str, *, caller: str) -> ListedFile:
        """What lies at a path itself, with the digest of a file that is not too large. NOT_FOUND, PATH_REFUSED,
        NOT_SUPPORTED."""
        check_named(path, field="path")
        link = self.link(record.node, changes=True)
        request = WalkRequest(path=path, limit=1, digests=MOST_DIGESTED)
        tree = await self._in_turn(record, caller, lambda _: self._walk(link, record, request, itself=True))
        if not tree.entries:
            raise Rejected(Code.NOT_FOUND, f"instance '{record.id}' has no '{path}'", field="path")
        return _entry(tree.entries[0], link)

    async def read(
        self, record: InstanceRecord, path: str, *, offset: int, length: int, caller: str
    ) -> FilePart:
        """`length` bytes from `offset`, fewer only at the end of the file. NOT_FOUND, PATH_REFUSED."""
        check_named(path, field="path")
        if not 0 <= offset < 2**63:
            raise invalid("offset", f"{offset} is not possible", "count bytes from 0")
        if not 0 < length <= MOST_BYTES:
            raise invalid("length", f"{length} is not possible", f"ask for 1 to {MOST_BYTES} bytes")
        link = self.link(record.node)
        part = await self._in_turn(
            record, caller, lambda _: self._read(link, record, path, offset=offset, length=length)
        )
        return FilePart(content=part.content[:length], size=max(part.total_size_bytes, 0))

    async def _in_turn(
        self, record: InstanceRecord, caller: str, ask: Callable[[asyncio.Event], Coroutine[Any, Any, T]]
    ) -> T:
        """What a question becomes. The event that it gets is set when nobody waits for the answer any more."""
        left = asyncio.Event()
        with contextlib.ExitStack() as turn:
            turn.enter_context(self.turns.taken(record.node, caller=caller, instance=record.id))
            async with (
                _deadline(record.node, self._seconds),
                self.ordered(ask(left), turn.pop_all(), record, self._seconds) as answered,
            ):
                try:
                    return await asyncio.shield(answered)
                finally:
                    left.set()

    @contextlib.asynccontextmanager
    async def ordered(
        self,
        asking: Coroutine[Any, Any, T],
        turn: contextlib.ExitStack,
        record: InstanceRecord,
        seconds: float,
    ) -> AsyncIterator[asyncio.Task[T]]:
        """An order under way. Its turn is held until the node has answered: what nobody waits for any more still keeps the node
        busy, and counts, for so long at most."""
        task = self._orders.spawn(asking, name=f"distribution/files/{record.id}", awaited=True)
        task.add_done_callback(lambda _: turn.close())
        try:
            yield task
        finally:
            if not task.done():
                timer = asyncio.get_running_loop().call_later(seconds, task.cancel)
                task.add_done_callback(lambda _: timer.cancel())

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

    async def close(self) -> None:
        """End all queries with the term: no answer will arrive."""
        dismiss(question.answer for question in self._open.values())
        await self._orders.wait(timeout=_CLOSE_SECONDS)  # each says to its caller why it ends
        await self._orders.close()

    # walks

    async def _full_walk(
        self, link: NodeLink, record: InstanceRecord, request: WalkRequest, left: asyncio.Event
    ) -> FileListing:
        """Query page by page, until the listing or the limit is complete, or half of the time is over: digests take
        a while, and what was found so far is better than nothing."""
        found: list[ListedFile] = []
        room, limit = LISTING_BYTES, request.limit
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds / 2
        while True:
            tree = await self._walk(link, record, request)
            for entry in tree.entries:
                if len(found) >= limit:
                    return FileListing(entries=tuple(found), truncated=True)
                room -= len(entry.path)
                found.append(_entry(entry, link))
            enough = len(found) >= limit or room < MOST_BYTES or loop.time() >= until or left.is_set()
            if enough or not tree.next or not tree.entries:
                return FileListing(
                    entries=tuple(found), truncated=tree.truncated, next=tree.next if tree.entries else b""
                )
            request = msgspec.structs.replace(request, after=tree.next, limit=limit - len(found))

    async def _walk(
        self, link: NodeLink, record: InstanceRecord, request: WalkRequest, *, itself: bool = False
    ) -> wire.InstanceFileTree:
        def message(request_id: str) -> ControllerMessage:
            question = wire.WalkInstanceFiles(
                request_id=request_id,
                group=record.group,
                instance_id=record.id,
                max_entries=request.limit,
                max_depth=request.depth,
                path=request.path,
                after=request.after,
                digest_bytes=request.digests,
                itself=itself,
                world=bool(record.home),
            )
            return ControllerMessage(walk_instance_files=question)

        return await self.ask(link, record.node, wire.InstanceFileTree, message)

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
                world=bool(record.home),
            )
            return ControllerMessage(read_instance_file=question)

        return await self.ask(link, record.node, wire.InstanceFileContent, message)

    # queries

    def link(self, node_id: NodeId, *, changes: bool = False, modes: bool = False) -> NodeLink:
        """The session of a node that can be asked for files; `changes`: also to change them, `modes`: and their permissions.
        NODE_OFFLINE, NOT_SUPPORTED."""
        link = self._links.find(node_id)
        if link is None:
            raise offline(node_id)
        supports = link.facts.supports
        if changes and supports.files and not supports.file_changes:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"the daemon of node '{node_id}' can only be asked for parts of files",
                hint="update it",
            )
        if not supports.files:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"the daemon of node '{node_id}' cannot be asked for files",
                hint="update it",
            )
        if modes and not supports.file_modes:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"the daemon of node '{node_id}' cannot be told the mode of a file",
                hint="update it, or leave the mode out: a file that is replaced keeps its own",
                field="mode",
            )
        return link

    def require_worlds(self, node_id: NodeId) -> None:
        """Whether the directories of static instances that never ran there can be filled. NODE_OFFLINE, NOT_SUPPORTED."""
        if not self.link(node_id, changes=True).facts.supports.worlds:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"the daemon of node '{node_id}' has files only of instances that have run there",
                hint="update it",
                field="node",
            )

    def new_request(self) -> str:
        return new_id("files", self._entropy)

    async def ask(
        self,
        link: NodeLink,
        node_id: NodeId,
        kind: type[A],
        message: Callable[[str], ControllerMessage],
        *,
        request_id: str = "",
        gone: CorralError | None = None,
    ) -> A:
        """The node's answer; its error is raised. The caller sets the deadline and holds a turn. NODE_OFFLINE, RATE_LIMITED. `gone`:
        raised when the session ends after the question was sent."""
        request_id = request_id or self.new_request()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[request_id] = _Question(node_id=node_id, kind=kind, answer=answer)
        try:
            if not link.send(message(request_id)):
                raise offline(node_id)
            reply = cast(A, await answer_of(answer, over=link.over, gone=gone or offline(node_id)))
        finally:
            del self._open[request_id]
        if reply.error:
            seen: str = getattr(reply, "sha256", "")
            raise _refusal(node_id, reply.error, seen)
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


def _entry(entry: wire.FileEntry, link: NodeLink) -> ListedFile:
    kind = entry.kind if entry.kind in _KINDS else "directory" if entry.is_dir else "file"
    digested = is_digest(entry.sha256)
    return ListedFile(
        path=entry.path,
        kind=kind,
        size=max(entry.size_bytes, 0),
        modified_at=_time(entry.modified_at_ms),
        mode=entry.mode & 0o7777 if link.facts.supports.file_changes else None,
        digest=entry.sha256 if digested else None,
        binary=entry.binary if digested else None,
    )


def is_digest(text: str) -> bool:
    return len(text) == _DIGEST and _HEX.issuperset(text)


def _time(milliseconds: int) -> dt.datetime | None:
    """A file time as a valid time: workloads can set any."""
    try:
        return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC) if milliseconds else None
    except (OverflowError, OSError, ValueError):
        return None


def _refusal(node_id: NodeId, error: str, seen: str = "") -> CorralError:
    """The node's error message, under the code at its start. `seen`: the digest of the file that is there."""
    name, colon, text = error.partition(": ")
    code = Code.__members__.get(name) if colon else None
    if code is None:
        code, text = Code.FILE_UNREADABLE, error
    if code is Code.FILE_CHANGED:
        return FileChanged(f"node '{node_id}': {text[:_TEXT]}", digest=seen if is_digest(seen) else "")
    kind = Retryable if code in _PASSING else Rejected
    return kind(code, f"node '{node_id}': {text[:_TEXT]}")
