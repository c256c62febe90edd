"""A start is planned in its own transaction: what it gets, what keeps it from being planned."""

from __future__ import annotations

import json

import msgspec
import pytest
from world import NOW, World, spec

from corral.controller.distribution.artifact_catalog import put_entry, remove_entry, users_of
from corral.controller.instances.group_changes import create_group, patch_group
from corral.controller.instances.instance_changes import restart_instance, start_instance, stop_instance
from corral.controller.instances.order_answers import fold_start_answer
from corral.controller.instances.plans import plans_in_use
from corral.controller.instances.report_values import RunReport
from corral.controller.instances.reports import fold_report
from corral.controller.state.collections import REVISIONS, TEMPLATES
from corral.controller.term.housekeeping import surplus_versions
from corral.domain.groups.group import ArtifactSpec, TemplateChoice, TemplateSelection
from corral.domain.groups.plans import read_plan
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.spec import VariableSpec, VariableType
from corral.errors import Code, Rejected
from corral.wire.v1.instance_pb2 import StartInstanceAck

N1 = NodeId("n1")
MAPS = TemplateChoice(name="maps")


@pytest.fixture
def world() -> World:
    return World()


def plan_of(world, record):
    return read_plan(world.state.plans.require(record.plan_hash).record)


def report(world, id, state):
    said = RunReport(id=id, incarnation=world.record(id).incarnation, state=state)
    world.do(fold_report, N1, said)


def drop_template(world, name):
    world.apply([TEMPLATES.delete(name, expect=None)])


def test_a_start_gets_the_current_version_and_a_restart_the_one_that_is_current_then(world):
    world.add_template("base", "one")
    world.do(create_group, spec(templates=("base",)))
    first = world.do(start_instance, "lobby")
    assert [layer.hash for layer in plan_of(world, first).templates] == ["one"]
    world.add_template("base", "one", "two")
    world.do(stop_instance, "lobby-1", reason="")
    report(world, "lobby-1", InstanceState.STOPPED)
    again = world.do(restart_instance, "lobby-1", reason="")
    assert [layer.hash for layer in plan_of(world, again).templates] == ["two"]
    assert again.plan_hash != first.plan_hash


def test_a_group_that_names_what_is_not_there_is_refused_with_the_field(world):
    with pytest.raises(Rejected) as caught:
        world.do(create_group, spec(templates=("nothing",)))
    assert caught.value.code is Code.TEMPLATE_NOT_FOUND
    assert caught.value.field == "templates/0"
    with pytest.raises(Rejected) as caught:
        world.do(create_group, spec(artifact=ArtifactSpec(platform="paper", version="1")))
    assert caught.value.code is Code.ARTIFACT_NOT_FOUND
    world.do(create_group, spec())
    with pytest.raises(Rejected) as caught:
        world.do(patch_group, "lobby", {"templates": ["nothing"]})
    assert caught.value.field == "templates/0"


def test_a_group_that_broke_can_still_be_scaled_down_but_not_broken_further(world):
    world.add_template("base")
    world.do(create_group, spec(templates=("base",), min=1))
    drop_template(world, "base")
    assert world.do(patch_group, "lobby", {"min": 0}).spec.min == 0
    with pytest.raises(Rejected, match="other"):
        world.do(patch_group, "lobby", {"templates": ["other"]})


def test_what_was_drawn_is_in_the_decision(world):
    world.add_template("maps/red")
    world.add_template("maps/blue")
    selection = TemplateSelection(one_in_groups=(TemplateChoice(name="maps"),))
    world.do(create_group, spec(template_selection=selection))
    ws = world.workspace()
    started = start_instance(ws, "lobby")
    world.apply(ws.steps())
    picked = [layer.name for layer in plan_of(world, started).templates]
    assert picked in (["maps/red"], ["maps/blue"])
    assert json.loads(world.decisions[-1].body)["inputs"]["picks"] == picked[0]


def test_starts_of_one_transaction_share_a_plan_unless_something_is_drawn(world):
    world.add_template("base")
    ws = world.workspace()
    group = spec(templates=("base",))
    assert ws.resolve(group) is ws.resolve(group)
    world.add_template("maps/red")
    world.add_template("maps/blue")
    drawn = spec(template_selection=TemplateSelection(one_in_groups=(TemplateChoice(name="maps"),)))
    ws = world.workspace()
    names = {ws.resolve(drawn).plan.templates[0].name for _ in range(100)}
    assert names == {"maps/red", "maps/blue"}


