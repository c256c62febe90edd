"""What an earlier transfer left behind helps the next one, or is thrown away; it is never in the way."""

from __future__ import annotations

import hashlib
import os

import pytest

from corral.errors import Code, CorralError


def part_of(target, digest: str):
    return target.with_name(f"{target.name}.{digest[:16]}.part")


def left_beside(target) -> list[str]:
    return [path.name for path in target.parent.iterdir() if path.name.startswith(target.name + ".")]


@pytest.mark.parametrize(
    "leftover",
    [b"wrong", b"wrong" * 10_000, b"right" * 1000 + b"too much"],
    ids=["short", "long", "longer than the blob"],
)
async def test_a_leftover_that_is_no_beginning_of_the_blob_is_thrown_away(cluster, scratch, leftover):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    digest = await controller.put_blob(b"right" * 1000, node="n1")
    part_of(scratch / "got", digest).write_bytes(leftover)
    async with daemon.app.link.data_channel() as channel:
        assert await channel.fetch(digest, scratch / "got") == 5000
    assert (scratch / "got").read_bytes() == b"right" * 1000
    assert left_beside(scratch / "got") == []


async def test_a_leftover_of_another_blob_is_not_taken_for_this_one(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    old, new = os.urandom(100_000), os.urandom(1000)
    digest = await controller.put_blob(new, node="n1")
    left = part_of(scratch / "got", hashlib.sha256(old).hexdigest())
    left.write_bytes(old[:50_000])
    (scratch / "got.part").write_bytes(old)
    async with daemon.app.link.data_channel() as channel:
        assert await channel.fetch(digest, scratch / "got") == len(new)
    assert (scratch / "got").read_bytes() == new


async def test_a_whole_leftover_is_verified_and_used(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    content = os.urandom(100_000)
    digest = await controller.put_blob(content, node="n1")
    part_of(scratch / "got", digest).write_bytes(content)
    async with daemon.app.link.data_channel() as channel:
        assert await channel.fetch(digest, scratch / "got") == len(content)
    assert (scratch / "got").read_bytes() == content


@pytest.mark.parametrize("digest", ["", "0" * 64, "../../etc/passwd", "A" * 64, "x" * 10_000])
async def test_what_is_no_blob_leaves_nothing_behind(cluster, scratch, digest):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    async with daemon.app.link.data_channel() as channel:
        with pytest.raises(CorralError) as caught:
            await channel.fetch(digest, scratch / "got")
    assert caught.value.code in (Code.NOT_FOUND, Code.INVALID_FIELD)
    assert left_beside(scratch / "got") == []
