"""A node on which something is broken: files are damaged, the disk refuses, somebody talks nonsense."""

from __future__ import annotations

import asyncio
import json
import pathlib
import stat

import pytest
from supervised_node import FIRST, SupervisedNode, start_frame

from corral.daemon.orders.local_socket import LocalSocket
from corral.testing import workloads
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import StopRung

PERMANENT, TRANSIENT = 1, 2
DAMAGED = pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\0", b"[]"], ids=["empty", "cut", "bytes", "list"]
)


def alive(pid: int) -> bool:
    try:
        state = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in ("Z", "X")


@DAMAGED
async def test_a_stop_order_that_cannot_be_read_is_still_an_order_and_harms_no_other(node, content):
    ordered = await node.start("ordered", workloads.reading_commands())
    other = await node.start("other", workloads.silent())
    await node.says("ordered", "up")
    files = node.run("ordered").files
    await node.close()
    (files.directory / "order.json").write_bytes(content)
    await node.open()
    assert node.run("other").pid == other.pid
    run = await node.settled("ordered")
    assert not alive(ordered.pid)
    assert (run.state, run.outcome.rung) == ("STOPPED", "command stop")


@pytest.mark.parametrize("content", [b"", b"[]"], ids=["empty", "list"])
async def test_an_outcome_that_cannot_be_read_starts_nothing_and_is_told_as_unknown(node, content):
    await node.start("one", workloads.crashing(code=1), attempts=1)
    first = await node.settled("one")
    assert first.order.incarnation == FIRST + 1
    await node.start("other", workloads.silent())
    await node.reports()
    await node.close()
    (first.files.directory / "outcome.json").write_bytes(content)
    (first.files.directory / "reported").unlink()
    await node.open()
    run = await node.settled("one")
    assert (run.order.incarnation, run.state, run.outcome.outcome) == (FIRST + 1, "CRASHED", "unknown")
    assert (await node.told("one"))[-1] == "CRASHED:1"
    assert sorted(path.name for path in first.files.directory.parent.iterdir()) == [
        str(FIRST),
        str(FIRST + 1),
    ]
    assert node.run("other").state == "RUNNING"


@pytest.mark.parametrize("content", [None, b"{"], ids=["gone", "cut"])
async def test_a_living_run_whose_intent_cannot_be_read_lives_on_and_keeps_its_id(node, content):
    ack = await node.start("one", workloads.reading_commands(), attempts=5)
    await node.says("one", "up")
    path = node.run("one").files.directory / "intent.json"
    await node.close()
    path.unlink() if content is None else path.write_bytes(content)
    await node.open()
    run = node.run("one")
    assert (run.state, run.pid, run.order.incarnation) == ("RUNNING", ack.pid, FIRST)
    assert "up" in node.console("one")
    second = await node.start("one", workloads.silent(), incarnation=FIRST + 1024)
    assert (second.accepted, second.error_code) == (False, "CONFLICT")
    await node.command("one", "die")
    run = await node.settled("one")
    assert (run.state, run.order.incarnation) == ("CRASHED", FIRST)


async def test_a_kill_is_never_followed_by_a_restart(scratch):
    """Without control groups a kill takes its time, and the end is noticed while it is under way."""
    from supervised_node import with_settings

    node = SupervisedNode(scratch / "node", settings=with_settings(cgroups="none"))
    await node.open()
    try:
        for number in range(8):
            incarnation = FIRST + 1024 * number
            await node.start("one", workloads.forking(3), attempts=5, incarnation=incarnation)
            await node.until("one", "RUNNING", incarnation=incarnation)
            await node.stop("one", force=True)
            run = await node.settled("one")
            assert (run.order.incarnation, run.state, run.outcome.outcome) == (
                incarnation,
                "STOPPED",
                "killed",
            )
    finally:
        await node.clear()


async def test_a_start_whose_directory_cannot_be_made_is_refused_for_now_and_leaves_the_id_free(node):
    obstacle = node.data / "runs" / "one"
    obstacle.parent.mkdir(exist_ok=True)
    obstacle.write_text("no directory")
    ack = await node.start("one", workloads.silent())
    assert (ack.accepted, ack.stage, ack.failure_disposition) == (False, 1, TRANSIENT)
    assert (await node.settled("one")).state == "CRASHED"
    obstacle.unlink()
    again = await node.start("one", workloads.silent(), incarnation=FIRST + 1024)
    assert again.accepted, again.error_message


