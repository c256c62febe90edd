"""Controllers and daemons as processes that are killed, stopped and started again."""

from __future__ import annotations

import asyncio
import resource
import signal
import socket
import sqlite3

import msgspec
import pytest
from estate import Estate

from corral.cli.failure import CommandFailure
from corral.pki.join_token import JoinToken
from corral.testing.api_calls import call
from corral.testing.runtime_nodes import keeper_pid
from corral.testing.waiting import eventually

pytestmark = pytest.mark.system


@pytest.fixture
def estate(processes, scratch):
    return Estate(processes, scratch)


async def test_a_killed_controller_comes_back_with_everything_it_had_acknowledged(estate):
    controller = await estate.controller()
    await estate.daemon("n1")
    acknowledged = []

    async def create(number: int) -> None:
        answer = await estate.call("POST", "/api/v1/tokens", {"name": f"t{number}", "role": "VIEWER"})
        acknowledged.append(answer["id"])

    for number in range(10):
        await create(number)
    rest = [asyncio.create_task(create(number)) for number in range(10, 60)]
    await eventually(lambda: len(acknowledged) > 20)
    await controller.kill()
    await asyncio.gather(*rest, return_exceptions=True)
    await estate.controller()
    tokens = await estate.call("GET", "/api/v1/tokens?limit=500")
    assert set(acknowledged) <= {token["id"] for token in tokens["items"]}
    events = await estate.call("GET", "/api/v1/events?limit=500")
    sequences = [int(event["id"].split("-")[1]) for event in events["items"]]
    assert sequences == list(range(1, len(sequences) + 1))
    await estate.wait_for_node("n1", "ONLINE")


async def test_a_killed_daemon_comes_back_as_itself_and_its_log_is_whole(estate):
    await estate.controller()
    daemon = await estate.daemon("n1")
    first = await estate.wait_for_node("n1", "ONLINE")

    async def has_told(starts):
        logs = await estate.call("GET", "/api/v1/logs?source=node:n1&limit=500")
        return [record["message"] for record in logs["items"]].count("daemon.started") == starts

    await eventually(lambda: has_told(1))
    await daemon.kill()
    await estate.wait_for_node("n1", "DISCONNECTED")
    await estate.daemon("n1")
    second = await estate.wait_for_node("n1", "ONLINE")
    assert second["session"] != first["session"]
    assert second["machine_id"] == first["machine_id"]
    await eventually(lambda: has_told(2))


async def test_a_daemon_and_its_keeper_take_the_descriptors_that_they_may_have(estate, scratch):
    """Each has several for every run."""
    await estate.controller()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        daemon = await estate.daemon("n1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for pid in (daemon.pid, keeper_pid(scratch / "n1")):
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (min(hard, 65_536), hard)


async def test_a_frozen_daemon_is_unreachable_and_thaws_into_a_new_session(estate):
    await estate.controller(CORRAL_LINK_HEARTBEAT_SECONDS="0.3")
    daemon = await estate.daemon("n1")
    daemon.signal(signal.SIGSTOP)
    await estate.wait_for_node("n1", "UNREACHABLE")
    daemon.signal(signal.SIGCONT)
    await estate.wait_for_node("n1", "ONLINE")


async def test_both_roles_end_orderly_on_sigterm(estate):
    controller = await estate.controller()
    daemon = await estate.daemon("n1")
    assert await daemon.terminate() == 0
    await estate.wait_for_node("n1", "DISCONNECTED")
    assert await controller.terminate() == 0
    assert "Traceback" not in controller.stderr + daemon.stderr


async def test_a_second_process_on_the_same_data_is_refused_and_harms_nothing(estate, processes):
    await estate.controller()
    await estate.daemon("n1")
    second = processes.start(
        "controller", "--data", str(estate.data), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"
    )
    assert await second.wait() == 1
    assert "in use by another controller" in second.stderr
    clone = processes.start("daemon", "--data", str(estate.data.parent / "n1"), "--controller", estate.grpc)
    assert await clone.wait() == 1
    assert "in use by another daemon" in clone.stderr
    assert (await estate.wait_for_node("n1", "ONLINE"))["state"] == "ONLINE"


async def test_a_daemon_without_identity_or_with_a_bad_token_says_what_to_do(estate, processes, scratch):
    await estate.controller()
    lost = processes.start("daemon", "--data", str(scratch / "x"), "--controller", estate.grpc)
    assert await lost.wait() == 1
    assert "corral node join-token" in lost.stderr
    cut = (await estate.join_token("x"))[:-20]
    bad = processes.start("daemon", "--data", str(scratch / "x"), "--controller", estate.grpc, "--join", cut)
    assert await bad.wait() == 1
    assert "not a whole join token" in bad.stderr
    assert (await estate.call("GET", "/api/v1/nodes"))["items"] == []


async def test_an_occupied_port_is_named(estate, processes, scratch):
    await estate.controller()
    second = processes.start(
        "controller", "--data", str(scratch / "other"), "--http", estate.http, "--grpc", "127.0.0.1:0"
    )
    assert await second.wait() == 1
    assert estate.http in second.stderr


async def test_a_store_that_a_newer_version_wrote_is_refused(estate, processes):
    controller = await estate.controller()
    await controller.terminate()
    connection = sqlite3.connect(estate.data / "corral.db")
    tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    assert "schema_version" in tables
    connection.execute(
        "update schema_version set version = 999 where version = (select max(version) from schema_version)"
    )
    connection.commit()
    connection.close()
    again = processes.start(
        "controller", "--data", str(estate.data), "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"
    )
    assert await again.wait() == 1
    assert "999" in again.stderr
    assert "newer" in again.stderr


async def test_a_wrong_token_is_refused_and_changes_nothing(estate):
    await estate.controller()
    before = await estate.call("GET", "/api/v1/cluster")
    for token in ("", "corral_tok-x_y", estate.token[:-1] + "x", "💥"):
        with pytest.raises(CommandFailure):
            await call(
                f"http://{estate.http}", token, "POST", "/api/v1/tokens", {"name": "x", "role": "ADMIN"}
            )
    after = await estate.call("GET", "/api/v1/cluster")
    assert before["commit"] == after["commit"]


async def test_a_daemon_that_is_still_joining_ends_when_it_is_told_to(estate, processes, scratch):
    """A controller that accepts connections and never says a word."""
    await estate.controller()
    parsed = JoinToken.parse(await estate.join_token("n1"))
    silent = socket.create_server(("127.0.0.1", 0))
    host, port = silent.getsockname()
    token = msgspec.structs.replace(parsed, bootstrap=(f"{host}:{port}",)).encode()
    daemon = processes.start(
        "daemon", "--data", str(scratch / "n1"), "--controller", estate.grpc, "--join", token
    )
    await eventually(lambda: (scratch / "n1" / "enrolment.json").exists())
    assert await daemon.terminate() == 0
    silent.close()
