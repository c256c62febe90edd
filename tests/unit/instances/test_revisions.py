"""Revisions of groups: what a start belongs to, and starts that are made by an earlier one."""

from __future__ import annotations

import msgspec
import pytest
from world import NOW, World, spec

from corral.controller.instances.drift_view import DriftView
from corral.controller.instances.group_changes import create_group, delete_group, patch_group, scale_group
from corral.controller.instances.instance_changes import start_instance
from corral.controller.instances.plans import decoded
from corral.controller.instances.retention import forgotten
from corral.controller.instances.revisions import make_revision, revisions_of
from corral.controller.state.collections import GROUPS, INSTANCES, REVISIONS
from corral.domain.groups.drift import Drift
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.groups.plans import Plan
from corral.domain.groups.revisions import REVISION_BYTES, REVISIONS_KEPT, revised_spec, started_spec
from corral.errors import Code, Rejected
from corral.store.port import Delete, Put, encode
from corral.system.controller_config import InstanceRetentionSection


@pytest.fixture
def world() -> World:
    made = World()
    made.do(create_group, spec(max=100, memory_mb=10))
    return made


def start(world: World) -> InstanceRecord:
    return world.do(start_instance, "lobby")


def edit(world: World, **patch) -> None:
    world.do(patch_group, "lobby", patch)


def pin(world: World, number: int) -> None:
    group = msgspec.structs.replace(world.group(), pinned_revision=number)
    world.apply([GROUPS.put("lobby", group, expect=None)])


def plan_of(world: World, record: InstanceRecord) -> Plan:
    return decoded(world.state.plans.require(record.plan_hash).record)


def numbers(world: World) -> list[int]:
    return list(world.state.revisions.numbers("lobby"))


def drift(world: World) -> DriftView:
    return DriftView(world.state)


def test_every_start_belongs_to_a_revision_that_has_its_basis(world: World) -> None:
    first, second = start(world), start(world)
    edit(world, min=1, nodes=["n1"], update={"max_surge": 2})
    third = start(world)
    edit(world, env={"A": "1"})
    fourth = start(world)
    assert [each.revision for each in (first, second, third, fourth)] == [1, 1, 1, 2]
    for each in (first, fourth):
        revision = world.state.revisions.numbered("lobby", each.revision)
        assert revision is not None
        assert (revision.basis, revision.trigger) == (each.basis, "start")
    assert first.basis == third.basis != fourth.basis


def test_a_start_writes_one_document_more_only_when_its_revision_is_new(world: World) -> None:
    def written() -> list[str]:
        ws = world.workspace()
        for _ in range(3):
            start_instance(ws, "lobby")
        steps = ws.steps()
        world.apply(steps)
        return [each.id for each in steps if isinstance(each, Put) and each.collection == REVISIONS.name]

    assert written() == ["lobby/1"]
    assert written() == []
    before = world.state.groups.require("lobby").revision
    world.do(scale_group, "lobby", 8)
    scaled = world.state.groups.require("lobby").revision
    edit(world, env={"A": "1"})
    edited = world.state.groups.require("lobby").revision
    world.keep()
    assert before < scaled < edited == world.state.groups.require("lobby").revision
    assert numbers(world) == [1, 2]


def test_contents_that_a_document_names_make_a_revision(world: World) -> None:
    world.add_template("files", "v1")
    world.add_artifact("paper", "1.21", sha256="a" * 64)
    edit(world, templates=["files"], artifact={"platform": "paper", "version": "1.21"})
    start(world)
    world.add_template("files", "v1", "v2")
    start(world)
    world.add_artifact("paper", "1.21", sha256="b" * 64)
    start(world)
    pins = [each.record.pins for each in world.state.revisions.of_group("lobby")]
    assert [pin.templates[0].hash for pin in pins] == ["v1", "v2", "v2"]
    assert [pin.artifact and pin.artifact.sha256[0] for pin in pins] == ["a", "a", "b"]


def test_a_start_by_a_revision_has_its_contents_and_what_a_run_cannot_take_over(world: World) -> None:
    world.add_template("files", "v1")
    world.add_artifact("paper", "1.21", sha256="a" * 64, config_format="paper")
    edit(
        world,
        templates=["files"],
        artifact={"platform": "paper", "version": "1.21"},
        ports={"a": {"port": 7}},
    )
    former = start(world)
    world.add_template("files", "v1", "v2")
    world.add_artifact("paper", "1.21", sha256="b" * 64, config_format="spigot")
    edit(world, memory_mb=900, max_players=7, nodes=["n1"], priority=7, ports=None)
    pin(world, former.revision)
    world.do(_stop, former)
    started = start(world)
    assert (started.revision, started.basis) == (former.revision, former.basis)
    assert started.plan_hash == former.plan_hash
    assert (started.memory_mb, [port.port for port in started.ports]) == (10, [7])
    assert numbers(world) == [former.revision], "nothing was recorded for the present document"
    pin(world, 0)
    assert plan_of(world, start(world)).templates[0].hash == "v2"


