"""Queries for parts of a console that a node has: sent over its session, answered over its data channel."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from google.protobuf.message import DecodeError

from corral.controller.consoles.span import ConsoleSpan, Piece, missing_bytes
from corral.controller.sessions.node_links import NodeLink, NodeLinks, answer_of, dismiss
from corral.domain.ids import NodeId
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.entropy import Entropy, new_id
from corral.wire.frames import counted
from corral.wire.v1.instance_pb2 import ConsoleQuery, ConsoleQueryFailed, ConsoleQueryResult, InstanceRun
from corral.wire.v1.link_pb2 import ControllerMessage


class BytesUploads(Protocol):
    """Bulk data requested from a node."""

    def expect_bytes(self, transfer_id: str, *, node_id: NodeId, max_bytes: int) -> asyncio.Future[bytes]:
        """Allow this node one upload. The future holds it when it is complete; cancelling withdraws the
        permission."""


ANSWER_SECONDS: Final = 15.0
ANSWER_BYTES: Final = 1024 * 1024
_OVERHEAD_BYTES: Final = 2 * 1024 * 1024
"""Offsets, times and gaps around the data; a match of a pattern is a block of its own."""
_AT_A_TIME: Final = 4
"""Fewer than the transfers that a node may have in progress: history must not block other transfers."""
_MAX_TEXT: Final = 500
_decode: Final = counted(ConsoleQueryResult.FromString)
_FINAL: Final = frozenset({Code.CONSOLE_GONE, Code.INVALID_PATTERN, Code.NOT_SUPPORTED})


class NodeConsoleQueries:
    """Queries to nodes, few at a time for each, every one with a deadline."""

    def __init__(
        self,
        *,
        links: NodeLinks,
        uploads: BytesUploads,
        entropy: Entropy,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._links = links
        self._uploads = uploads
        self._entropy = entropy
        self._answer_seconds = answer_seconds
        self._asked: dict[str, tuple[NodeId, asyncio.Future[bytes]]] = {}
        self._turns = KeyedLocks[NodeId](holders=_AT_A_TIME)

    async def ask(self, node_id: NodeId, query: ConsoleQuery) -> ConsoleSpan:
        """The node's answer. NODE_OFFLINE, CONSOLE_GONE, INVALID_PATTERN, NOT_SUPPORTED, TIMEOUT."""
        return span_of(query, await self._result(node_id, query))

    async def runs(self, node_id: NodeId, query: ConsoleQuery) -> tuple[list[InstanceRun], bool]:
        """The runs of an instance on the node, ascending, and whether there are more. NODE_OFFLINE,
        NOT_SUPPORTED, TIMEOUT."""
        query.runs = True
        result = await self._result(node_id, query, of_runs=True)
        return list(result.runs[: query.max_lines]), result.more_runs

    async def _result(
        self, node_id: NodeId, query: ConsoleQuery, *, of_runs: bool = False
    ) -> ConsoleQueryResult:
        query.request_id = new_id("cq", self._entropy)
        if not 0 < query.max_bytes <= ANSWER_BYTES:
            query.max_bytes = ANSWER_BYTES
        try:
            async with asyncio.timeout(self._answer_seconds), self._turns.hold(node_id):
                result: ConsoleQueryResult = _decode(await self._answer(node_id, query, of_runs=of_runs))
                return result
        except DecodeError:
            raise Retryable(
                Code.TRANSFER_INTERRUPTED, "the node's answer cannot be read", hint="try again"
            ) from None
        except TimeoutError:
            raise Retryable(
                Code.TIMEOUT,
                f"node '{node_id}' did not answer within {self._answer_seconds:g} seconds",
                hint="it may be busy; try again",
                retry_after=1.0,
            ) from None

    async def _answer(self, node_id: NodeId, query: ConsoleQuery, *, of_runs: bool) -> bytes:
        link = self._link(node_id, of_runs=of_runs)
        answer = self._uploads.expect_bytes(
            query.request_id, node_id=node_id, max_bytes=query.max_bytes + _OVERHEAD_BYTES
        )
        self._asked[query.request_id] = (node_id, answer)
        try:
            link.send(ControllerMessage(console_query=query))
            return await answer_of(answer, over=link.over, gone=offline(node_id))
        finally:
            del self._asked[query.request_id]

    def _link(self, node_id: NodeId, *, of_runs: bool) -> NodeLink:
        link = self._links.find(node_id)
        if link is None:
            raise offline(node_id)
        supports = link.facts.supports
        if not (supports.run_lists if of_runs else supports.console_queries):
            what = "the runs it has" if of_runs else "its consoles"
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"the daemon of node '{node_id}' cannot be asked for {what}",
                hint="update it; what the controller holds can be read",
            )
        return link

    def failed(self, node_id: NodeId, failure: ConsoleQueryFailed) -> None:
        """The node reported that it cannot answer."""
        expecting, answer = self._asked.get(failure.request_id, (None, None))
        if answer is not None and expecting == node_id and not answer.done():
            answer.set_exception(_refusal(node_id, failure))

    def close(self) -> None:
        """End all queries with the term: no answer will arrive."""
        dismiss(answer for _, answer in self._asked.values())


def offline(node_id: NodeId) -> CorralError:
    return Retryable(
        Code.NODE_OFFLINE,
        f"this part of the console lies on node '{node_id}', which is not connected",
        hint="newest=true shows what the controller holds; the rest can be read when the node is back",
    )


def no_times(node_id: NodeId) -> CorralError:
    return Rejected(
        Code.NOT_SUPPORTED,
        f"the daemon of node '{node_id}' cannot find a place in a console by its time",
        hint="update it, or read with since and until",
    )


def _refusal(node_id: NodeId, failure: ConsoleQueryFailed) -> CorralError:
    code = Code.__members__.get(failure.error_code, Code.UNREACHABLE)
    if code is Code.NOT_FOUND:
        code = Code.CONSOLE_GONE
    kind = Rejected if code in _FINAL else Retryable
    return kind(code, f"node '{node_id}': {failure.error_message[:_MAX_TEXT] or failure.error_code[:80]}")


def span_of(query: ConsoleQuery, result: ConsoleQueryResult) -> ConsoleSpan:
    """A node's answer as a span; blocks that overlap or are empty are left out."""
    pieces: list[Piece] = []
    times: list[tuple[int, int]] = []
    end = query.from_offset
    for block in result.blocks:
        if block.offset < end or not block.data:
            continue
        pieces.append(Piece(block.offset, block.data))
        times += [(entry.offset, entry.timestamp_ms) for entry in block.times]
        end = block.offset + len(block.data)
    gaps_sent = [*result.gaps, *(gap for block in result.blocks for gap in block.gaps)]
    gaps = {(gap.from_offset, gap.to_offset): missing_bytes(gap) for gap in gaps_sent}
    return ConsoleSpan(
        pieces=tuple(pieces),
        times=sorted(times),
        gaps=tuple(gap for _, gap in sorted(gaps.items())),
        first_offset=result.first_offset,
        end_offset=max(result.end_offset, end if pieces else 0),
        next_offset=result.next_offset if query.newest else max(result.next_offset, end),
    )