@pytest.mark.trap("T22")
def test_without_a_plan_the_group_says_why_once_and_nothing_is_started(world):
    world.add_template("base")
    world.do(create_group, spec(templates=("base",), min=2))
    drop_template(world, "base")
    for _ in range(3):
        world.keep()
    assert not list(world.state.instances)
    assert not world.state.reservations.usage("n1").runs
    assert world.group().reason.startswith("TEMPLATE_NOT_FOUND: ")
    assert world.types().count("GROUP_SHORT") == 1
    with pytest.raises(Rejected) as caught:
        world.do(start_instance, "lobby")
    assert caught.value.code is Code.TEMPLATE_NOT_FOUND
    assert "cannot be started" in caught.value.message
    world.add_template("base")
    started, more = world.keep()
    assert (started, more, world.group().reason) == (2, False, "")


def test_a_restart_that_cannot_be_planned_leaves_the_record_ended_and_says_why(world):
    world.add_template("base")
    world.do(create_group, spec(templates=("base",)))
    world.do(start_instance, "lobby")
    report(world, "lobby-1", InstanceState.RUNNING)
    world.do(restart_instance, "lobby-1", reason="")
    drop_template(world, "base")
    report(world, "lobby-1", InstanceState.STOPPED)
    ended = world.record("lobby-1")
    assert ended.state is InstanceState.STOPPED
    assert "could not be restarted" in ended.reason
    with pytest.raises(Rejected) as caught:
        world.do(restart_instance, "lobby-1", reason="")
    assert caught.value.code is Code.TEMPLATE_NOT_FOUND


def test_a_restart_that_cannot_be_planned_now_stops_nothing(world):
    world.add_template("base")
    world.do(create_group, spec(templates=("base",)))
    world.do(start_instance, "lobby")
    report(world, "lobby-1", InstanceState.RUNNING)
    before = world.record("lobby-1")
    drop_template(world, "base")
    with pytest.raises(Rejected) as caught:
        world.do(restart_instance, "lobby-1", reason="")
    assert caught.value.code is Code.TEMPLATE_NOT_FOUND
    assert world.record("lobby-1") == before
    world.add_template("base")
    asked = world.do(restart_instance, "lobby-1", reason="")
    assert asked.wanted is Wanted.STOP
    drop_template(world, "base")
    assert world.do(restart_instance, "lobby-1", reason="") == asked  # it is so already


def test_a_restart_whose_own_variables_no_longer_fit_stops_nothing(world):
    types = {"LEVEL": VariableSpec(type=VariableType.INT, max=5)}
    world.do(create_group, spec(variable_types=types, variables={"LEVEL": "1"}))
    world.do(start_instance, "lobby", variables={"LEVEL": "3"})
    report(world, "lobby-1", InstanceState.RUNNING)
    world.do(patch_group, "lobby", {"variable_types": {"LEVEL": {"type": "int", "max": 2}}})
    with pytest.raises(Rejected) as caught:
        world.do(restart_instance, "lobby-1", reason="")
    assert caught.value.code is Code.VARIABLE_INVALID
    assert world.record("lobby-1").wanted is Wanted.RUN


def test_an_instances_own_variables_are_checked_and_kept_over_restarts(world):
    types = {"LEVEL": VariableSpec(type=VariableType.INT, max=5)}
    world.do(create_group, spec(variable_types=types, variables={"LEVEL": "1"}))
    with pytest.raises(Rejected) as caught:
        world.do(start_instance, "lobby", variables={"LEVEL": "nine"})
    assert caught.value.code is Code.VARIABLE_INVALID
    assert world.do(start_instance, "lobby", variables={"LEVEL": "3"}).variables == {"LEVEL": "3"}
    world.do(stop_instance, "lobby-1", reason="")
    report(world, "lobby-1", InstanceState.STOPPED)
    assert world.do(restart_instance, "lobby-1", reason="").variables == {"LEVEL": "3"}


def test_a_required_variable_that_nobody_gives_stops_the_start_and_not_the_group(world):
    world.do(create_group, spec(variable_types={"MOTD": VariableSpec(required=True)}))
    with pytest.raises(Rejected, match="MOTD"):
        world.do(start_instance, "lobby")
    assert world.do(start_instance, "lobby", variables={"MOTD": "hello"}).id == "lobby-1"