def _stop(ws, record: InstanceRecord) -> None:
    """Free what the record holds."""
    ws.delete_instance(record.id)
    ws.set_reservation(record.node, record.id, None)


def test_the_reconciler_places_by_what_the_revision_needs(world: World) -> None:
    start(world)
    edit(world, memory_mb=600, min=3)
    pin(world, 1)
    assert world.keep() == (2, False)
    assert {each.record.memory_mb for each in world.state.instances} == {10}
    assert {each.record.revision for each in world.state.instances} == {1}
    pin(world, 0)
    edit(world, min=5)
    started, _ = world.keep()
    assert started == 1
    assert world.group().reason.startswith("NO_CAPACITY")


def test_a_revision_whose_template_is_gone_is_refused_with_what_to_do(world: World) -> None:
    world.add_template("files", "v1")
    edit(world, templates=["files"])
    start(world)
    world.add_template("files", "other")
    edit(world, min=3)
    pin(world, 1)
    assert world.keep() == (0, False)
    needs = "revision 1 of group 'lobby' needs version 1 of template 'files', which does not exist any more"
    assert needs in world.group().reason
    with pytest.raises(Rejected) as refused:
        start(world)
    assert refused.value.code is Code.TEMPLATE_NOT_FOUND
    assert "corral deploy lobby" in str(refused.value.hint)


def test_a_revision_that_is_not_kept_is_refused(world: World) -> None:
    pin(world, 9)
    with pytest.raises(Rejected, match="revision 9 of group 'lobby' is not kept"):
        start(world)
    assert drift(world).basis("lobby") == ""
    world.state.quarantine.add(REVISIONS.name, "lobby/9", 1, ValueError("broken"))
    with pytest.raises(Rejected, match="revision 9 of group 'lobby' cannot be read"):
        start(world)


def test_a_revision_of_the_other_kind_is_refused(world: World) -> None:
    start(world)
    world.do(_stop, world.record("lobby-1"))
    edit(world, static=True)
    pin(world, 1)
    with pytest.raises(Rejected, match="revision 1 of group 'lobby' is not static, and the group is"):
        start(world)


def test_drift_is_compared_with_the_pin_and_names_it(world: World) -> None:
    first = start(world)
    edit(world, env={"A": "1"})
    second = start(world)
    assert [drift(world).of(each) for each in (first, second)] == [Drift.OUTDATED, Drift.NONE]
    pin(world, 1)
    assert [drift(world).of(each) for each in (first, second)] == [Drift.NONE, Drift.OUTDATED]
    found = drift(world).of_group("lobby")
    assert (found.pinned, found.pending, found.ids[Drift.OUTDATED]) == (1, True, ["lobby-2"])
    edit(world, env=None)
    assert drift(world).of_group("lobby").pending is False


def test_a_restart_revision_tells_its_instances_from_those_before_and_not_from_those_after(
    world: World,
) -> None:
    before = start(world)
    made = world.do(make_revision, "lobby", by="admin", trigger="restart", restart=True)
    assert (made.number, made.restart) == (2, 2)
    assert drift(world).of(before) is Drift.OUTDATED
    after = start(world)
    assert (after.revision, after.basis) == (2, made.basis)
    assert drift(world).of(after) is Drift.NONE
    edit(world, env={"A": "1"})
    edited = start(world)
    assert (edited.revision, drift(world).of(after)) == (3, Drift.OUTDATED)
    edit(world, env=None)
    assert [drift(world).of(each) for each in (before, after)] == [Drift.OUTDATED, Drift.NONE]
    again = world.do(make_revision, "lobby", by="admin", trigger="restart", restart=True)
    assert again.basis not in {before.basis, after.basis, edited.basis}


def test_a_restart_of_a_pinned_group_is_one_of_the_pinned_revision(world: World) -> None:
    first = start(world)
    edit(world, env={"A": "1"})
    start(world)
    pin(world, 1)
    made = world.do(make_revision, "lobby", by="admin", trigger="restart", restart=True)
    assert (made.number, made.restart, made.spec.env) == (3, 3, {})
    pin(world, 3)
    again = start(world)
    assert (again.revision, again.basis, again.plan_hash) == (3, made.basis, first.plan_hash)
    assert [drift(world).of(each) for each in (first, again)] == [Drift.OUTDATED, Drift.NONE]
    assert drift(world).of_group("lobby").pending, "the document still differs"
    twice = world.do(make_revision, "lobby", by="admin", trigger="restart", restart=True)
    edit(world, env=None)
    pin(world, 0)
    assert start(world).basis == twice.basis, "the document is that of the pin again"


