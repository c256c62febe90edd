"""What goes wrong on the way: cuts, silence, refusals that pass, and answers that are none."""

from __future__ import annotations

import asyncio
import gzip
import json

import pytest
from callers import calling
from scripted_server import CUT, SILENCE, ScriptedServer, answer, refused

from corral.client import (
    ApiError,
    AsyncClient,
    Client,
    InvalidAnswer,
    RateLimited,
    Retry,
    Unavailable,
    Unreachable,
    models,
)
from corral.client.answers import MAX_ANSWER
from corral.client.http1 import MAX_HEAD

OK = {"status": "ok"}
QUICK = Retry(attempts=4, seconds=30, longest_pause=0.01)


def health(corral):
    return corral.probes.health()


async def test_a_read_is_repeated_after_cuts_and_refusals_that_pass(kind):
    steps = [CUT, refused(503, "NOT_LEADER", Retry_After="0"), refused(429, "RATE_LIMITED"), answer(200, OK)]
    async with ScriptedServer(steps) as server, calling(kind, server.url, retry=QUICK) as caller:
        assert (await caller.call(health)).status == "ok"
        assert len(server.asked) == 4


async def test_a_change_is_repeated_with_its_key(kind):
    steps = [CUT, refused(503, "NOT_LEADER"), answer(204)]
    async with ScriptedServer(steps) as server, calling(kind, server.url, retry=QUICK) as caller:
        await caller.call(lambda corral: corral.tokens.delete("t-1"))
        keys = {asked.headers["idempotency-key"] for asked in server.asked}
    assert len(server.asked) == 3
    assert len(keys) == 1


async def test_a_change_without_a_key_is_never_repeated(kind):
    async with ScriptedServer([CUT, answer(204)]) as server, calling(kind, server.url, retry=QUICK) as caller:
        with pytest.raises(Unreachable) as lost:
            await caller.call(lambda corral: corral.workload.ready())
    assert lost.value.in_doubt
    assert "look before you repeat it" in str(lost.value)
    assert len(server.asked) == 1


async def test_a_change_whose_answer_is_cut_is_in_doubt(kind):
    steps = [answer(200, OK)[:-3]]
    once = Retry(attempts=1)
    async with ScriptedServer(steps, closes=True) as server, calling(kind, server.url, retry=once) as caller:
        with pytest.raises(Unreachable, match="was cut") as lost:
            await caller.call(lambda corral: corral.groups.unpause("lobby"))
    assert lost.value.in_doubt


async def test_attempts_are_bounded_by_their_number(kind):
    steps = [refused(503, "NOT_LEADER")] * 9
    async with ScriptedServer(steps) as server, calling(kind, server.url, retry=QUICK) as caller:
        with pytest.raises(Unavailable) as found:
            await caller.call(health)
    assert (found.value.code, found.value.hint) == ("NOT_LEADER", "wait")
    assert len(server.asked) == 4


async def test_attempts_are_bounded_by_their_time(kind):
    steps = [refused(429, "RATE_LIMITED", Retry_After="100")] * 9
    async with ScriptedServer(steps) as server, calling(kind, server.url, retry=QUICK) as caller:
        with pytest.raises(RateLimited) as found:
            await caller.call(health)
    assert found.value.retry_after == 100
    assert len(server.asked) == 1


async def test_other_refusals_are_not_repeated(kind):
    steps = [refused(409, "NODE_OFFLINE", Retry_After="0"), answer(200, OK)]
    async with ScriptedServer(steps) as server, calling(kind, server.url, retry=QUICK) as caller:
        with pytest.raises(ApiError):
            await caller.call(health)
    assert len(server.asked) == 1


async def test_silence_ends_at_the_timeout(kind):
    async with (
        ScriptedServer([SILENCE]) as server,
        calling(kind, server.url, timeout=0.2, retry=Retry(attempts=1)) as caller,
    ):
        with pytest.raises(Unreachable, match="timed out") as lost:
            await caller.call(lambda corral: corral.tokens.delete("t-1"))
    assert lost.value.in_doubt


async def test_a_connection_is_used_again_and_replaced_when_it_was_closed_meanwhile(kind):
    steps = [answer(200, OK), answer(200, OK), CUT, answer(200, OK)]
    async with ScriptedServer(steps) as server, calling(kind, server.url, retry=QUICK) as caller:
        for _ in range(3):
            assert (await caller.call(health)).status == "ok"
    assert [asked.connection for asked in server.asked] == [1, 1, 1, 2]


async def test_nobody_there_is_no_doubt(kind):
    async with ScriptedServer([]) as server:
        url = server.url
    async with calling(kind, url, retry=QUICK) as caller:
        with pytest.raises(Unreachable, match="is the controller running") as lost:
            await caller.call(lambda corral: corral.tokens.delete("t-1"))
    assert not lost.value.in_doubt


