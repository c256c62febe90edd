"""Starts and what modules install into them: as of the modules that are wanted active when it is planned."""

from __future__ import annotations

import json

import msgspec
import pytest
from structlog.testing import capture_logs
from world import NOW, World, spec

from corral.controller.distribution.node_needs import GroupNeeds
from corral.controller.instances.group_changes import create_group, patch_group
from corral.controller.instances.instance_changes import start_instance
from corral.controller.state.collections import MODULE_PACKAGES
from corral.domain.groups.group import ArtifactSpec, ExtensionSpec
from corral.domain.groups.plans import read_plan
from corral.domain.ids import Epoch
from corral.domain.modules.manifest import Extension, ExtensionVariant, Manifest
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import PackageRecord
from corral.errors import Code, Rejected
from corral.store.port import Change, Commit

PAPER = ArtifactSpec(platform="paper", version="1.21")
ASKED = (ExtensionSpec(id="plugin", module="stats"),)


@pytest.fixture
def world() -> World:
    world = World()
    world.add_artifact("paper", "1.21")
    return world


def put_module(world: World, digest: str = "1" * 64, *, activation: str = "always", **fields) -> None:
    variant = ExtensionVariant(
        id="v", platforms=("paper",), file="f.jar", sha256=digest, install_path="plugins/f.jar"
    )
    extension = Extension(id="plugin", activation=activation, variants=(variant,))
    manifest = Manifest(manifest_version=1, id="stats", version="1.0.0", extensions=(extension,))
    record = PackageRecord(
        id="stats",
        version="1.0.0",
        sha256="a" * 64,
        size=1,
        manifest=manifest,
        installed_at=NOW,
        updated_at=NOW,
        **fields,
    )
    world.apply([MODULE_PACKAGES.put("stats", record, expect=None)])


def drop_module(world: World) -> None:
    world.apply([MODULE_PACKAGES.delete("stats", expect=None)])


def digests(world: World) -> list[str]:
    """What the next start of the group gets."""
    record = world.do(start_instance, "lobby")
    plan = read_plan(world.state.plans.require(record.plan_hash).record)
    return [each.artifact.sha256 for each in plan.extensions]


def test_each_start_gets_what_the_module_has_then_and_earlier_plans_stay(world):
    world.do(create_group, spec(artifact=PAPER))
    assert digests(world) == []
    put_module(world)
    assert digests(world) == ["1" * 64]
    put_module(world, "2" * 64)
    assert digests(world) == ["2" * 64]
    drop_module(world)
    assert digests(world) == []
    assert len({world.record(f"lobby-{n}").plan_hash for n in (1, 2, 3)}) == 3


@pytest.mark.parametrize("intent", [ModuleIntent.INACTIVE, ModuleIntent.PAUSED])
def test_a_module_that_is_not_wanted_active_gives_nothing(world, intent):
    put_module(world, intent=intent)
    world.do(create_group, spec(artifact=PAPER))
    assert digests(world) == []
    with pytest.raises(Rejected, match="which is not active"):
        world.do(patch_group, "lobby", {"extensions": [msgspec.to_builtins(ASKED[0])]})


def test_a_module_whose_process_failed_still_gives_its_files(world):
    put_module(world, phase=ModulePhase.FAILED)
    world.do(create_group, spec(artifact=PAPER))
    assert digests(world) == ["1" * 64]


def test_a_group_that_asks_for_what_is_gone_says_why_and_can_still_be_changed(world):
    put_module(world, activation="requested")
    world.do(create_group, spec(artifact=PAPER, extensions=ASKED, min=1))
    drop_module(world)
    world.keep()
    assert world.group().reason.startswith("EXTENSION_NOT_FOUND: extension 'plugin' is of module 'stats'")
    with pytest.raises(Rejected) as caught:
        world.do(start_instance, "lobby")
    assert caught.value.code is Code.EXTENSION_NOT_FOUND
    assert "install it first" in (caught.value.hint or "")
    assert world.do(patch_group, "lobby", {"max_players": 7}).spec.max_players == 7
    world.do(patch_group, "lobby", {"extensions": []})
    started, _ = world.keep()
    assert (started, world.group().reason) == (1, "")


def test_the_decision_tells_what_modules_put_in_and_what_had_nothing_for_the_group(world):
    put_module(world)
    world.do(create_group, spec(artifact=PAPER))
    world.do(create_group, spec("other"))
    world.do(start_instance, "lobby")
    world.do(start_instance, "other")
    told = [json.loads(each.body) for each in world.decisions]
    lobby, other = (next(each for each in told if each["subject"] == id) for id in ("lobby-1", "other-1"))
    assert lobby["inputs"]["extensions"] == "stats/plugin"
    assert "extensions" not in other["inputs"]
    assert other["rejected"][0]["subject"] == "extension/stats/plugin"


def test_what_nodes_fetch_ahead_follows_the_modules(world):
    world.do(create_group, spec(artifact=PAPER))
    needs, node = GroupNeeds(world.state), world.state.nodes.require("n1").record

    def wanted() -> set[str]:
        return {artifact.sha256 for artifact, _ in needs.of_node(node).artifacts}

    before = wanted()
    for digest in ("1" * 64, "2" * 64):
        put_module(world, digest)
        needs.follow(module_commit(world))
        assert wanted() == before | {digest}
    put_module(world, "2" * 64, intent=ModuleIntent.PAUSED)
    needs.follow(module_commit(world))
    assert wanted() == before


def test_what_nodes_fetch_ahead_is_not_worked_out_anew_when_only_a_modules_phase_changes(world):
    put_module(world)
    world.do(create_group, spec(artifact=PAPER, extensions=ASKED))
    needs, node = GroupNeeds(world.state), world.state.nodes.require("n1").record
    with capture_logs() as told:
        for phase in (ModulePhase.ACTIVE, ModulePhase.STOPPING, ModulePhase.INSTALLED):
            put_module(world, intent=ModuleIntent.PAUSED, phase=phase)
            needs.follow(module_commit(world))
            assert not needs.of_node(node).artifacts
    assert [each["event"] for each in told] == ["distribution_group.skipped"]


def module_commit(world: World) -> Commit:
    """As of now, about a module."""
    change = Change(collection=MODULE_PACKAGES.name, id="stats", revision=world.state.number, body=b"")
    return Commit(number=world.state.number, epoch=Epoch(1), at=NOW, changes=(change,), events=(), entries=())
