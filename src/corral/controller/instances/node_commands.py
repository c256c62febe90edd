"""Commands that a node answers from what it knows itself: sent over its session, answered once, bounded and spelled out."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from corral.controller.sessions.node_links import NodeLinks, answer_of, offline
from corral.domain.control_characters import spelled
from corral.domain.ids import NodeId
from corral.errors import Code, Rejected, Retryable
from corral.system.entropy import Entropy, new_id
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.node_pb2 import NodeCommand, NodeCommandResult

SECONDS: Final = 10.0
LINES_MAX: Final = 5000
LINE_MAX: Final = 2000
TEXT_MAX: Final = 256 * 1024
MAX_WAITING: Final = 8
"""The most commands of one node that wait for an answer."""
_ERROR_MAX: Final = 1000


class NodeAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a node printed, and why it refused; `code` is empty when it did not."""

    lines: tuple[str, ...]
    code: str = ""
    message: str = ""
    hint: str = ""


class NodeCommands:
    """Commands that are sent and not yet answered."""

    def __init__(self, *, links: NodeLinks, entropy: Entropy) -> None:
        self._links = links
        self._entropy = entropy
        self._open: dict[str, tuple[NodeId, asyncio.Future[NodeCommandResult]]] = {}

    async def run(self, node_id: NodeId, words: Sequence[str], *, timeout: float = SECONDS) -> NodeAnswer:
        """The node's answer. NODE_OFFLINE, NOT_SUPPORTED, RATE_LIMITED, TIMEOUT; it changes nothing, so it can be
        repeated."""
        link = self._links.find(node_id)
        if link is None:
            raise offline(node_id)
        if not link.facts.supports.node_commands:
            raise Rejected(
                Code.NOT_SUPPORTED, f"the daemon of node '{node_id}' takes no commands", hint="update it"
            )
        if sum(1 for asked, _ in self._open.values() if asked == node_id) >= MAX_WAITING:
            raise Retryable(
                Code.RATE_LIMITED, f"node '{node_id}' has {MAX_WAITING} commands to answer", retry_after=1.0
            )
        request_id = new_id("command", self._entropy)
        answer: asyncio.Future[NodeCommandResult] = asyncio.get_running_loop().create_future()
        self._open[request_id] = node_id, answer
        try:
            if not link.send(ControllerMessage(node_command=NodeCommand(request_id=request_id, words=words))):
                raise offline(node_id)
            async with asyncio.timeout(timeout):
                return read_answer(await answer_of(answer, over=link.over, gone=offline(node_id)))
        except TimeoutError:
            raise Retryable(
                Code.TIMEOUT, f"node '{node_id}' did not answer within {timeout:g} s", retry_after=1.0
            ) from None
        finally:
            del self._open[request_id]

    def answered(self, node_id: NodeId, result: NodeCommandResult) -> bool:
        """A node's answer; False when it is not the node that was asked."""
        expecting, answer = self._open.get(result.request_id, (node_id, None))
        if answer is not None and expecting == node_id and not answer.done():
            answer.set_result(result)
        return expecting == node_id


def read_answer(result: NodeCommandResult) -> NodeAnswer:
    """A node may send anything: what it printed is cut to its bounds, and its control characters are spelled out."""
    lines: list[str] = []
    room = TEXT_MAX
    for line in result.lines[:LINES_MAX]:
        shown = spelled(line[:LINE_MAX].replace("\n", " "))
        room -= len(shown)
        if room < 0:
            break
        lines.append(shown)
    if len(lines) < len(result.lines):
        lines.append(f"({len(result.lines) - len(lines)} lines more are left out)")
    code = result.error_code if result.error_code in Code.__members__ else Code.INTERNAL.name
    return NodeAnswer(
        lines=tuple(lines),
        code=code if result.error_code else "",
        message=spelled(result.error_message[:_ERROR_MAX].replace("\n", " ")),
        hint=spelled(result.error_hint[:_ERROR_MAX].replace("\n", " ")),
    )