def test_a_revision_is_made_once_for_the_same_document(world: World) -> None:
    made = world.do(make_revision, "lobby", by="admin", trigger="manual")
    again = world.do(make_revision, "lobby", by="other", trigger="document")
    assert (again, start(world).revision) == (made, 1)
    ws = world.workspace()
    edit(world, env={"A": "1"})
    ws = world.workspace()
    second = make_revision(ws, "lobby", by="admin", trigger="manual")
    assert make_revision(ws, "lobby", by="admin", trigger="manual") == second
    assert [each.number for each in revisions_of(ws, "lobby")] == [1, 2]


def test_a_document_that_is_too_large_is_started_without_a_revision_and_not_deployed(world: World) -> None:
    edit(world, properties={"long": "x" * REVISION_BYTES})
    first, second = start(world), start(world)
    assert (first.revision, second.revision, numbers(world)) == (0, 0, [])
    assert first.basis == second.basis != ""
    assert drift(world).of(first) is Drift.NONE
    with pytest.raises(Rejected) as refused:
        world.do(make_revision, "lobby", by="admin", trigger="manual")
    assert refused.value.code is Code.BODY_TOO_LARGE
    assert str(REVISION_BYTES) in str(refused.value.hint)


def test_an_unreadable_revision_stops_no_start(world: World) -> None:
    start(world)
    for number in (2, 3):
        world.state.quarantine.add(REVISIONS.name, f"lobby/{number}", 1, ValueError("broken"))
    edit(world, env={"A": "1"})
    assert [start(world).revision, start(world).revision] == [4, 4]


def test_instances_from_before_revisions_are_not_outdated_by_them(world: World) -> None:
    first = start(world)
    world.apply(
        [
            REVISIONS.delete("lobby/1", expect=None),
            INSTANCES.put(first.id, msgspec.structs.replace(first, revision=0), expect=None),
        ]
    )
    assert drift(world).of(world.record(first.id)) is Drift.NONE
    second = start(world)
    assert second.revision == 1
    assert [drift(world).of(world.record(id)) for id in (first.id, second.id)] == [Drift.NONE] * 2


def swept(world: World) -> list[str]:
    config = InstanceRetentionSection()
    steps = forgotten(world.state, config=config, now=NOW, limit=100)
    world.apply(steps)
    return [each.id for each in steps if isinstance(each, Delete) and each.collection == REVISIONS.name]


def test_the_newest_revisions_are_kept_and_all_that_are_in_use(world: World) -> None:
    for number in range(REVISIONS_KEPT + 6):
        edit(world, env={"A": str(number)})
        made = world.do(make_revision, "lobby", by="admin", trigger="manual")
        if made.number == 2:
            start(world)
        if made.number == 4:
            group = msgspec.structs.replace(world.group(), stable_revision=3, pinned_revision=4)
            world.apply([GROUPS.put("lobby", group, expect=None)])
    assert numbers(world) == [2, 3, 4, *range(7, 17)], "what a new one makes one too many goes with it"
    assert swept(world) == []
    group = msgspec.structs.replace(world.group(), stable_revision=0, pinned_revision=0)
    world.apply([GROUPS.put("lobby", group, expect=None)])
    assert swept(world) == ["lobby/3", "lobby/4"]


def test_revisions_go_with_their_group_and_numbers_begin_anew(world: World) -> None:
    world.do(_stop, start(world))
    edit(world, env={"A": "1"})
    world.do(make_revision, "lobby", by="admin", trigger="manual")
    world.do(delete_group, "lobby", cascade=False)
    assert numbers(world) == []
    world.do(create_group, spec())
    assert start(world).revision == 1


def test_revisions_of_a_group_that_is_gone_are_dropped_and_of_an_unreadable_one_not(world: World) -> None:
    start(world)
    world.apply([GROUPS.delete("lobby", expect=None)])
    world.state.quarantine.add(GROUPS.name, "lobby", 1, ValueError("broken"))
    assert swept(world) == []
    world.state.quarantine.release(GROUPS.name, "lobby")
    assert swept(world) == ["lobby/1"]


def test_long_lists_of_the_present_document_are_not_part_of_a_revision(world: World) -> None:
    """Whom maintenance lets in, and every other long field that a start takes from the present document."""
    names = [f"player-{number:056d}" for number in range(1000)]
    schedule = {"name": "night", "cron": "0 3 * * *", "duration_seconds": 3600}
    edit(
        world,
        maintenance={"bypass": names},
        schedules=[{**schedule, "maintenance": {"enabled": True, "bypass": names}}],
        static_names=[f"{number}-{'x' * 50}" for number in range(1000)],
    )
    made = world.do(make_revision, "lobby", by="admin", trigger="manual")
    assert len(encode(made)) < 8000
    assert made.spec == revised_spec(world.group().spec)
    assert started_spec(world.group().spec, made) == world.group().spec
    edit(world, maintenance={"bypass": names[:10]})
    assert world.do(make_revision, "lobby", by="admin", trigger="manual") == made
