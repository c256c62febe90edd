"""`corral apply --wait` against a real controller and a real node: it ends when no group is left to wait for."""

from __future__ import annotations

import asyncio
import json
import pathlib
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from stand_in_controller import PROGRAM

from corral.testing.cluster import LocalCluster, LocalController

_SLEEPS = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
_DIES = [sys.executable, "-c", "raise SystemExit(2)"]
_STOP = [{"signal": "SIGTERM", "wait_seconds": 10}]
_BASE = {"name": "base", "abstract": True, "command": _SLEEPS, "min_alive_ms": 0, "stop": _STOP}


@pytest.fixture
async def api(tmp_path: pathlib.Path) -> AsyncIterator[LocalController]:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        api = await cluster.controller()
        await cluster.daemon("n1", api)
        yield api


async def begin(api: LocalController, home: dict[str, str], *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *PROGRAM,
        *arguments,
        env={**home, "CORRAL_URL": api.url, "CORRAL_TOKEN": api.admin_token},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def corral(api: LocalController, home: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    process = await begin(api, home, *arguments)
    out, err = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode or 0, out.decode(), err.decode()


def write(path: pathlib.Path, *documents: dict[str, Any]) -> str:
    path.write_text(json.dumps(list(documents)))
    return str(path)


@pytest.mark.system
async def test_a_wait_ends_when_each_group_has_what_it_wants(
    tmp_path: pathlib.Path, home: dict[str, str], api: LocalController
) -> None:
    file = write(
        tmp_path / "set.json",
        _BASE,
        {"name": "none", "parent": "base"},
        {"name": "shop", "parent": "base", "min": 2},
    )
    code, out, err = await corral(api, home, "apply", "-f", file, "--owner", "me", "--wait")
    assert (code, err) == (0, ""), err
    assert (await api.call("GET", "/api/v1/groups/shop"))["status"]["ready"] == 2
    _, _, _, summary, *table = out.splitlines()
    assert summary == "3 groups, 3 created"
    assert [line.split(maxsplit=3)[:3] for line in table[1:]] == [
        ["base", "ABSTRACT", "0/0"],
        ["none", "MET", "0/0"],
        ["shop", "MET", "2/2"],
    ]

    # A group that somebody holds has nothing to wait for; it is named.
    held = {"reason": "moving house"}
    await api.call("POST", "/api/v1/groups/shop/hold", held)
    code, out, err = await corral(api, home, "apply", "-f", file, "--wait", "--timeout", "10m", "-o", "json")
    assert (code, err) == (0, ""), err
    wait = json.loads(out)["wait"]
    assert wait["met"] is True
    assert [each["state"] for each in wait["groups"]] == ["ABSTRACT", "MET", "HELD"]
    assert wait["groups"][2]["reason"].endswith(": moving house")

    # A group that is deleted by it is waited for until it is gone.
    file = write(tmp_path / "set.json", _BASE)
    code, out, err = await corral(
        api, home, "apply", "-f", file, "--owner", "me", "--prune", "--yes", "--wait", "-o", "json"
    )
    assert code == 0, err
    assert [each["state"] for each in json.loads(out)["wait"]["groups"]] == ["ABSTRACT", "GONE", "GONE"]
    assert [each["name"] for each in (await api.call("GET", "/api/v1/groups"))["items"]] == ["base"]


@pytest.mark.system
async def test_a_wait_says_why_groups_are_short_and_which_have_no_prospect(
    tmp_path: pathlib.Path, home: dict[str, str], api: LocalController
) -> None:
    crash = {"name": "crash", "command": _DIES, "min": 1, "restart": {"attempts": 0}}
    file = write(tmp_path / "set.json", crash, {"name": "fine", "command": _SLEEPS, "min": 1})
    code, out, err = await corral(api, home, "apply", "-f", file, "--wait", "--timeout", "10m", "-o", "json")
    assert code == 1, err
    wait = json.loads(out)["wait"]
    assert wait["met"] is False
    assert [each["state"] for each in wait["groups"]] == ["PAUSED", "MET"]
    assert "error: 1 of 2 groups cannot have what it wants:\n  group 'crash' wants 1 " in err

    # The correction is tried at once, and not failed for the end of what was there before.
    file = write(tmp_path / "set.json", {**crash, "command": _SLEEPS})
    code, out, err = await corral(api, home, "apply", "-f", file, "--wait", "--timeout", "10m")
    assert (code, err) == (0, ""), err

    huge = {"name": "huge", "command": _SLEEPS, "min": 1, "memory_mb": 9_000_000}
    file = write(tmp_path / "set.json", huge, {"name": "fine", "command": _SLEEPS, "min": 1})
    code, out, err = await corral(api, home, "apply", "-f", file, "--wait", "--timeout", "2s")
    assert code == 4, err
    assert "error: 1 of 2 groups did not have what it wants within 2 seconds:\n  group 'huge' wants 1 " in err
    assert "not enough memory" in err
    assert "hint: what was applied stays, and goes on; corral why huge" in err
    assert [line.split()[:3] for line in out.splitlines()[-2:]] == [
        ["fine", "MET", "1/1"],
        ["huge", "SHORT", "0/1"],
    ]

    code, _, err = await corral(api, home, "apply", "-f", file, "--wait", "--dry-run")
    assert (code, "nothing to wait for" in err) == (2, True)


@pytest.mark.system
async def test_an_interrupted_wait_leaves_what_was_applied(
    tmp_path: pathlib.Path, home: dict[str, str], api: LocalController
) -> None:
    huge = {"name": "huge", "command": _SLEEPS, "min": 1, "memory_mb": 9_000_000}
    file = write(tmp_path / "set.json", huge)
    process = await begin(
        api, {**home, "PYTHONUNBUFFERED": "1"}, "apply", "-f", file, "--wait", "--timeout", "10m"
    )
    assert process.stdout is not None
    while await asyncio.wait_for(process.stdout.readline(), 60) != b"1 group, 1 created\n":
        pass
    process.send_signal(signal.SIGINT)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 130, err
    assert b"only the wait ends, what was asked for stays" in err
    assert b"huge" in out
    assert (await api.call("GET", "/api/v1/groups/huge"))["status"]["wanted"] == 1