def test_what_would_not_fit_into_an_order_is_refused_before_it_is_stored(world):
    with pytest.raises(Rejected) as caught:
        world.do(create_group, spec(env={f"A{n}": "é" * 60_000 for n in range(8)}))
    assert caught.value.code is Code.BODY_TOO_LARGE
    world.do(create_group, spec())
    with pytest.raises(Rejected) as caught:
        world.do(start_instance, "lobby", variables={"LONG": "x" * 70_000})
    assert (caught.value.code, caught.value.field) == (Code.BODY_TOO_LARGE, "variables")


def test_a_start_whose_template_was_removed_while_it_was_committed_is_planned_anew(world):
    world.add_template("maps/red")
    world.add_template("maps/blue")
    world.do(create_group, spec(template_selection=TemplateSelection(all_in_groups=(MAPS,))))
    first = world.do(start_instance, "lobby")
    drop_template(world, "maps/red")
    refused = StartInstanceAck(
        instance_id="lobby-1",
        incarnation=first.incarnation,
        error_code="TEMPLATE_NOT_FOUND",
        error_message="template 'maps/red' does not exist",
    )
    world.do(fold_start_answer, N1, refused)
    again = world.record("lobby-1")
    assert (again.state, again.attempts) == (InstanceState.SCHEDULED, 1)
    assert [layer.name for layer in plan_of(world, again).templates] == ["maps/blue"]
    refused.incarnation = again.incarnation  # now the fault is the node's: everything that is named is there
    world.do(fold_start_answer, N1, refused)
    assert world.record("lobby-1").state is InstanceState.CRASHED


# what is kept


def test_a_version_that_ran_is_kept_as_long_as_it_runs_or_a_revision_has_it(world):
    world.add_template("base", "one")
    world.do(create_group, spec(templates=("base",)))
    world.do(start_instance, "lobby")
    world.add_template("base", "one", "two", "three")
    steps = list(surplus_versions(world.state, keep=1))
    world.apply(steps)
    record = world.state.templates.require("base").record
    assert [version.hash for version in record.versions] == ["one", "three"]
    report(world, "lobby-1", InstanceState.STOPPED)
    assert list(surplus_versions(world.state, keep=1)) == []
    world.apply([REVISIONS.delete("lobby/1", expect=None)])
    world.apply(list(surplus_versions(world.state, keep=1)))
    record = world.state.templates.require("base").record
    assert [version.hash for version in record.versions] == ["three"]
    assert list(surplus_versions(world.state, keep=1)) == []


# the catalog


def test_a_catalog_entry_is_stored_once_and_refused_with_its_field(world):
    record = world.add_artifact("paper", "1.20")
    later = msgspec.structs.replace(record, updated_at=NOW.replace(year=2027))
    assert put_entry(world.state, later) == ()
    changed = put_entry(world.state, msgspec.structs.replace(later, sha256="b" * 64))
    world.apply(changed)
    assert world.state.catalog.require("paper/1.20").record.sha256 == "b" * 64
    assert world.types()[-1] == "CATALOG_UPDATED"
    for field, value in {
        "platform": "../x",
        "version": "",
        "file": "a/b.jar",
        "sha256": "short",
        "url": "ftp://example.org/x",
    }.items():
        with pytest.raises(Rejected) as caught:
            put_entry(world.state, msgspec.structs.replace(record, **{field: value}))
        assert caught.value.field == field, field


def test_a_catalog_entry_in_use_is_not_removed(world):
    world.add_artifact("paper", "1.20")
    world.do(create_group, spec(artifact=ArtifactSpec(platform="paper", version="1.20")))
    assert users_of(world.state, "paper/1.20") == ["lobby"]
    with pytest.raises(Rejected) as caught:
        remove_entry(world.state, "paper/1.20")
    assert caught.value.code is Code.ARTIFACT_IN_USE
    assert "group 'lobby'" in caught.value.message
    world.do(start_instance, "lobby")
    world.do(patch_group, "lobby", {"artifact": None})
    assert [plan.group for plan in plans_in_use(world.state)] == ["lobby"]
    with pytest.raises(Rejected, match="live instance"):
        remove_entry(world.state, "paper/1.20")
    report(world, "lobby-1", InstanceState.STOPPED)
    world.apply(remove_entry(world.state, "paper/1.20"))
    assert world.state.catalog.find("paper/1.20") is None
