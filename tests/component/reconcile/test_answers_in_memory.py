"""Small uploads that a node was asked for: kept in memory, verified, allowed once."""

from __future__ import annotations

import os

import pytest

from corral.domain.ids import NodeId
from corral.errors import Code, CorralError


async def refusal_of(awaitable) -> CorralError:
    with pytest.raises(CorralError) as caught:
        await awaitable
    return caught.value


async def test_bytes_that_were_asked_for_arrive_whole_and_only_once(cluster):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    uploads = controller.app.role.term.link.uploads
    content = os.urandom(700_000)
    held = uploads.expect_bytes("q1", node_id=NodeId("n1"), max_bytes=1_000_000)
    async with daemon.app.link.data_channel() as channel:
        await channel.push_bytes("q1", content)
        assert await held == content
        assert (await refusal_of(channel.push_bytes("q1", content))).code is Code.NOT_FOUND


async def test_bytes_nobody_waits_for_any_more_are_refused(cluster):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    uploads = controller.app.role.term.link.uploads
    given_up = uploads.expect_bytes("q1", node_id=NodeId("n1"), max_bytes=10)
    uploads.expect_bytes("q2", node_id=NodeId("n2"), max_bytes=10)
    small = uploads.expect_bytes("q3", node_id=NodeId("n1"), max_bytes=3)
    given_up.cancel()
    async with daemon.app.link.data_channel() as channel:
        assert (await refusal_of(channel.push_bytes("q1", b"late"))).code is Code.NOT_FOUND
        assert (await refusal_of(channel.push_bytes("q2", b"of another node"))).code is Code.NOT_FOUND
        assert (await refusal_of(channel.push_bytes("q3", b"large"))).code is Code.BODY_TOO_LARGE
    assert not small.done()
