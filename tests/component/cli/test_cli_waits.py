"""`--wait` against a real controller and a real node: it never says yes to what died."""

from __future__ import annotations

import asyncio
import json
import pathlib
import sys
from typing import Any

import pytest
from stand_in_controller import PROGRAM

from corral.cli.document_files import read_documents
from corral.cli.failure import WrongUsage
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.ports import free_range

_DIES = [sys.executable, "-c", "print('Usage: bzfs [-p PORT]', flush=True); raise SystemExit(2)"]
_SLEEPS = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]


async def corral(api: LocalController, home: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Exit code and everything that was printed."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM,
        *arguments,
        env={**home, "CORRAL_URL": api.url, "CORRAL_TOKEN": api.admin_token},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, printed.decode()


def document(directory: pathlib.Path, **fields: Any) -> str:
    path = directory / f"{fields['name']}.json"
    path.write_text(json.dumps(fields))
    return str(path)


@pytest.mark.system
@pytest.mark.trap("T86")
async def test_a_wait_ends_at_once_with_the_last_lines_of_what_died(
    tmp_path: pathlib.Path, home: dict[str, str]
) -> None:
    async with LocalCluster(tmp_path) as cluster:
        api = await cluster.controller()
        await cluster.daemon("n1", api)

        # A group that is given up, long before the time is up.
        group = document(tmp_path, name="bz", command=_DIES, min=1, restart={"attempts": 0})
        code, printed = await corral(api, home, "group", "create", "-f", group, "--wait", "--timeout", "10m")
        assert code == 1, printed
        assert "group 'bz' is paused as crash-looping: 3 failures within 300 s" in printed
        assert "its console ends with:\n  | Usage: bzfs [-p PORT]" in printed

        # An instance whose node restarts it, and which has not lived long enough to count.
        group = document(tmp_path, name="one", command=_DIES, restart={"attempts": 1000})
        assert (await corral(api, home, "group", "create", "-f", group))[0] == 0
        code, printed = await corral(api, home, "group", "start", "one", "--wait", "--timeout", "10m")
        assert code == 1, printed
        assert "instance 'one-1' did not become ready" in printed
        assert "  | Usage: bzfs [-p PORT]" in printed

        # One that runs and does not listen: the time runs out, and it is said what was waited for.
        port, _ = free_range(1)
        ports = {"primary": {"port": port, "protocol": "udp"}}
        group = document(tmp_path, name="deaf", command=_SLEEPS, min=1, ports=ports, min_alive_ms=0)
        code, printed = await corral(api, home, "group", "create", "-f", group, "--wait", "--timeout", "4s")
        assert code == 4, printed
        assert f"deaf-1: nothing listens on {port}/udp yet" in printed
        started = await api.call("GET", "/api/v1/instances/deaf-1")
        assert (started["state"], started["ready"]) == ("RUNNING", False)

        why = (await api.call("GET", "/api/v1/groups/deaf/why"))["summary"]
        assert f"'deaf-1' is RUNNING: nothing listens on {port}/udp yet" in why

        # One that does not end: it is said how it can be made to.
        stop = [{"command": "no word that it knows", "wait_seconds": 600}]
        group = document(tmp_path, name="stays", command=_SLEEPS, min=1, stop=stop)
        assert (await corral(api, home, "group", "create", "-f", group, "--wait"))[0] == 0
        code, printed = await corral(api, home, "instance", "stop", "stays-1", "--wait", "--timeout", "1s")
        assert code == 4, printed
        assert "hint: it is still being stopped; to end it now: corral instance kill stays-1" in printed
        assert (await corral(api, home, "instance", "kill", "stays-1", "--yes", "--wait"))[0] == 0

        group = document(tmp_path, name="fine", command=_SLEEPS, min=1)
        code, printed = await corral(api, home, "group", "create", "-f", group, "--wait")
        assert code == 0, printed
        assert printed.splitlines()[-1] == "group 'fine' is created"  # after what was waited for
        assert (await api.call("GET", "/api/v1/instances/fine-1"))["ready"]


async def test_the_api_answers_when_an_instance_is_ready_or_died(tmp_path: pathlib.Path) -> None:
    async with LocalCluster(tmp_path) as cluster:
        api = await cluster.controller()
        await cluster.daemon("n1", api)
        for name, command, alive in (("dies", _DIES, 60_000), ("fine", _SLEEPS, 200)):
            fields = {"name": name, "command": command, "min_alive_ms": alive, "restart": {"attempts": 1000}}
            await api.call("POST", "/api/v1/groups", fields)
        ready = await api.call("POST", "/api/v1/groups/fine/start?wait=ready&timeout=60")
        assert (ready["state"], ready["ready"]) == ("RUNNING", True)
        with pytest.raises(Exception, match=r"START_FAILED|did not become ready"):
            await api.call("POST", "/api/v1/groups/dies/start?wait=ready&timeout=600")


def test_on_is_a_name_in_yaml_too(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "group.yaml"
    path.write_text("name: lobby\nrestart: {on: failure}\nstatic: yes\n")
    assert read_documents(str(path)) == [{"name": "lobby", "restart": {"on": "failure"}, "static": True}]


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("group.yaml", "name: lobby\nstatic: !!bool abc\n", "group.yaml:2: 'abc' is no value"),
        ("group.yaml", "name: lobby\nenv: {A: !!timestamp x}\n", "group.yaml:2: the tag"),
        ("group.json", '{"name": "lobby",\n"cpu": 1e400}', "group.json:2: the number 1e400"),
        ("group", '{"name": "lobby",\n"labels": {"a": "\\ud800"}}', "group:2: '.*ud800' is half"),
        ("group.yaml", "- a\n", "group.yaml holds something that is no document"),
        ("group.yaml", "---\n", "group.yaml is empty"),
    ],
)
def test_a_file_that_has_no_document_is_refused_with_its_place(
    tmp_path: pathlib.Path, name: str, text: str, where: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(WrongUsage, match=where):
        read_documents(str(tmp_path / name))
