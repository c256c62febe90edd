"""`--dry-run` of changes of groups, instances and nodes against a real controller and a real node."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from corral.domain.node_states import NodeState
from corral.testing.cluster import LocalCluster

Corral = Callable[..., subprocess.CompletedProcess[str]]

_SLEEPS = [sys.executable, "-c", "import sys; print('up', flush=True); sys.stdin.read()"]
_NOTHING = "(dry run: nothing was written)"


@pytest.mark.system
async def test_every_change_that_may_do_harm_is_shown_before_it_is_done(
    tmp_path: pathlib.Path, corral: Corral
) -> None:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        api = await cluster.controller()
        daemon = await cluster.daemon("n1", api)

        async def run(*arguments: str, code: int = 0) -> str:
            pointed = {"CORRAL_URL": api.url, "CORRAL_TOKEN": api.admin_token}
            done = await asyncio.to_thread(corral, *arguments, **pointed)
            assert done.returncode == code, done.stderr
            return done.stdout if code == 0 else done.stderr

        file, patch = tmp_path / "lobby.json", tmp_path / "patch.json"
        file.write_text(json.dumps({"name": "lobby", "command": _SLEEPS, "min": 1, "min_alive_ms": 0}))
        shown = await run("group", "create", "-f", str(file), "--dry-run")
        assert "    min (at once): null -> 1\n" in shown
        assert "  would follow: start lobby-1 on node 'n1': " in shown
        assert shown.endswith(f"group 'lobby' would be created {_NOTHING}\n")
        assert (await api.call("GET", "/api/v1/groups"))["items"] == []
        assert "--wait and --dry-run" in await run(
            "group", "create", "-f", str(file), "--dry-run", "--wait", code=2
        )
        await run("group", "create", "-f", str(file), "--wait")

        patch.write_text(json.dumps({"env": {"A": "1"}}))
        shown = await run("group", "update", "lobby", "-f", str(patch), "--dry-run")
        assert '    env.A (with a restart): null -> "1"\n' in shown
        assert "  lobby-1 on node 'n1' would go on as it was started (unknown players)\n" in shown
        assert shown.endswith(f"group 'lobby' would be updated {_NOTHING}\n")
        closed = await run("group", "maintenance", "lobby", "on", "--dry-run")
        assert "    maintenance.enabled (at once): false -> true\n" in closed
        killed = await run("instance", "kill", "lobby-1", "--dry-run")
        assert killed.startswith("  would kill lobby-1 on node 'n1' (unknown players)\n")
        assert "  would follow: start lobby-2 on node 'n1': " in killed
        assert killed.endswith(f"instance 'lobby-1' would be killed {_NOTHING}\n")
        deleted = await run("group", "delete", "lobby", "--cascade", "--dry-run")
        assert deleted.startswith("  would stop lobby-1 on node 'n1' at once (unknown players)\n")
        assert deleted.endswith(f"group 'lobby' would be deleted {_NOTHING}\n")
        now = await api.call("GET", "/api/v1/groups/lobby")
        assert (now["env"], now["status"]["deleting"], now["maintenance"]["enabled"]) == ({}, False, False)
        assert (await api.call("GET", "/api/v1/instances/lobby-1"))["wanted"] == "run"

        await daemon.app.stop()
        await api.wait_for_node("n1", NodeState.DISCONNECTED)
        removed = await run("node", "remove", "n1", "--dry-run")
        assert removed.startswith("  would give up lobby-1 on node 'n1' (unknown players)\n")
        assert removed.endswith(f"node 'n1' would be removed {_NOTHING}\n")
        document = json.loads(await run("node", "remove", "n1", "--dry-run", "-o", "json"))
        assert [each["effect"] for each in document["instances"]] == ["given_up"]
        assert len((await api.call("GET", "/api/v1/nodes"))["items"]) == 1
