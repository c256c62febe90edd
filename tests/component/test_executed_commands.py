"""Commands of the command line that a controller runs for a caller: what it may do, how it ends, what is left of it."""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import shutil
import signal
import stat
import tempfile
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus

from corral.controller.accounts.delegations import PREFIX, Delegation
from corral.domain.ids import CallerId
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.waiting import eventually

EXECUTE = "/api/v1/commands/execute"


@pytest.fixture
async def controller(tmp_path: pathlib.Path) -> AsyncIterator[LocalController]:
    deep = tmp_path / ("a-long-name" * 12)  # a Unix socket's own path may have 107 bytes
    async with LocalCluster(deep) as cluster:
        yield await cluster.controller()


@pytest.fixture
async def admin(controller: LocalController) -> AsyncIterator[httpx.AsyncClient]:
    async with caller(controller, controller.admin_token) as client:
        yield client


def caller(controller: LocalController, token: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=controller.url, headers={"Authorization": f"Bearer {token}"}, timeout=60, trust_env=False
    )


async def run(client: httpx.AsyncClient, command: str, **more: Any) -> dict[str, Any]:
    answer = await client.post(EXECUTE, json={"command": command, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def children() -> set[int]:
    """Processes of ours that run commands."""
    found = set()
    for each in pathlib.Path("/proc").iterdir():
        try:
            if each.name.isdecimal() and b"corral.cli.executed" in (each / "cmdline").read_bytes():
                parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
                found |= {int(each.name)} if parent == os.getpid() else set()
        except (OSError, ValueError):
            continue
    return found


async def with_role(
    admin: httpx.AsyncClient, controller: LocalController, *permissions: str
) -> tuple[str, str]:
    """A token of the administrator's that has these permissions alone: its id and its text."""
    made = await admin.post(
        "/api/v1/tokens", json={"name": "narrow", "role": "ADMIN", "permissions": list(permissions)}
    )
    assert made.status_code == 201, made.text
    return made.json()["id"], made.json()["token"]


async def test_a_command_prints_what_the_command_line_prints_and_names_its_errors(
    controller: LocalController, admin: httpx.AsyncClient
) -> None:
    listed = await run(admin, "instance list -o json")
    assert json.loads("\n".join(listed["output"])) == {"items": [], "next": None}
    assert (listed["exit_code"], listed["error"], listed["module"]) == (0, None, None)
    assert (await run(admin, "corral key list -o name"))["exit_code"] == 0
    missing = await run(admin, "instance stop none-such")
    assert (missing["exit_code"], missing["error"]["code"]) == (1, "NOT_FOUND")
    assert missing["output"][0] == "error: instance 'none-such' does not exist"
    wrong = await run(admin, "instance lst")
    assert (wrong["exit_code"], wrong["error"]["code"]) == (2, "BAD_REQUEST")
    assert "list" in wrong["error"]["message"]
    refused = await run(admin, "apply -f /etc/passwd")
    assert refused["error"]["code"] == "LOCAL_COMMAND"
    assert (await run(admin, "help node drain"))["output"][0].startswith("Usage: corral node drain")
    unsure = await run(admin, "node revoke web-1")
    assert (unsure["exit_code"], "--yes" in unsure["error"]["hint"]) == (2, True)

    unknown = await admin.post(EXECUTE, json={"command": "instnce list"})
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "NOT_FOUND")
    assert "did you mean 'instance'" in unknown.json()["error"]["hint"]

    data = controller.app.config.data / "commands"
    assert os.listdir(data) == ["api.sock"]
    assert stat.S_IMODE((data / "api.sock").stat().st_mode) == 0o600
    assert stat.S_IMODE(data.stat().st_mode) == 0o700


async def test_what_a_command_did_is_in_the_audit_under_its_caller_and_its_request(
    admin: httpx.AsyncClient,
) -> None:
    line = "role create helpers --permission instances.read"
    answer = await admin.post(EXECUTE, json={"command": line}, headers={"X-Request-Id": "my-request"})
    assert answer.json()["exit_code"] == 0
    found = (await admin.get("/api/v1/audit", params={"limit": 10})).json()["items"]
    entries = [each for each in found if each["request"] == "my-request"]
    assert [(each["action"], each["outcome"]) for each in entries] == [
        ("commands.execute", "ok"),
        ("roles.create", ""),
        ("commands.execute", "begun"),
    ]
    assert {(each["actor"], each["address"]) for each in entries} == {(entries[0]["actor"], "127.0.0.1")}
    assert entries[-1]["after"] == {"command": line}


async def test_the_audit_has_no_values_of_settings_and_variables(
    controller: LocalController, admin: httpx.AsyncClient
) -> None:
    lines = (
        "module config stats --set api_key=hunter2",
        "instance create lobby --var=RCON_PASSWORD='hunter2 hunter2'",
    )
    for line in lines:
        await run(admin, line)
        assert (await admin.post("/api/commands/execute", json={"command": line})).status_code == 200
    found = (await admin.get("/api/v1/audit", params={"action": "commands.execute"})).json()["items"]
    kept = [each["after"]["command"] for each in found if each["outcome"] == "begun"]
    assert sorted(set(kept)) == [
        "instance create lobby --var=RCON_PASSWORD=•••",
        "module config stats --set api_key=•••",
    ]
    assert len(kept) == 4


async def test_a_refusal_by_the_command_itself_has_its_code(admin: httpx.AsyncClient) -> None:
    refused = await run(admin, "event types INSTANCE_COMAND")
    assert (refused["exit_code"], refused["error"]["code"]) == (1, "UNKNOWN_EVENT_TYPE")
    assert not any("Traceback" in line for line in refused["output"])


async def test_a_command_may_do_what_its_caller_may_do_and_no_more(
    controller: LocalController, admin: httpx.AsyncClient
) -> None:
    made = await admin.post("/api/v1/tokens", json={"name": "viewer", "role": "VIEWER"})
    async with caller(controller, made.json()["token"]) as viewer:
        refused = await viewer.post(EXECUTE, json={"command": "instance list"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")
        assert "commands.execute" in refused.json()["error"]["message"]
    _, narrow = await with_role(admin, controller, "commands.execute", "instances.read")
    async with caller(controller, narrow) as reader:
        assert (await run(reader, "instance list"))["exit_code"] == 0
        for line in ("instance stop x", "node list", "token create more --role ADMIN", "audit list"):
            stopped = await run(reader, line)
            assert (stopped["exit_code"], stopped["error"]["code"]) == (1, "FORBIDDEN"), line


@pytest.mark.trap("T25")
async def test_a_revoked_token_ends_its_command(
    controller: LocalController, admin: httpx.AsyncClient
) -> None:
    id, text = await with_role(admin, controller, "commands.execute", "nodes.read")
    async with caller(controller, text) as client:
        waiting = client.post(
            EXECUTE, json={"command": "node info none-such --wait ONLINE", "timeout_seconds": 60}
        )
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(waiting)
            await eventually(children)
            assert (await admin.delete(f"/api/v1/tokens/{id}")).status_code == 204
        answer = asked.result()
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    assert "the token was revoked" in answer.json()["error"]["message"]
    assert not children()


async def test_the_time_and_the_number_of_commands_are_bounded(
    controller: LocalController, admin: httpx.AsyncClient
) -> None:
    late = await run(admin, "node info none-such --wait ONLINE", timeout_seconds=1)
    assert (late["exit_code"], late["error"]["code"]) == (137, "TIMEOUT")
    assert not children()

    async with asyncio.TaskGroup() as group:
        line = {"command": "node info none-such --wait ONLINE", "timeout_seconds": 20}
        two = [group.create_task(admin.post(EXECUTE, json=line)) for _ in range(2)]
        await eventually(lambda: len(children()) == 2)
        third = await admin.post(EXECUTE, json={"command": "instance list"})
        assert (third.status_code, third.json()["error"]["code"]) == (429, "RATE_LIMITED")
        for child in children():
            os.kill(child, signal.SIGKILL)
    for each in two:  # what ended it is not known, and it is told
        assert each.result().json()["error"]["code"] == "INTERNAL"
    assert (await run(admin, "instance list"))["exit_code"] == 0


HOSTILE = {
    "instance list \0": 400,
    "instance list\nup": 400,
    "x " * 2000: 400,
    "instance list 'open": 400,
    "": 400,
    "$(touch /tmp/x)": 404,
    "/bin/sh -c id": 404,
    ";": 404,
}


async def test_hostile_words_are_refused_or_are_only_words(admin: httpx.AsyncClient) -> None:
    for line, status in HOSTILE.items():
        answer = await admin.post(EXECUTE, json={"command": line})
        assert (answer.status_code, "INTERNAL" in answer.text) == (status, False), line
    many = await admin.post(EXECUTE, json={"command": "instance list " + "a " * 10_000})
    assert many.status_code == 400
    for line in (
        "instance command x '$(id)' `id` ; up",
        "instance info ../../etc/passwd",
        "instance info '\x1b[2J'",
        "instance list -o @/etc/passwd",
        "why 'a b'",
    ):
        found = await run(admin, line)
        assert found["exit_code"] in (1, 2), line
        assert "root:" not in str(found)
        assert "\x1b" not in "".join(found["output"])


async def test_an_idempotency_key_runs_a_command_once(admin: httpx.AsyncClient) -> None:
    asked = {
        "json": {"command": "role create once --permission instances.read"},
        "headers": {"Idempotency-Key": "k1"},
    }
    first, second = [await admin.post(EXECUTE, **asked) for _ in range(2)]
    assert first.json()["exit_code"] == 0
    assert second.json() == first.json()
    assert second.headers["idempotency-replayed"] == "true"
    again = await run(admin, "role create once --permission instances.read")
    assert again["error"]["code"] == "CONFLICT" or again["exit_code"] == 1


async def test_the_credential_of_a_command_is_good_at_the_private_socket_while_it_runs_and_nowhere_else(
    controller: LocalController, admin: httpx.AsyncClient
) -> None:
    leading = controller.app.role.http_gate()
    assert leading is not None
    me = (await admin.get("/api/v1/auth/me")).json()["token"]["id"]
    uds = str(controller.app.config.data / "commands" / "api.sock")
    here = pathlib.Path(tempfile.mkdtemp()) / "api.sock"
    here.symlink_to(uds)  # a short path to the same socket
    with leading.delegations.opened(Delegation(caller=CallerId(me), address="10.1.2.3")) as credential:
        headers = {"Authorization": f"Bearer {credential}"}
        transport = httpx.AsyncHTTPTransport(uds=str(here))
        async with httpx.AsyncClient(base_url="http://x", headers=headers, transport=transport) as private:
            assert (await private.get("/api/v1/nodes")).status_code == 200
            async with caller(controller, credential) as public:
                assert (await public.get("/api/v1/nodes")).status_code == 401
    async with httpx.AsyncClient(
        base_url="http://x", headers=headers, transport=httpx.AsyncHTTPTransport(uds=str(here))
    ) as late:
        assert (await late.get("/api/v1/nodes")).status_code == 401
    shutil.rmtree(here.parent)
    assert len(leading.delegations) == 0


async def test_nobody_sees_the_credential_of_a_command(
    controller: LocalController, admin: httpx.AsyncClient
) -> None:
    async with asyncio.TaskGroup() as group:
        line = {"command": "node info none-such --wait ONLINE", "timeout_seconds": 60}
        asked = group.create_task(admin.post(EXECUTE, json=line))
        child = await eventually(children)
        assert not any(
            PREFIX.encode() in read(each, what) for each in child for what in ("environ", "cmdline")
        )
        for each in child:
            os.kill(each, signal.SIGKILL)
    assert asked.result().json()["error"]["code"] == "INTERNAL"


async def test_universe_s_clients_get_lines_and_a_text_as_error(admin: httpx.AsyncClient) -> None:
    done = (await admin.post("/api/commands/execute", json={"command": "cluster nodes -o name"})).json()
    assert done == {"command": "cluster nodes -o name", "output": []}
    failed = (await admin.post("/api/commands/execute", json={"command": "instances info x"})).json()
    assert failed["error"] == "instance 'x' does not exist; 'corral instance list' shows those that exist"
    assert failed["output"][0] == "error: instance 'x' does not exist"
    for line, error in (
        ("nod list", "unknown command 'nod'"),
        ("stop", "'stop' is a word of the interactive"),
    ):
        unknown = await admin.post("/api/commands/execute", json={"command": line})
        assert unknown.status_code == 200
        assert unknown.json()["error"].startswith(error)
        assert unknown.json()["output"][0].startswith(f"error: {error}")
    nowhere = await admin.post("/api/cluster/nodes/none/command", json={"command": "help"})
    assert nowhere.status_code == 404


@pytest.mark.trap("T25")
async def test_universe_s_console_is_a_socket_of_lines_that_ends_with_its_rights(
    controller: LocalController, admin: httpx.AsyncClient
) -> None:
    id, text = await with_role(admin, controller, "commands.execute", "roles.read")
    _, weak = await with_role(admin, controller, "instances.read")
    address = controller.url.replace("http", "ws", 1) + "/api/console"
    with pytest.raises(InvalidStatus):
        await connect(address, additional_headers={"Authorization": f"Bearer {weak}"}, proxy=None)
    async with caller(controller, text) as own:
        ticket = (await own.post("/api/v1/events/tickets")).json()["ticket"]
    async with connect(f"{address}?ticket={ticket}", proxy=None) as socket:
        await socket.send("role list -o name\n")
        assert {await socket.recv() for _ in range(3)} == {"ADMIN", "OPERATOR", "VIEWER"}
        await socket.send("  ")  # nothing, and nothing is answered
        await socket.send("nod list")
        assert await socket.recv() == "error: unknown command 'nod'"
        await socket.send("node list")
        assert (await socket.recv()) == "error: 'nodes.read' is not granted"
        assert str(await socket.recv()).startswith("hint: ")
        assert str(await socket.recv()).startswith("request: ")
        await socket.send("x" * 5000)
        assert "at most 4,095" in str(await socket.recv())
        await socket.send(b"\x00\xff")
        assert str(await socket.recv()).startswith("error: ")
        async with caller(controller, text) as own:
            ticket = (await own.post("/api/v1/events/tickets")).json()["ticket"]
        async with connect(f"{address}?ticket={ticket}", proxy=None) as leaving:
            await leaving.send("exit")
            with pytest.raises(ConnectionClosedOK, match="you left the console"):
                await leaving.recv()
        assert (await admin.delete(f"/api/v1/tokens/{id}")).status_code == 204
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert "revoked" in str(closed.value)


async def test_commands_on_universe_s_console_count_as_ten_requests_each(cluster: LocalCluster) -> None:
    limits = {"http__limits__requests_per_second": 1, "http__limits__burst": 25}
    controller = await cluster.controller(**limits)
    address = controller.url.replace("http", "ws", 1) + "/api/console"
    bearer = {"Authorization": f"Bearer {controller.admin_token}"}
    async with connect(address, additional_headers=bearer, proxy=None) as socket:
        await socket.send("version")
        assert not str(await socket.recv()).startswith("error")
        for _ in range(2):
            await socket.send("version")
        while not (line := str(await socket.recv())).startswith("error"):
            pass
        assert "this request counts as 10" in line


def read(pid: int, what: str) -> bytes:
    return pathlib.Path(f"/proc/{pid}/{what}").read_bytes()
