"""Tests of sidecar. Run them with: corral module test modules/sidecar"""

from __future__ import annotations

from typing import Any

import pytest
from sidecar.module import Sidecar

from corral.sdk import HostError
from corral.testing.module_bench import ModuleBench

EXPORTER = {"name": "exporter", "command": ["exporter", "--pid", "{pid}"], "env": {"GROUP": "{group}"}}
JOB = {"group": "lobby", "name": "job", "command": ["job", "{instance}"], "restart": False}


def bench(*rules: dict[str, Any]) -> ModuleBench:
    config = {"rules": list(rules), "checkSeconds": 1}
    return ModuleBench(Sidecar, manifest="module.yaml", host="daemon", config=config)


def beside(on_bench: ModuleBench, instance: str) -> dict[str, tuple[str, ...]]:
    """The commands that run beside an instance, by name."""
    return {each.name: each.command for each in on_bench.node.processes(instance) if each.running}


async def test_rules_are_followed_as_soon_as_an_instance_has_a_process() -> None:
    async with bench(EXPORTER, JOB) as on_bench:
        await on_bench.start()
        lobby, arena = await on_bench.node.started("lobby-1"), await on_bench.node.started("arena-1")
        assert beside(on_bench, "lobby-1") == {
            "exporter": ("exporter", "--pid", str(lobby.pid)),
            "job": ("job", "lobby-1"),
        }
        assert beside(on_bench, "arena-1") == {"exporter": ("exporter", "--pid", str(arena.pid))}
        assert on_bench.node.environment_of("arena-1", "exporter") == {"GROUP": "arena"}
        assert (await on_bench.metrics())["sidecar_starts"] == 3


async def test_what_ends_comes_again_with_growing_pauses_and_a_job_does_not() -> None:
    async with bench(EXPORTER, JOB) as on_bench:
        await on_bench.start()
        await on_bench.node.started("lobby-1")
        on_bench.node.end_process("lobby-1", "job")
        starts = []
        for look in range(1, 12):
            if "exporter" in beside(on_bench, "lobby-1"):
                starts.append(look)
                on_bench.node.end_process("lobby-1", "exporter", exit_code=3, output="no such file\n")
            await on_bench.tick(1)
        assert starts == [1, 3, 6, 11]
        assert "job" not in beside(on_bench, "lobby-1")
        lines = [line.message for line in await on_bench.logs()]
        assert (
            "exporter beside lobby-1 was started again: it ended with exit code 3, saying: no such file"
            in lines
        )


async def test_an_adopted_instance_keeps_what_runs_beside_it_and_a_job_that_is_done_stays_done() -> None:
    async with bench(EXPORTER, JOB) as on_bench:
        await on_bench.start()
        first = await on_bench.node.started("lobby-1")
        on_bench.node.end_process("lobby-1", "job")
        before = on_bench.node.processes("lobby-1")
        await on_bench.hook("on_instance_started", handle={**_plain(first), "adopted": True})
        await on_bench.tick(5)
        assert on_bench.node.processes("lobby-1") == before


async def test_new_rules_apply_to_what_runs() -> None:
    gone, changed = {**EXPORTER, "name": "gone"}, {**EXPORTER, "name": "changed", "command": ["old"]}
    async with bench(gone, changed, EXPORTER) as on_bench:
        await on_bench.start()
        await on_bench.node.started("lobby-1")
        kept = [each for each in on_bench.node.processes("lobby-1") if each.name == "exporter"]
        await on_bench.reload({"rules": [{**changed, "command": ["new"]}, EXPORTER, JOB], "checkSeconds": 1})
        await on_bench.tick(1)
        assert beside(on_bench, "lobby-1").keys() == {"changed", "exporter", "job"}
        assert beside(on_bench, "lobby-1")["changed"] == ("new",)
        assert [each for each in on_bench.node.processes("lobby-1") if each.name == "exporter"] == kept


async def test_another_environment_replaces_a_process_once() -> None:
    async with bench(EXPORTER) as on_bench:
        await on_bench.start()
        await on_bench.node.started("lobby-1")
        await on_bench.reload({"rules": [{**EXPORTER, "env": {"NEW": "1"}}], "checkSeconds": 1})
        await on_bench.tick(1)
        (replaced,) = on_bench.node.processes("lobby-1")
        assert on_bench.node.environment_of("lobby-1", "exporter") == {"NEW": "1"}
        await on_bench.tick(5)
        assert on_bench.node.processes("lobby-1") == [replaced]


async def test_rules_that_contradict_each_other_change_nothing() -> None:
    async with bench(EXPORTER) as on_bench:
        await on_bench.start()
        await on_bench.node.started("lobby-1")
        with pytest.raises(HostError, match="are called 'exporter'"):
            await on_bench.reload({"rules": [EXPORTER, {**EXPORTER, "command": ["other"]}]})
        await on_bench.tick(5)
        assert beside(on_bench, "lobby-1")["exporter"][0] == "exporter"


async def test_a_command_that_cannot_be_started_is_tried_again_and_keeps_no_other_from_running() -> None:
    async with bench({**EXPORTER, "name": "broken", "command": ["nowhere"]}, EXPORTER) as on_bench:
        on_bench.node.missing_commands.add("nowhere")
        await on_bench.start()
        await on_bench.node.started("lobby-1")
        assert beside(on_bench, "lobby-1").keys() == {"exporter"}
        on_bench.node.missing_commands.clear()
        await on_bench.tick(3)
        assert beside(on_bench, "lobby-1").keys() == {"broken", "exporter"}
        assert any(
            "broken beside lobby-1 cannot be started" in line.message for line in await on_bench.logs()
        )


async def test_an_instance_that_ended_is_forgotten() -> None:
    async with bench(EXPORTER) as on_bench:
        await on_bench.start()
        await on_bench.node.started("lobby-1")
        await on_bench.node.stopped("lobby-1")
        await on_bench.tick(10)
        assert beside(on_bench, "lobby-1") == {}
        assert (await on_bench.metrics())["sidecar_starts"] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"rules": [{"name": "a"}]},
        {"rules": [{"name": "A", "command": ["x"]}]},
        {"rules": [{"name": "a", "command": []}]},
        {"rules": [{"name": "a", "command": ["x"], "group": "Lobby"}]},
        {"rules": [{"name": "a", "command": ["x"], "env": {"A": 1}}]},
        {"checkSeconds": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="settings do not fit"):
        ModuleBench(Sidecar, manifest="module.yaml", host="daemon", config=wrong)


def _plain(handle: Any) -> dict[str, Any]:
    return {"instance_id": handle.instance_id, "group": handle.group, "pid": handle.pid}
