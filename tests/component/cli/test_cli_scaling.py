"""`corral group scale --for`, `maintenance` and `registry`, against a real controller whose group follows its players."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually

Corral = Callable[..., subprocess.CompletedProcess[str]]
Run = Callable[..., Any]

SERVER = """
import os, pathlib, sys
token = pathlib.Path(sys.argv[1], os.environ["CORRAL_INSTANCE_ID"])
token.with_suffix(".part").write_text(os.environ["CORRAL_INSTANCE_TOKEN"])
token.with_suffix(".part").rename(token)
sys.stdin.read()
"""


def document(tokens: pathlib.Path, **fields: Any) -> dict[str, Any]:
    tokens.mkdir(exist_ok=True)
    return {
        "name": "lobby",
        "command": [sys.executable, "-c", SERVER, str(tokens)],
        "min": 1,
        "max": 4,
        "min_alive_ms": 0,
        "max_players": 20,
        "isolate": "shared",
        "scaling": {"mode": "DYNAMIC"},
        "stop": [{"signal": "SIGTERM", "wait_seconds": 10}],
        **fields,
    }


@pytest.mark.system
async def test_a_group_follows_its_players_and_its_operator(tmp_path: pathlib.Path, corral: Corral) -> None:
    tokens = tmp_path / "tokens"
    async with LocalCluster(tmp_path / "cluster") as cluster:
        api = await cluster.controller()
        await cluster.daemon("n1", api)

        async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            pointed = {"CORRAL_URL": api.url, "CORRAL_TOKEN": api.admin_token}
            return await asyncio.to_thread(corral, *arguments, **pointed)

        async def report(instance: str, players: int) -> None:
            await eventually((tokens / instance).is_file)
            headers = {"Authorization": f"Bearer {(tokens / instance).read_text()}"}
            async with httpx.AsyncClient(base_url=api.url, headers=headers) as workload:
                told = await workload.post("/api/v1/workload/players", json={"count": players})
            assert told.status_code == 204, told.text

        async def ready() -> int:
            return int((await api.call("GET", "/api/v1/groups/lobby"))["status"]["ready"])

        await api.call("POST", "/api/v1/groups", document(tokens))
        await eventually(lambda: _is(ready, 1))
        await report("lobby-1", 17)
        await eventually(lambda: _is(ready, 2))
        shown = (await run("group", "get", "lobby")).stdout
        assert "DYNAMIC; 17 players, 2 needed" in shown
        assert "17, unknown on 1" in shown

        why = (await run("why", "lobby")).stdout
        assert "the players of 'lobby-1' changed → load.up lobby → load.up lobby-2" in why, why
        refused = await run("group", "scale", "lobby", "3")
        assert (refused.returncode, "--for 15m" in refused.stderr) == (1, True), refused.stderr
        dry = (await run("group", "scale", "lobby", "3", "--for", "15m", "--dry-run")).stdout
        assert "  would follow: start lobby-3 on node 'n1': " in dry
        assert dry.endswith("group 'lobby' would be scaled (dry run: nothing was written)\n")
        scaled = await run("group", "scale", "lobby", "3", "--for", "15m", "--wait")
        assert scaled.returncode == 0, scaled.stderr
        assert scaled.stdout.startswith("group 'lobby' shall have at least 3 instances until 20")
        assert "at least 3 until 20" in (await run("group", "get", "lobby")).stdout
        assert "3/3" in (await run("group", "list")).stdout
        too_long = await run("group", "scale", "lobby", "3", "--for", "8d")
        assert (too_long.returncode, "at most 7d" in too_long.stderr) == (2, True)

        why = (await run("why", "lobby")).stdout
        assert "17 players need 2, 3 are there" in why
        await _registry_and_maintenance(run)
        assert (
            "it is closed to players: its number does not follow them" in (await run("why", "lobby")).stdout
        )


async def _registry_and_maintenance(run: Run) -> None:
    ids = ["lobby-1", "lobby-2", "lobby-3"]
    assert (await run("group", "registry", "lobby", "-o", "name")).stdout.split() == ids
    found = json.loads((await run("group", "registry", "lobby", "-o", "json")).stdout)
    assert [each["players"] for each in found["instances"]] == [17, None, None]
    listed = (await run("group", "registry", "lobby")).stdout.splitlines()
    assert listed[0].split() == ["ID", "NODE", "ADDRESS", "PLAYERS"]
    assert listed[1].split()[-1] == "17/20"

    closed = await run("group", "maintenance", "lobby", "on", "--message", "a new map", "--bypass", "ann")
    assert (closed.returncode, closed.stdout) == (0, "group 'lobby' is closed to players\n"), closed.stderr
    listed = (await run("group", "registry", "lobby")).stdout.splitlines()
    assert listed[0] == "Maintenance: closed: a new map (1 player may join)"
    assert "closed: a new map" in (await run("group", "list", "-o", "wide")).stdout
    kept = json.loads((await run("group", "maintenance", "lobby", "on", "-o", "json")).stdout)
    assert kept["maintenance"] == {"enabled": True, "message": "a new map", "bypass": ["ann"]}
    both = await run("group", "maintenance", "lobby", "off", "--bypass", "x", "--no-bypass")
    assert both.returncode == 2


async def _is(value: Callable[[], Any], wanted: int) -> bool:
    return bool(await value() == wanted)


async def test_a_group_of_a_fixed_number_names_the_field_to_edit(
    tmp_path: pathlib.Path, corral: Corral
) -> None:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        api = await cluster.controller()
        fields = {"scaling": {"mode": "STATIC"}, "min": 0}
        await api.call("POST", "/api/v1/groups", document(tmp_path / "tokens", **fields))
        pointed = {"CORRAL_URL": api.url, "CORRAL_TOKEN": api.admin_token}
        for more in ([], ["--for", "15m"]):
            refused = await asyncio.to_thread(corral, "group", "scale", "lobby", "2", *more, **pointed)
            assert (refused.returncode, "change 'min'" in refused.stderr) == (1, True), refused.stderr


@pytest.mark.parametrize("count", ["5", "0"])
async def test_a_number_out_of_bounds_is_refused(tmp_path: pathlib.Path, corral: Corral, count: str) -> None:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        api = await cluster.controller()
        await api.call("POST", "/api/v1/groups", document(tmp_path / "tokens"))
        pointed = {"CORRAL_URL": api.url, "CORRAL_TOKEN": api.admin_token}
        refused = await asyncio.to_thread(corral, "group", "scale", "lobby", count, "--for", "1h", **pointed)
        assert (refused.returncode, "between 1 and 4" in refused.stderr) == (1, True)