GARBAGE = {
    "no HTTP": b"SSH-2.0-OpenSSH_9.6\r\n\r\n",
    "no JSON": answer(200, raw=b"<html>"),
    "another JSON": answer(200, {"other": 1}),
    "a list": answer(200, [1]),
    "nothing": answer(200),
    "a refusal of a proxy": answer(400, raw=b"<html>bad</html>"),
    "a redirect": answer(302, headers={"Location": "http://127.0.0.1:1/"}),
    "two lengths": b"HTTP/1.1 200 X\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "a length and chunks": b"HTTP/1.1 200 X\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
    "a length that is none": b"HTTP/1.1 200 X\r\nContent-Length: -1\r\n\r\nx",
    "an endless head": b"HTTP/1.1 200 X\r\n" + b"X: y\r\n" * MAX_HEAD,
    "a chunk without a size": b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "an upgrade": b"HTTP/1.1 101 X\r\n\r\n",
    "deep JSON": answer(200, raw=b"[" * 100_000),
    "no gzip": answer(200, raw=b"xx", headers={"Content-Encoding": "gzip"}),
    "a bomb": answer(200, raw=gzip.compress(b" " * (MAX_ANSWER + 1)), headers={"Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("name", GARBAGE)
async def test_what_is_no_answer_of_a_controller_is_refused_as_such(kind, name):
    async with (
        ScriptedServer([GARBAGE[name]], closes=True) as server,
        calling(kind, server.url, token="corral_x", retry=QUICK) as caller,
    ):
        with pytest.raises(InvalidAnswer, match="does not answer like a Corral controller") as found:
            await caller.call(health)
    assert "corral_x" not in str(found.value)
    assert len(server.asked) == 1, "to ask again would not help"


async def test_a_truncated_answer_is_asked_for_again(kind):
    whole = answer(200, OK)
    async with (
        ScriptedServer([whole[:-3], whole], closes=True) as server,
        calling(kind, server.url, retry=QUICK) as caller,
    ):
        assert (await caller.call(health)).status == "ok"
    assert len(server.asked) == 2


async def test_an_answer_that_announces_too_much_is_not_waited_for(kind):
    head = b"HTTP/1.1 200 X\r\nContent-Length: 9999999999999999999\r\n\r\n{"
    async with ScriptedServer([head]) as server, calling(kind, server.url, retry=QUICK) as caller:
        with pytest.raises(InvalidAnswer, match="more than"):
            await caller.call(health)


async def test_an_answer_is_not_read_beyond_its_bound(kind):
    async with (
        ScriptedServer([b"HTTP/1.1 200 X\r\n\r\n" + b" " * (MAX_ANSWER + 1)], closes=True) as server,
        calling(kind, server.url, retry=QUICK) as caller,
    ):
        with pytest.raises(InvalidAnswer, match="more than"):
            await caller.call(health)


async def test_what_a_newer_controller_adds_breaks_nothing(kind):
    token = {"id": "j", "node_id": None, "state": "melted", "replace": False, "labels": {}, "created_at": "x"}
    token |= {
        "created_by": "x",
        "expires_at": "x",
        "used_at": None,
        "used_by": None,
        "revision": 1,
        "new": [{}],
    }
    page = {"items": [token], "next": None, "total_moons": 3}
    async with ScriptedServer([answer(200, page)]) as server, calling(kind, server.url) as caller:
        found = await caller.call(lambda corral: corral.nodes.join_tokens())
    assert found.items[0].state == "melted"
    assert isinstance(found.items[0].state, models.JoinTokenState)
    assert "melted" not in models.JoinTokenState.__members__


async def test_chunks_and_pieces_make_one_answer(kind):
    content = json.dumps(OK).encode()
    chunks = b"".join(b"%x;ext=1\r\n%c\r\n" % (1, byte) for byte in content) + b"0\r\nTrailer: x\r\n\r\n"
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with (
        ScriptedServer([head + chunks, answer(200, OK)]) as server,
        calling(kind, server.url, retry=QUICK) as caller,
    ):
        assert (await caller.call(health)).status == "ok"
        assert (await caller.call(health)).status == "ok"
    assert [asked.connection for asked in server.asked] == [1, 1]


async def test_values_cannot_become_other_headers_or_paths(kind):
    async with ScriptedServer([answer(204)]) as server, calling(kind, server.url, retry=QUICK) as caller:
        with pytest.raises(ValueError, match="Idempotency-Key"):
            await caller.call(lambda corral: corral.tokens.delete("t", idempotency_key="a\r\nX: y"))
        with pytest.raises(ValueError, match="part of a path"):
            await caller.call(lambda corral: corral.tokens.delete(".."))
        await caller.call(lambda corral: corral.tokens.delete("../nodes?x#y"))
    assert [asked.line for asked in server.asked] == ["DELETE /api/v1/tokens/..%2Fnodes%3Fx%23y HTTP/1.1"]


async def test_a_cancelled_call_closes_its_connection_and_leaves_nothing():
    async with ScriptedServer([SILENCE, SILENCE]) as server, AsyncClient(server.url) as corral:
        for ask in (corral.probes.health(), corral.events.stream().__anext__()):
            before = asyncio.all_tasks()
            call = asyncio.ensure_future(ask)
            count = len(server.asked)
            while len(server.asked) == count:
                await asyncio.sleep(0)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert asyncio.all_tasks() - server._here <= before
        transport = corral._calls.transport
        while transport._open:
            await asyncio.sleep(0)


async def test_a_closed_client_says_so(kind):
    async with ScriptedServer([]) as server, calling(kind, server.url) as caller:
        pass
    with pytest.raises(ValueError, match="closed"):
        await caller.call(health)


def test_an_address_is_checked_before_anything_is_sent():
    for url in ("ftp://x", "http://", "http://u:p@h", "http://h?x=1", "h:80", "http://h:0", "http://h/a b"):
        with pytest.raises(ValueError, match="address of a controller"):
            Client(url)
    with pytest.raises(ValueError, match="no certificate"):
        Client("https://127.0.0.1:1", ca_file=__file__)
