"""Questions about caches: sent to a node, answered by a CacheStatus under the same id, or never."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from corral.controller.distribution.ports import offline
from corral.controller.sessions.node_links import NodeLinks, answer_of, dismiss
from corral.domain.ids import NodeId
from corral.errors import Code, Retryable
from corral.system.entropy import Entropy, new_id
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.plan_pb2 import CacheStatus

MAX_WAITING: Final = 16
"""Questions to one node that are open at a time."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    answer: asyncio.Future[CacheStatus]


class CacheQuestions:
    """What was asked and is not yet answered."""

    def __init__(self, *, links: NodeLinks, entropy: Entropy) -> None:
        self._links = links
        self._entropy = entropy
        self._open: dict[str, Question] = {}

    async def ask(
        self, node_id: NodeId, message_of: Callable[[str], ControllerMessage], *, timeout: float
    ) -> CacheStatus:
        """The node's answer to the message made for a new request id. NODE_OFFLINE when it is not, or
        no longer, connected; TIMEOUT; RATE_LIMITED when too much was asked of it already."""
        link = self._links.find(node_id)
        if link is None:
            raise offline(node_id)
        if sum(1 for each in self._open.values() if each.node_id == node_id) >= MAX_WAITING:
            raise Retryable(
                Code.RATE_LIMITED,
                f"node '{node_id}' has {MAX_WAITING} questions to answer already",
                retry_after=5.0,
            )
        request_id = new_id("cache", self._entropy)
        answer: asyncio.Future[CacheStatus] = asyncio.get_running_loop().create_future()
        self._open[request_id] = Question(node_id=node_id, answer=answer)
        try:
            if not link.send(message_of(request_id)):
                raise offline(node_id)
            async with asyncio.timeout(timeout):
                return await answer_of(answer, over=link.over, gone=offline(node_id))
        except TimeoutError:
            raise Retryable(
                Code.TIMEOUT,
                f"node '{node_id}' did not answer within {timeout:g} s",
                hint="it may be fetching still; ask for its cache later",
            ) from None
        finally:
            del self._open[request_id]

    def told(self, node_id: NodeId, status: CacheStatus) -> bool:
        """A node spoke of its cache; was it asked to?"""
        question = self._open.get(status.request_id)
        if question is None or question.node_id != node_id or question.answer.done():
            return False
        question.answer.set_result(status)
        return True

    def close(self) -> None:
        """The term is over: nobody will answer."""
        dismiss(question.answer for question in self._open.values())
