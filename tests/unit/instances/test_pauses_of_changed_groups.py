"""A crash pause and what a start is made of: a change of it ends the pause, and failures count from then."""

from __future__ import annotations

from typing import Any

import pytest
from reconciled_world import ReconciledWorld

from corral.controller.instances import deployments, group_changes
from corral.controller.state.collections import TEMPLATES
from corral.domain.events import EventType
from corral.domain.groups.group import CrashLoopSpec
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.groups.update_spec import UpdateSpec

RULE = CrashLoopSpec(failures=3, within_seconds=300, pause_seconds=600)
PORTS = {"primary": {"range": [30000, 30100]}}


class CrashingWorld(ReconciledWorld):
    """Group `lobby`, one instance with a template."""

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self.add_template("base", "one")
        spec = {"min": 1, "memory_mb": 100, "crash_loop": RULE, "templates": ["base"]}
        self.create("lobby", **{**spec, **fields})
        self.turn()

    def turn(self) -> None:
        self.settle()
        for node in sorted(self.connected):
            self.obey(node)

    def there(self) -> list[InstanceRecord]:
        return [each.record for each in self.state.instances.of_group("lobby") if live(each.record.state)]

    def fail(self, times: int = RULE.failures) -> None:
        for _ in range(times):
            self.crash(self.there()[0], restarted=False)
            self.turn()

    def edit(self, **fields: Any) -> None:
        self.ask(group_changes.patch_group, "lobby", fields)

    def replace_template(self, *hashes: str) -> None:
        self.apply([TEMPLATES.delete("base", expect=self.state.templates.revision("base"))])
        self.add_template("base", *hashes)

    def ends_of_pauses(self) -> list[str]:
        kind = EventType.CRASH_LOOP_ENDED
        return [str(each.data["by"]) for each in self.events if each.type is kind]


@pytest.mark.parametrize(
    "change",
    [
        {"command": ["other"]},
        {"env": {"A": "1"}},
        {"memory_mb": 200},
        {"ports": PORTS},
        {"templates": []},
        {"patches": [{"file": "a.json", "path": "b", "op": "set", "value": 1}]},
        {"disconnect": {"stop_after_seconds": 20, "replace_after_seconds": 600}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_change_of_what_a_start_is_made_of_ends_the_pause_and_failures_count_from_then(change):
    world = CrashingWorld()
    world.fail()
    assert (world.group().paused.pauses, world.there()) == (1, [])
    world.edit(**change)
    group = world.group()
    assert (group.paused, group.failures, group.failed_on, group.pauses) == (None, (), {}, 0)
    assert world.ends_of_pauses() == ["change"]
    [why] = [each.reason for each in world.made() if each.rule == "crash.pause" and each.kind == "restart"]
    assert why == f"the pause was ended: token:ada changed '{next(iter(change))}'"
    world.turn()
    world.fail(RULE.failures - 1)
    assert world.group().paused is None, "the new document has as many tries as the first one had"
    world.fail(1)
    assert world.group().paused.pauses == 1


@pytest.mark.parametrize(
    "change", [{"min": 2}, {"priority": 70}, {"nodes": ["n1"]}], ids=lambda change: next(iter(change))
)
def test_another_change_of_the_document_leaves_the_pause(change):
    world = CrashingWorld()
    world.fail()
    world.edit(**change)
    world.turn()
    assert (world.group().paused.pauses, world.there()) == (1, [])


def test_a_new_version_of_its_template_ends_the_pause():
    world = CrashingWorld()
    world.fail()
    world.replace_template("one", "two")
    world.turn()
    assert (world.group().paused, world.group().failures) == (None, ())
    assert len(world.there()) == 1
    assert world.ends_of_pauses() == ["change"]


def test_runs_of_the_document_before_the_change_fail_without_blame_for_the_present_one():
    world = CrashingWorld(min=3)
    world.edit(command=["other"])
    old = world.there()
    assert len(old) == 3
    for each in old:
        world.crash(each, restarted=False)
        world.turn()
    assert (world.group().paused, world.group().failures) == (None, ())
    world.fail()
    assert world.group().paused is not None


def test_a_pinned_group_stays_paused_whatever_its_document_says():
    world = CrashingWorld()
    world.ask(deployments.deploy_group, "lobby", by="ada")
    world.live_on(60)
    world.edit(env={"A": "1"})
    world.ask(deployments.deploy_group, "lobby", by="ada")
    last = world.state.deployments.of_group("lobby")[0].record.id
    world.ask(deployments.roll_back_deployment, last, by="ada")
    world.live_on(60)
    assert world.group().pinned_revision
    world.fail()
    world.edit(env={"A": "2"})
    assert world.group().paused is not None, "it starts by its revision, not by the document"


@pytest.mark.parametrize("paused", [True, False], ids=["paused", "not-paused"])
def test_a_document_that_is_changed_after_a_failed_deployment_is_started(paused):
    world = CrashingWorld(update=UpdateSpec(auto_rollback=False, max_failures=1))
    world.live_on(20)
    world.edit(command=["wrong"])
    world.ask(deployments.deploy_group, "lobby", by="ada", options={"max_surge": 0, "max_unavailable": 1})
    world.live_on(1)
    while world.group().deployment:
        world.fail(1)
    assert world.group().unsettled
    if paused:
        world.fail(RULE.failures - 1)
    assert (world.group().paused is not None) is paused
    world.edit(command=["right"])
    if not paused:
        world.fail(1)
    world.live_on(20)
    (found,) = world.there()
    revision = world.state.revisions.numbered("lobby", found.revision)
    assert revision.spec.command == ("right",)
    assert (world.group().paused, world.group().unsettled) == (None, "")
