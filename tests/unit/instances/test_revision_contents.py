"""Contents of revisions: templates, programs and extensions that a later start finds again."""

from __future__ import annotations

import msgspec
import pytest
from world import NOW, World, spec

from corral.controller.instances.group_changes import create_group, patch_group
from corral.controller.instances.instance_changes import start_instance
from corral.controller.instances.plans import decoded
from corral.controller.state.collections import GROUPS, TEMPLATES
from corral.controller.templates.content_gc import roots_of
from corral.controller.templates.template_usage import hashes_in_use, users_of
from corral.domain.groups.disconnect_spec import DisconnectSpec
from corral.domain.groups.extensions import ExtensionPackage
from corral.domain.groups.field_effects import FIELDS_RESTART
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.pinned_contents import check_pinned_modules
from corral.domain.groups.plans import PlanArtifact, PlanExtension
from corral.domain.groups.revisions import RevisionPins, RevisionRecord, started_spec
from corral.errors import Code, Rejected


@pytest.fixture
def world() -> World:
    made = World()
    made.do(create_group, spec(max=1000))
    return made


def edit(world: World, **patch) -> None:
    world.do(patch_group, "lobby", patch)


def pin(world: World, number: int) -> None:
    group = msgspec.structs.replace(world.group(), pinned_revision=number)
    world.apply([GROUPS.put("lobby", group, expect=None)])


def laid(world: World) -> tuple[str, ...]:
    record = world.do(start_instance, "lobby")
    plan = decoded(world.state.plans.require(record.plan_hash).record)
    return tuple(f"{each.name}={each.hash}" for each in plan.templates)


def revision(**fields) -> RevisionRecord:
    facts = {
        "group": "lobby",
        "number": 3,
        "spec": spec(),
        "basis": "b",
        "created_at": NOW,
        "by": "admin",
        "trigger": "manual",
    }
    return RevisionRecord(**facts | fields)


def test_what_was_drawn_among_is_drawn_among_again_and_nothing_else(world: World) -> None:
    for name in ("maps/a", "maps/b"):
        world.add_template(name, f"{name}1")
    world.add_template("low/x")
    choices = [{"name": "maps", "priority": 5}, {"name": "low"}]
    edit(world, template_selection={"one_in_groups": choices})
    laid(world)
    world.add_template("maps/b", "maps/b1", "maps/b2")
    world.add_template("maps/c")
    pin(world, 1)
    drawn = {laid(world) for _ in range(60)}
    assert drawn == {("maps/a=maps/a1",), ("maps/b=maps/b1",)}
    pin(world, 0)
    assert ("maps/c=hash-of-maps/c",) in {laid(world) for _ in range(60)}


def test_parents_of_a_template_are_pinned_with_it(world: World) -> None:
    world.add_template("base", "base1")
    world.add_template("top", "top1", parents=("base",))
    edit(world, templates=["top"])
    assert laid(world) == ("base=base1", "top=top1")
    world.add_template("base", "base1", "base2")
    pin(world, 1)
    assert laid(world) == ("base=base1", "top=top1")


def test_a_version_with_the_same_files_and_other_settings_is_another_one(world: World) -> None:
    world.add_template("files", "same", variables={"A": "1"})
    edit(world, templates=["files"])
    record = world.do(start_instance, "lobby")
    again = world.add_template("files", "same", "same", variables={"A": "2"})
    first = msgspec.structs.replace(
        again.versions[0], settings=msgspec.structs.replace(again.versions[0].settings, variables={"A": "1"})
    )
    kept = msgspec.structs.replace(again, versions=(first, again.versions[1]))
    world.apply([TEMPLATES.put("files", kept, expect=None)])
    assert world.do(start_instance, "lobby").plan_hash != record.plan_hash
    pin(world, 1)
    assert world.do(start_instance, "lobby").plan_hash == record.plan_hash


@pytest.mark.parametrize(
    ("package", "code", "why"),
    [
        (None, Code.EXTENSION_NOT_FOUND, "is not installed"),
        (ExtensionPackage(module="shop", active=False), Code.EXTENSION_NOT_FOUND, "is not active"),
        (
            ExtensionPackage(module="shop", active=True, proven=False),
            Code.SIGNATURE_VERIFICATION_FAILED,
            "signature",
        ),
    ],
)
def test_files_of_a_module_that_was_taken_out_of_use_are_not_brought_back(
    package: ExtensionPackage | None, code: Code, why: str
) -> None:
    file = PlanArtifact(file="plugins/shop.jar", sha256="a" * 64)
    pins = RevisionPins(extensions=(PlanExtension(id="shop", module="shop", artifact=file),))
    packages = [package] if package else []
    with pytest.raises(Rejected) as refused:
        check_pinned_modules(revision(pins=pins), packages)
    assert refused.value.code is code
    assert why in refused.value.message
    check_pinned_modules(revision(pins=pins), [ExtensionPackage(module="shop", active=True)])


def test_template_versions_and_uploads_of_kept_revisions_are_kept(world: World) -> None:
    world.add_template("files", "v1")
    world.add_artifact("paper", "1.21", url="", sha256="a" * 64)
    edit(world, templates=["files"], artifact={"platform": "paper", "version": "1.21"})
    record = world.do(start_instance, "lobby")
    ws = world.workspace()
    ws.delete_instance(record.id)
    world.apply(ws.steps())
    world.add_template("files", "v1", "v2")
    world.add_artifact("paper", "1.21", url="", sha256="b" * 64)
    edit(world, templates=[], artifact=None)
    assert hashes_in_use(world.state, "files") == {"v1"}
    assert {"a" * 64, "b" * 64} <= roots_of(world.state).blobs
    assert users_of(world.state, "files") == [], "it may be deleted: nothing would be started with it"
    pin(world, 1)
    assert users_of(world.state, "files") == ["revision 1 of group 'lobby', which is pinned"]


def test_only_what_a_run_cannot_take_over_is_of_the_revision() -> None:
    then = GroupSpec(name="lobby", command=("old",), min=1, memory_mb=1, nodes=("n1",), env={"A": "1"})
    now = GroupSpec(name="lobby", command=("new",), min=5, memory_mb=9, nodes=("n2",), priority=9)
    found = started_spec(now, revision(spec=then))
    for field in GroupSpec.__struct_fields__:
        source = then if field in FIELDS_RESTART else now
        assert getattr(found, field) == getattr(source, field), field


def test_how_long_a_node_waits_for_a_controller_is_of_the_revision() -> None:
    then = spec(disconnect=DisconnectSpec(replace_after_seconds=600, stop_after_seconds=30))
    now = spec(disconnect=DisconnectSpec(replace_after_seconds=90))
    found = started_spec(now, revision(spec=then)).disconnect
    assert (found.replace_after_seconds, found.stop_after_seconds) == (90, 30)
