"""`corral user`, `role`, `token` and `whoami` against a real controller."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
from collections.abc import Callable

import pytest

from corral.testing.cluster import LocalCluster

Corral = Callable[..., subprocess.CompletedProcess[str]]


@pytest.mark.system
async def test_an_administrator_gives_a_colleague_some_groups(tmp_path: pathlib.Path, corral: Corral) -> None:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        api = await cluster.controller()

        async def run(*arguments: str, token: str = "") -> subprocess.CompletedProcess[str]:
            pointed = {"CORRAL_URL": api.url, "CORRAL_TOKEN": token or api.admin_token}
            return await asyncio.to_thread(corral, *arguments, **pointed)

        for name in ("lobby-eu", "arena"):
            document = tmp_path / f"{name}.yaml"
            document.write_text(f"name: {name}\ncommand: [serve]\nmin: 0\n")
            assert (await run("group", "create", "-f", str(document))).returncode == 0
        made = await run("user", "create", "ada", "--role", "OPERATOR", "--group", "lobby*")
        assert made.stdout == "user 'ada' is there: OPERATOR (groups lobby*)\n"
        text = (
            await run("token", "create", "laptop", "--role", "OPERATOR", "--owner", "ada", "-o", "json")
        ).stdout
        token = json.loads(text)["token"]

        mine = await run("group", "list", "-o", "name", token=token)
        assert mine.stdout.split() == ["lobby-eu"]
        refused = await run("group", "get", "arena", token=token)
        assert refused.returncode == 1
        assert "group 'arena' does not exist" in refused.stderr
        shown = await run("whoami", token=token)
        assert "User:" in shown.stdout
        assert "May, on groups lobby*:" in shown.stdout

        role = await run(
            "role", "create", "reader", "--permission", "groups.read", "--permission", "self.read"
        )
        assert role.stdout == "role 'reader' grants 2 permissions\n"
        one = await run("role", "update", "reader", "--permission", "self.read")
        assert one.stdout == "role 'reader' grants 1 permission\n"
        await run("role", "update", "reader", "--permission", "groups.read", "--permission", "self.read")
        roles = await run("role", "list", "-o", "name")
        assert {"ADMIN", "OPERATOR", "VIEWER", "reader"} <= set(roles.stdout.split()), roles.stderr
        offered = await asyncio.to_thread(
            corral,
            CORRAL_URL=api.url,
            CORRAL_TOKEN=api.admin_token,
            _CORRAL_COMPLETE="bash_complete",
            COMP_WORDS="corral role get rea",
            COMP_CWORD="3",
        )
        assert offered.stdout == "plain,reader\n", offered.stderr
        assert (await run("user", "update", "ada", "--role", "reader")).stdout == "user 'ada': reader\n"
        assert (await run("group", "list", "-o", "name", token=token)).stdout.split() == ["arena", "lobby-eu"]
        scaled = await run("group", "scale", "arena", "1", token=token)
        assert scaled.returncode == 1
        assert "'groups.manage' is not granted" in scaled.stderr

        locked = await run("user", "lock", "ada", "--reason", "left the team")
        assert locked.stdout.startswith("user 'ada' is locked")
        assert "locked" in (await run("group", "list", token=token)).stderr
        listed = (await run("user", "list")).stdout
        assert "left the team" in listed
        assert "is the last administrator" in (await run("user", "delete", "admin", "--yes")).stderr
        assert (await run("user", "delete", "ada", "--yes")).stdout == "user 'ada' is removed\n"
        places = ("--role", "OPERATOR groups=lobby*,arena nodes=eu-*", "--role", "VIEWER")
        made = await run("user", "create", "bob", *places)
        assert made.stdout == "user 'bob' is there: OPERATOR (groups lobby* arena; nodes eu-*), VIEWER\n", (
            made.stderr
        )
        changed = await run("user", "update", "bob", "--role", "VIEWER", "--role", "OPERATOR nodes=eu-1")
        assert changed.stdout == "user 'bob': VIEWER, OPERATOR (nodes eu-1)\n", changed.stderr
        both = await run("user", "update", "bob", "--role", "VIEWER groups=a", "--group", "b")
        assert (both.returncode, "names places of its own" in both.stderr) == (2, True)
        unknown = await run("user", "update", "bob", "--role", "VIEWER rooms=a")
        assert (unknown.returncode, "'rooms=a' is not understood" in unknown.stderr) == (2, True)
        wrong = await run("user", "create", "eve", "--group", "lobby")
        assert wrong.returncode == 2
        assert "--role" in wrong.stderr
