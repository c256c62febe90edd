"""`corral group hold` and `release` against a real controller and a real node."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from corral.testing.cluster import LocalCluster

Corral = Callable[..., subprocess.CompletedProcess[str]]

_SLEEPS = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]


@pytest.mark.system
async def test_a_hold_is_shown_before_it_is_done_and_waited_for(
    tmp_path: pathlib.Path, corral: Corral
) -> None:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        api = await cluster.controller()
        await cluster.daemon("n1", api)

        async def run(*arguments: str) -> subprocess.CompletedProcess[str]:
            pointed = {"CORRAL_URL": api.url, "CORRAL_TOKEN": api.admin_token}
            return await asyncio.to_thread(corral, "group", *arguments, **pointed)

        file = tmp_path / "lobby.json"
        stop = [{"signal": "SIGTERM", "wait_seconds": 10}]
        document = {"name": "lobby", "command": _SLEEPS, "min": 1, "min_alive_ms": 0, "stop": stop}
        file.write_text(json.dumps(document))
        assert (await run("create", "-f", str(file), "--wait")).returncode == 0

        shown = await run("hold", "lobby", "--reason", "a new map", "--dry-run")
        assert shown.returncode == 0, shown.stderr
        first, *_, last = shown.stdout.splitlines()
        assert "would follow" not in shown.stdout
        assert first == "  would stop lobby-1 on node 'n1' at once (unknown players)"
        assert last == "group 'lobby' would be held (dry run: nothing was written)"
        assert (await api.call("GET", "/api/v1/groups/lobby"))["status"]["hold"] is None

        # Its players are not known yet, so it is not taken for empty.
        shown = await run("hold", "lobby", "--reason", "a new map", "--when-empty", "--dry-run")
        assert "would stop lobby-1 on node 'n1' when it is empty (unknown players)" in shown.stdout
        order = ("hold", "lobby", "--reason", "a new map", "--yes", "--wait")
        late = await run(*order, "--when-empty", "--timeout", "1s")
        assert late.returncode == 4, late.stderr
        assert "1 instance; each is stopped when it has no players" in late.stderr
        assert "hint: it stays held" in late.stderr

        held = await run(*order)
        assert (held.returncode, "a new map: this hold replaces that one" in held.stderr) == (0, True)
        assert (await api.call("GET", "/api/v1/instances/lobby-1"))["state"] == "STOPPED"

        shown = await run("release", "lobby", "--dry-run")
        assert "  would follow: start lobby" in shown.stdout
        assert shown.stdout.endswith("group 'lobby' would be released (dry run: nothing was written)\n")
        document = json.loads((await run("release", "lobby", "--dry-run", "-o", "json")).stdout)
        assert [each["change"] for each in document["changes"]] == ["released"]
        both = await run("release", "lobby", "--dry-run", "--wait")
        assert (both.returncode, "nothing to wait for" in both.stderr) == (2, True)

        released = await run("release", "lobby", "--wait")
        assert (released.returncode, released.stdout) == (0, "group 'lobby' is released\n"), released.stderr
        status = (await api.call("GET", "/api/v1/groups/lobby"))["status"]
        assert (status["ready"], status["hold"]) == (1, None)
