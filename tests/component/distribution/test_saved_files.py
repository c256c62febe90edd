"""Files of an instance, brought back from its node."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest
from depot import packed

from corral.controller.distribution.instance_saves import FileSaving
from corral.errors import Code, CorralError, Rejected
from corral.system.controller_config import TemplatesSection
from corral.system.entropy import SystemEntropy
from corral.testing.waiting import eventually
from corral.wire.v1.data_pb2 import DataChunk, PushMessage
from corral.wire.v1.instance_pb2 import SaveFilesFailed
from corral.wire.v1.link_pb2 import DaemonMessage


async def ready(depot, **fields):
    await depot.begin()
    talker = await depot.talker(**fields)
    await depot.group("lobby")
    started = await depot.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    return talker, started["id"]


async def saved(depot, id, paths=("world/**",)) -> bytes:
    held = bytearray()
    async with depot.term.distribution.save_files(id, list(paths)) as blocks:
        async for block in blocks:
            held += block
    return bytes(held)


def incoming(depot):
    return list((depot.controller.data / "incoming").iterdir())


async def test_chosen_files_arrive_as_they_were_packed_and_nothing_of_them_stays(depot):
    talker, id = await ready(depot)
    saving = asyncio.create_task(saved(depot, id, ["world/**", "server.properties"]))
    order = (await talker.read_until("save_files")).save_files
    assert (order.instance_id, list(order.paths)) == (id, ["world/**", "server.properties"])
    assert order.incarnation == depot.state.instances.require(id).record.incarnation
    assert order.max_bytes > 0
    archive = packed({"world/level.dat": os.urandom(300_000)})
    await talker.push(order.request_id, archive, hashlib.sha256(archive).hexdigest())
    assert await saving == archive
    assert incoming(depot) == []


async def test_a_node_that_cannot_says_why_in_its_own_words(depot):
    talker, id = await ready(depot)
    stranger = await depot.talker("n2")
    saving = asyncio.create_task(saved(depot, id))
    order = (await talker.read_until("save_files")).save_files
    lie = SaveFilesFailed(request_id=order.request_id, error_code="INTERNAL", error_message="a lie")
    await stranger.send(DaemonMessage(save_files_failed=lie))
    failure = SaveFilesFailed(
        request_id=order.request_id, error_code="PATH_REFUSED", error_message="no file matches"
    )
    await talker.send(DaemonMessage(save_files_failed=failure))
    with pytest.raises(Rejected, match="no file matches") as caught:
        await saving
    assert caught.value.code is Code.PATH_REFUSED


async def test_a_wrong_digest_and_a_node_that_leaves_end_in_an_error_and_leave_no_file(depot):
    talker, id = await ready(depot)
    saving = asyncio.create_task(saved(depot, id))
    order = (await talker.read_until("save_files")).save_files
    archive = packed({"a": os.urandom(100_000)})
    with pytest.raises(CorralError) as refused:
        await talker.push(order.request_id, archive, "0" * 64)
    assert refused.value.code is Code.DIGEST_MISMATCH
    assert not saving.done()
    await talker.hang_up()
    with pytest.raises(CorralError) as caught:
        await saving
    assert caught.value.code is Code.NODE_OFFLINE
    assert incoming(depot) == []


async def test_what_makes_no_sense_is_refused_before_a_node_is_asked(depot):
    _, id = await ready(depot, features=["data"])
    for paths in ((), ("../secret",), ("/etc/passwd",)):
        with pytest.raises(Rejected):
            await saved(depot, id, paths)
    with pytest.raises(Rejected) as caught:
        await saved(depot, id)
    assert caught.value.code is Code.NOT_SUPPORTED
    with pytest.raises(Rejected) as caught:
        await saved(depot, "nobody-1")
    assert caught.value.code is Code.NOT_FOUND


async def begun(talker, depot, transfer_id: str, digest: str, size: int = 1_000_000):
    """An upload of which a part has come, and no more."""
    call = await talker.open_push(transfer_id, digest, size)
    await call.write(PushMessage(chunk=DataChunk(offset=0, data=b"x" * 60_000)))
    await eventually(lambda: incoming(depot))
    return call


async def test_an_upload_nobody_waits_for_any_more_is_given_up_and_removed(depot):
    talker, id = await ready(depot)
    saving = asyncio.create_task(saved(depot, id))
    order = (await talker.read_until("save_files")).save_files
    call = await begun(talker, depot, order.request_id, "0" * 64)
    saving.cancel()
    await asyncio.gather(saving, return_exceptions=True)
    await eventually(lambda: incoming(depot) == [])
    call.cancel()
    with pytest.raises(CorralError) as refused:
        await talker.push(order.request_id, b"x", "0" * 64)
    assert refused.value.code is Code.NOT_FOUND


async def test_an_upload_that_begins_anew_as_another_does_not_keep_what_came_before(depot):
    talker, id = await ready(depot)
    saving = asyncio.create_task(saved(depot, id))
    order = (await talker.read_until("save_files")).save_files
    (await begun(talker, depot, order.request_id, "0" * 64)).cancel()
    archive = packed({"a": os.urandom(100_000)})

    async def pushed() -> bool:
        try:
            await talker.push(order.request_id, archive, hashlib.sha256(archive).hexdigest())
        except CorralError:
            return False  # the first has not ended yet
        return True

    await eventually(pushed)
    assert await saving == archive
    assert incoming(depot) == []


class OneUpload:
    """An upload that is whole when the test says so."""

    def __init__(self) -> None:
        self.arrival = asyncio.get_running_loop().create_future()

    def expect_file(self, transfer_id, *, node_id, max_bytes):
        return self.arrival


async def test_a_file_that_arrives_as_its_reader_gives_up_is_removed(depot):
    talker, id = await ready(depot)
    upload, record = OneUpload(), depot.state.instances.require(id).record
    saving = FileSaving(
        links=depot.term.sessions, uploads=upload, limits=TemplatesSection(), entropy=SystemEntropy()
    )

    async def read() -> None:
        async with saving.save(record, ["world/**"]):
            raise AssertionError("it was given up")

    reading = asyncio.create_task(read())
    await talker.read_until("save_files")
    whole = depot.controller.data / "whole"
    whole.write_bytes(b"x")
    upload.arrival.set_result(whole)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not whole.exists()