async def test_an_end_is_told_though_its_working_directory_cannot_be_put_away(node):
    await node.start("one", workloads.reading_commands())
    await node.says("one", "up")
    (node.data / ".discarded").rmdir()
    (node.data / ".discarded").write_text("no directory")
    await node.stop("one")
    await node.settled("one")
    assert (await node.told("one"))[-1] == "STOPPED:0"
    second = await node.start("one", workloads.silent(), incarnation=FIRST + 1024)
    assert (second.accepted, second.failure_disposition) == (False, TRANSIENT), "not in another's files"
    (node.data / ".discarded").unlink()
    (node.data / ".discarded").mkdir()

    async def third() -> bool:
        """As often as it takes: what was refused may be put away yet."""
        return (await node.start("one", workloads.silent(), incarnation=FIRST + 2048)).accepted

    await eventually(third)


async def test_a_rung_that_says_nothing_is_refused(node):
    ack = await node.start("one", workloads.silent(), stop_ladder=[StopRung(wait_ms=100)])
    assert (ack.accepted, ack.error_code, ack.failure_disposition) == (False, "INVALID_FIELD", PERMANENT)


@pytest.mark.system
async def test_a_full_spool_keeps_no_daemon_from_its_end(scratch):
    node = SupervisedNode(scratch / "node", spool_bytes=200)
    await node.open()
    try:
        await node.start("one", workloads.crashing(code=3))
        await node.settled("one")
        await asyncio.wait_for(node.close(), 20)
        node.spool_bytes = 1 << 26
        await node.open()
        assert (await node.told("one"))[-2:] == ["crash:0", "CRASHED:0"]
    finally:
        await node.clear()


async def test_a_command_that_is_not_read_is_answered_with_what_waits_there(node):
    await node.start("one", workloads.not_reading())
    line = "x" * 4000
    answers = [await node.command("one", line, request=f"r{number}") for number in range(40)]
    refused = [ack for ack in answers if not ack.accepted]
    assert {ack.error_code for ack in refused} == {"INPUT_NOT_READ"}
    assert all(ack.unread_bytes >= 4001 * (40 - len(refused)) > 0 for ack in refused)


async def test_only_the_daemon_may_look_into_its_runs(node):
    await node.start("one", workloads.silent(), plugin_token="a-secret")
    directory = node.run("one").files.directory
    for path in (directory, directory.parent, directory.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / "intent.json").stat().st_mode) == 0o600


@pytest.fixture
async def served(node):
    async with LocalSocket(node.data, node.supervision.supervisor):
        yield node


async def ask(node, **request) -> dict:
    reader, writer = await asyncio.open_unix_connection(str(node.data / "daemon.sock"))
    try:
        writer.write(json.dumps(request).encode() + b"\n")
        return json.loads(await asyncio.wait_for(reader.readline(), 30))
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_stop_after_a_local_restart_has_the_last_word(served):
    ladder = [StopRung(command="stop", wait_ms=60_000)]
    await served.start("one", workloads.slow_stopper(1), stop_ladder=ladder)
    await served.says("one", "up")
    assert (await ask(served, verb="restart", id="one"))["ok"]
    stopped = await ask(served, verb="stop", id="one")
    assert (stopped["item"]["state"], stopped["item"]["incarnation"]) == ("STOPPED", FIRST)


async def test_a_local_restart_of_what_waits_for_its_turn_starts_it_now(served):
    from corral.wire.v1.instance_pb2 import RestartPolicy

    policy = RestartPolicy(attempts=5, interval_ms=300_000, delay_ms=3_600_000, max_delay_ms=3_600_000)
    script = "test -e seen && exec sleep 3600; touch seen; exit 3"
    await served.start("one", workloads.shell(script), restart_policy=policy)
    await served.until("one", "SCHEDULED", incarnation=FIRST + 1)
    assert (await ask(served, verb="restart", id="one"))["ok"]
    run = await served.until("one", "RUNNING", incarnation=FIRST + 2)
    assert alive(run.pid)


async def test_a_local_order_has_a_bound_and_every_nonsense_an_end(served):
    for nonsense in (b"[" * 60_000 + b"\n", b"x" * 70_000 + b"\n", b'{"verb": "list"}'):
        reader, writer = await asyncio.open_unix_connection(str(served.data / "daemon.sock"))
        writer.write(nonsense)
        writer.write_eof()
        answer = await asyncio.wait_for(reader.read(), 10)
        assert not answer or "ok" in json.loads(answer)
        writer.close()
    idle = [await asyncio.open_unix_connection(str(served.data / "daemon.sock")) for _ in range(100)]
    ended = [asyncio.create_task(reader.read()) for reader, _ in idle]
    await eventually(lambda: sum(task.done() for task in ended) >= 100 - 64)
    for _, writer in idle:
        writer.close()
    await asyncio.gather(*ended)
    assert (await ask(served, verb="list"))["items"] == []


async def test_nothing_of_a_thousand_ended_runs_stays_in_memory_but_their_end(node):
    node.give(start_frame("one", workloads.megabyte_then_exit()))
    await eventually(lambda: node.supervision.supervisor.instances.find("one") is not None)
    run = await node.settled("one")
    await node.reports()
    assert run.tail == ()
