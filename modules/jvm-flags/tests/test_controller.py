"""Tests of the controller's part. Run them with: corral module test modules/jvm-flags"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from jvm_flags.contract import GroupFlags, JvmFlags
from jvm_flags.controller import KeptFlags

from corral.testing.module_bench import ModuleBench


@pytest.fixture
async def bench() -> AsyncIterator[ModuleBench]:
    async with ModuleBench(KeptFlags, manifest="module.yaml") as bench:
        await bench.start()
        yield bench


async def put(bench: ModuleBench, group: str, *flags: str) -> Any:
    return await bench.request("PUT", f"/flags/{group}", json={"flags": list(flags)})


async def test_flags_are_kept_shown_changed_and_dropped(bench: ModuleBench) -> None:
    assert (await put(bench, "lobby", "-Da=1", "-Db=2", "-Da=1")).json(GroupFlags) == GroupFlags(
        group="lobby", flags=["-Da=1", "-Db=2"]
    )
    await put(bench, "*", "-Dall=1")
    await put(bench, "lobby", "-Dc=3")
    shown = await bench.request("GET", "/flags/lobby")
    assert shown.json(GroupFlags).flags == ["-Dc=3"]
    assert (await bench.request("DELETE", "/flags/lobby")).status == 204
    assert (await bench.request("GET", "/flags")).json(list[GroupFlags]) == [
        GroupFlags(group="*", flags=["-Dall=1"])
    ]


async def test_every_change_is_told_and_what_changed_nothing_is_not(bench: ModuleBench) -> None:
    await put(bench, "lobby", "-Da=1")
    await put(bench, "lobby", "-jar")
    await bench.request("DELETE", "/flags/lobby")
    await bench.request("DELETE", "/flags/lobby")
    assert [(each.type, each.subject, each.data["flags"]) for each in bench.published] == [
        ("FLAGS_CHANGED", "lobby", ["-Da=1"]),
        ("FLAGS_CHANGED", "lobby", []),
    ]


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_group_without_flags_is_not_found(bench: ModuleBench, method: str) -> None:
    answer = await bench.request(method, "/flags/lobby")
    assert answer.status == 404
    assert "lobby" in answer.json(dict[str, Any])["error"]["message"]


@pytest.mark.parametrize(
    ("group", "body", "field"),
    [
        ("lobby", {"flags": ["-cp"]}, "flags"),
        ("lobby", {"flags": [1]}, "flags[0]"),
        ("lobby", {"flag": []}, ""),
        ("Lobby", {"flags": []}, "group"),
    ],
)
async def test_what_cannot_be_used_is_refused_and_kept_nowhere(
    bench: ModuleBench, group: str, body: dict[str, Any], field: str
) -> None:
    answer = await bench.request("PUT", f"/flags/{group}", json=body)
    assert answer.status == 400
    assert (answer.json(dict[str, Any])["error"].get("field") or "") == field
    assert (await bench.request("GET", "/flags")).json(list[GroupFlags]) == []
    assert bench.published == []


async def test_only_those_who_may_change_groups_change_flags(bench: ModuleBench) -> None:
    asked = {(route.method, route.permission) for route in bench.registrations.routes}
    assert asked == {("GET", "groups.read"), ("PUT", "groups.manage"), ("DELETE", "groups.manage")}
    commands = {command.name: command.permission for command in bench.registrations.commands}
    assert commands == {
        "jvm-flags list": "groups.read",
        "jvm-flags set": "groups.manage",
        "jvm-flags clear": "groups.manage",
    }


async def test_commands_do_the_same(bench: ModuleBench) -> None:
    assert await bench.command("jvm-flags list") == ("no group has flags",)
    assert await bench.command("jvm-flags set lobby -Da=1 -Db=2") == ("lobby: -Da=1 -Db=2",)
    assert "what is run" in (await bench.command("jvm-flags set lobby -jar"))[0]
    assert await bench.command("jvm-flags list") == ("lobby: -Da=1 -Db=2",)
    assert await bench.command("jvm-flags clear lobby") == ("lobby: no flags",)
    assert await bench.command("jvm-flags clear lobby") == ("lobby had no flags",)
    assert "no group" in (await bench.command("jvm-flags clear Lobby"))[0]
    assert "is missing" in (await bench.command("jvm-flags set lobby"))[0]


async def test_nodes_ask_for_all_at_once(bench: ModuleBench) -> None:
    await put(bench, "lobby", "-Da=1")
    await put(bench, "*", "-Dall=1")
    told = await bench.capability("corral.jvm.flags", JvmFlags).all()
    assert told == [GroupFlags(group="*", flags=["-Dall=1"]), GroupFlags(group="lobby", flags=["-Da=1"])]
