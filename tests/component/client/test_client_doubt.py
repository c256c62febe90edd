"""What the client says, and sends again, when a connection ends before all of the answer has come."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import threading
from collections.abc import Iterator

import pytest
from callers import calling
from scripted_server import CUT, GONE, ScriptedServer, answer, refused

from corral.cli.api.client import Client as CommandClient
from corral.cli.failure import Unreachable as CommandUnreachable
from corral.client import ApiError, AsyncClient, Client, Retry, Unreachable

OK = answer(200, {"status": "ok"})
ONCE = Retry(attempts=1)
QUICK = Retry(attempts=4, longest_pause=0.01)


def change(corral):
    return corral.tokens.delete("t-1")


def health(corral):
    return corral.probes.health()


async def test_doubt_lasts_when_later_attempts_find_nobody(kind):
    async with ScriptedServer([GONE]) as server, calling(kind, server.url, retry=QUICK) as caller:
        with pytest.raises(Unreachable, match="at an earlier attempt") as lost:
            await caller.call(change)
    assert lost.value.in_doubt
    assert "running" not in lost.value.hint
    assert len(server.asked) == 1


@pytest.mark.parametrize("end", [CUT, GONE])
async def test_a_kept_connection_that_dies_with_a_change_leaves_doubt(kind, end):
    steps = [OK, end, answer(204)]
    async with ScriptedServer(steps) as server, calling(kind, server.url, retry=ONCE) as caller:
        await caller.call(health)
        with pytest.raises(Unreachable) as lost:
            await caller.call(change)
    assert lost.value.in_doubt
    assert "look before you repeat it" in lost.value.hint
    assert len(server.asked) == 2, "it was sent once"


async def test_one_attempt_is_one_request_for_reads_too(kind):
    async with ScriptedServer([OK, CUT, OK]) as server, calling(kind, server.url, retry=ONCE) as caller:
        await caller.call(health)
        with pytest.raises(Unreachable) as lost:
            await caller.call(health)
    assert not lost.value.in_doubt
    assert len(server.asked) == 2


async def test_a_kept_connection_that_dies_with_a_change_is_a_failed_attempt(kind):
    steps = [OK, CUT, answer(204)]
    async with ScriptedServer(steps) as server, calling(kind, server.url, retry=QUICK) as caller:
        await caller.call(health)
        await caller.call(change)
    assert len({asked.headers["idempotency-key"] for asked in server.asked[1:]}) == 1


@contextlib.contextmanager
def closing_server(answers: list[bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """A server in a thread that closes each connection after one answer, without having said so; its address, and the requests."""
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for each in answers:
                wire, _ = listener.accept()
                with wire:
                    asked.append(wire.recv(65536))
                    wire.sendall(each)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", asked
        thread.join(10)


def wait_for_the_end(wire) -> None:
    """Blocks, the loop as well, until the system knows that the other side has closed."""
    assert select.select([wire.fileno()], [], [], 10)[0]


def test_a_connection_closed_while_idle_is_noticed_before_anything_is_sent():
    with closing_server([OK, answer(204)]) as (url, asked), Client(url, retry=ONCE) as corral:
        corral.probes.health()
        wait_for_the_end(corral._calls.transport._kept[0]._wire)
        corral.workload.ready()  # it has no key
    assert len(asked) == 2


async def test_a_connection_closed_while_the_loop_was_busy_is_noticed_before_anything_is_sent():
    with closing_server([OK, answer(204)]) as (url, asked):
        async with AsyncClient(url, retry=ONCE) as corral:
            await corral.probes.health()
            wait_for_the_end(corral._calls.transport._kept[0]._wire.get_extra_info("socket"))
            await corral.workload.ready()
    assert len(asked) == 2


async def test_a_download_that_breaks_off_says_so(kind):
    cut = answer(200, raw=b"0123456789")[:-4]
    async with ScriptedServer([cut], closes=True) as server, calling(kind, server.url) as caller:
        with pytest.raises(Unreachable, match="broke off: the answer was cut; 4 bytes are missing") as lost:
            await caller.call(lambda corral: corral.templates.export("site").read())
    assert lost.value.hint == "fetch it again"
    assert not lost.value.in_doubt
    assert len(server.asked) == 1


AWAY_SECONDS = 2.0
"""How long the controller of the next test is away."""


async def test_calls_outlast_a_controller_that_starts_again(kind):
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        writer.close()

    with socket.socket() as place:  # bound, and who connects is refused until it listens
        place.bind(("127.0.0.1", 0))
        async with calling(kind, f"http://127.0.0.1:{place.getsockname()[1]}") as caller:
            call = asyncio.ensure_future(caller.call(health))
            done, _ = await asyncio.wait([call], timeout=AWAY_SECONDS)
            assert not done
            async with await asyncio.start_server(serve, sock=place):
                assert (await call).status == "ok"


async def test_a_patient_command_remembers_its_doubt():
    async with ScriptedServer([GONE]) as server:
        client = CommandClient(url=server.url, token=None)
        with pytest.raises(CommandUnreachable) as lost:
            await asyncio.to_thread(client.post_patiently, "/api/v1/x", {}, seconds=0.5)
    assert lost.value.in_doubt
    assert "at an earlier attempt" in (lost.value.hint or "")


@pytest.mark.parametrize(
    ("status", "code"), [(409, "MAY_HAVE_ARRIVED"), (504, "TIMEOUT"), (503, "STORE_UNAVAILABLE")]
)
async def test_a_refusal_after_which_the_controller_does_not_know_leaves_doubt(kind, status, code):
    steps = [refused(status, code), refused(status, code), refused(409, "NOT_RUNNING")]
    async with ScriptedServer(steps) as server, calling(kind, server.url, retry=ONCE) as caller:
        for ask, doubt in ((change, True), (health, False), (change, False)):
            with pytest.raises(ApiError) as failed:
                await caller.call(ask)
            assert failed.value.in_doubt is doubt
