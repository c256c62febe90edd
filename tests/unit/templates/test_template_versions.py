"""What becomes of a template's record: numbers, retention, rollback, parents, and who is in the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from template_shelf import KEEP, NOW, Shelf, an_intake

from corral.controller.templates import template_changes as changes
from corral.controller.templates.template_usage import groups_using, hashes_in_use
from corral.domain.events import EventType
from corral.domain.groups.group import TemplateChoice, TemplateSelection
from corral.domain.instance_states import InstanceState
from corral.domain.templates import TemplateSettings
from corral.errors import Code, Rejected
from corral.testing.counted_calls import counted_calls


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def parents(*names: str) -> TemplateSettings:
    return TemplateSettings(parents=names)


def test_the_first_upload_makes_a_template_and_the_next_a_version(shelf: Shelf) -> None:
    shelf.upload("base", "one", note="first", actor="ann")
    shelf.upload("base", "two")
    record = shelf.record("base")
    assert (record.current, record.last, shelf.numbers("base")) == (2, 2, [1, 2])
    assert (record.version(1).note, record.version(1).created_by) == ("first", "ann")
    assert [event.type for event in shelf.events] == [EventType.TEMPLATE_CREATED, EventType.TEMPLATE_UPDATED]
    assert shelf.events[1].data["version"] == 2


def test_the_same_tree_and_settings_again_are_no_new_version(shelf: Shelf) -> None:
    shelf.upload("base", "one")
    again = shelf.upload("base", "one", note="another note")
    assert again.unchanged
    assert again.record == shelf.record("base")
    assert not shelf.upload("base", "one", settings=TemplateSettings(description="x")).unchanged
    assert shelf.numbers("base") == [1, 2]


def test_an_upload_keeps_the_settings_unless_it_brings_others(shelf: Shelf) -> None:
    shelf.upload("base", "one", settings=TemplateSettings(description="kept"))
    shelf.upload("base", "two")
    assert shelf.record("base").version().settings.description == "kept"


@pytest.mark.parametrize(
    ("then", "origin"),
    [
        (lambda shelf: shelf.upload("base", "two", saved_from="lobby"), "lobby"),
        (lambda shelf: shelf.apply(changes.rollback(shelf.state, "base", 1, now=NOW).steps), "lobby"),
        (lambda shelf: shelf.upload("base", "two", saved_from="arena"), ""),
        (lambda shelf: shelf.upload("base", "two"), ""),
        (lambda shelf: shelf.upload("base", "one", settings=TemplateSettings(description="x")), ""),
        (lambda shelf: shelf.apply(changes.delete(shelf.state, "base")), "lobby"),
    ],
    ids=["the same group", "rollback", "another group", "upload", "settings", "deletion"],
)
def test_a_template_is_of_one_group_until_something_else_is_put_into_it(
    shelf: Shelf, then: Callable[[Shelf], object], origin: str
) -> None:
    shelf.upload("base", "zero", saved_from="lobby")
    shelf.upload("base", "one", saved_from="lobby")
    then(shelf)
    shelf.upload("base", "three", saved_from="lobby")
    assert shelf.record("base").saved_from == origin


def test_an_edit_that_began_with_another_version_is_refused(shelf: Shelf) -> None:
    shelf.upload("base", "one")
    shelf.upload("base", "two")
    with pytest.raises(Rejected) as refused:
        shelf.upload("base", "three", base=1)
    assert refused.value.code is Code.REVISION_MISMATCH
    with pytest.raises(Rejected):
        shelf.upload("gone", "three", base=1)
    assert not shelf.upload("base", "three", base=2).unchanged


@pytest.mark.parametrize("name", ["", "A", "a/b/c", "../x", "a/", "x" * 64, "a b"])
def test_a_bad_name_is_refused(shelf: Shelf, name: str) -> None:
    with pytest.raises(Rejected) as refused:
        shelf.upload(name)
    assert refused.value.field == "name"


def test_a_note_has_its_limit(shelf: Shelf) -> None:
    with pytest.raises(Rejected) as refused:
        shelf.upload("base", note="x" * 1001)
    assert refused.value.field == "note"


def test_old_versions_go_and_numbers_are_never_used_again(shelf: Shelf) -> None:
    for number in range(8):
        shelf.upload("base", f"v{number}")
    assert shelf.numbers("base") == [4, 5, 6, 7, 8]
    assert shelf.record("base").last == 8


def test_the_version_of_a_live_instance_outlives_retention_and_goes_with_it(shelf: Shelf) -> None:
    shelf.upload("base", "v1")
    shelf.run("lobby", ("base", "hash of v1"))
    for number in range(2, 9):
        shelf.upload("base", f"v{number}")
    assert shelf.numbers("base") == [1, 4, 5, 6, 7, 8]
    assert hashes_in_use(shelf.state, "base") == {"hash of v1"}
    shelf.run("lobby", ("base", "hash of v1"), state=InstanceState.STOPPED)
    shelf.upload("base", "v9")
    assert shelf.numbers("base") == [5, 6, 7, 8, 9]


def test_a_rollback_makes_an_old_version_current_and_the_next_upload_goes_on(shelf: Shelf) -> None:
    shelf.upload("base", "one")
    shelf.upload("base", "two")
    change = changes.rollback(shelf.state, "base", 1, now=NOW, actor="ann")
    shelf.apply(change.steps)
    assert (shelf.record("base").current, shelf.numbers("base")) == (1, [1, 2])
    assert shelf.events[-1].type is EventType.TEMPLATE_ROLLED_BACK
    assert shelf.events[-1].data["from"] == 2
    assert changes.rollback(shelf.state, "base", 1, now=NOW).unchanged
    shelf.upload("base", "three")
    assert (shelf.record("base").current, shelf.numbers("base")) == (3, [1, 2, 3])


def test_a_version_that_is_rolled_back_to_stays_however_old(shelf: Shelf) -> None:
    for number in range(KEEP):
        shelf.upload("base", f"v{number}")
    shelf.apply(changes.rollback(shelf.state, "base", 1, now=NOW).steps)
    change = changes.set_settings(shelf.state, "base", TemplateSettings(description="x"), now=NOW, keep=KEEP)
    assert change.record.version().manifest == an_intake("v0").digest
    assert change.record.current == KEEP + 1


def test_a_rollback_to_a_version_that_is_gone_names_those_there_are(shelf: Shelf) -> None:
    shelf.upload("base", "one")
    with pytest.raises(Rejected) as refused:
        changes.rollback(shelf.state, "base", 7, now=NOW)
    assert (refused.value.code, refused.value.hint) == (Code.NOT_FOUND, "versions kept: 1")


def test_settings_make_a_version_of_the_same_files(shelf: Shelf) -> None:
    shelf.upload("base", "one")
    settings = TemplateSettings(variables={"MOTD": "hi"})
    change = changes.set_settings(shelf.state, "base", settings, now=NOW, keep=KEEP)
    shelf.apply(change.steps)
    old, new = shelf.record("base").versions
    assert (old.hash, old.manifest) == (new.hash, new.manifest)
    assert new.settings == settings
    assert changes.set_settings(shelf.state, "base", settings, now=NOW, keep=KEEP).unchanged


def test_parents_must_exist(shelf: Shelf) -> None:
    with pytest.raises(Rejected) as refused:
        shelf.upload("base", settings=parents("nowhere"))
    assert refused.value.code is Code.TEMPLATE_NOT_FOUND
    assert refused.value.field == "settings/parents/0"


def test_parents_that_would_stand_above_themselves_are_refused(shelf: Shelf) -> None:
    shelf.upload("a", "a")
    shelf.upload("b", "b", settings=parents("a"))
    shelf.upload("c", "c", settings=parents("b"))
    for circle in (("a",), ("b",), ("c",)):
        with pytest.raises(Rejected) as refused:
            changes.set_settings(shelf.state, "a", parents(*circle), now=NOW, keep=KEEP)
        assert refused.value.code is Code.TEMPLATE_CYCLE
    assert shelf.record("a").current == 1


def test_a_rollback_to_parents_that_make_a_circle_by_now_is_refused(shelf: Shelf) -> None:
    shelf.upload("a", "a")
    shelf.upload("b", "b", settings=parents("a"))
    shelf.upload("b", "b", settings=TemplateSettings())
    shelf.upload("a", "a", settings=parents("b"))
    with pytest.raises(Rejected) as refused:
        changes.rollback(shelf.state, "b", 1, now=NOW)
    assert refused.value.code is Code.TEMPLATE_CYCLE


def test_bad_settings_are_refused(shelf: Shelf) -> None:
    with pytest.raises(Rejected):
        shelf.upload("a", settings=TemplateSettings(substitute=("../*",)))


def test_a_template_nobody_uses_is_deleted(shelf: Shelf) -> None:
    shelf.upload("base")
    shelf.apply(changes.delete(shelf.state, "base"))
    assert shelf.state.templates.find("base") is None
    assert shelf.events[-1].type is EventType.TEMPLATE_DELETED
    with pytest.raises(Rejected) as refused:
        changes.delete(shelf.state, "base")
    assert refused.value.code is Code.NOT_FOUND


def _choice(name: str) -> tuple[TemplateChoice, ...]:
    return (TemplateChoice(name=name),)


@pytest.mark.parametrize(
    "spec",
    [
        {"templates": ("maps/one",)},
        {"template_selection": TemplateSelection(all_of=_choice("maps/one"))},
        {"template_selection": TemplateSelection(one_of=_choice("maps/one"))},
        {"template_selection": TemplateSelection(all_in_groups=_choice("maps"))},
        {"template_selection": TemplateSelection(one_in_groups=_choice("maps"))},
    ],
)
def test_a_template_that_a_group_needs_is_not_deleted(shelf: Shelf, spec) -> None:
    shelf.upload("maps/one")
    shelf.add_group("lobby", **spec)
    assert groups_using(shelf.state, "maps/one") == ["lobby"]
    with pytest.raises(Rejected) as refused:
        changes.delete(shelf.state, "maps/one")
    assert refused.value.code is Code.TEMPLATE_IN_USE
    assert "group 'lobby'" in refused.value.message


def test_one_of_several_in_a_template_group_may_go(shelf: Shelf) -> None:
    shelf.upload("maps/one")
    shelf.upload("maps/two")
    shelf.add_group("lobby", template_selection=TemplateSelection(one_in_groups=_choice("maps")))
    shelf.apply(changes.delete(shelf.state, "maps/one"))
    with pytest.raises(Rejected):
        changes.delete(shelf.state, "maps/two")


def test_a_template_that_is_a_parent_or_runs_is_not_deleted(shelf: Shelf) -> None:
    shelf.upload("a", "a")
    shelf.upload("b", "b", settings=parents("a"))
    shelf.run("lobby", ("b", "hash of b"))
    for name, user in (("a", "template 'b'"), ("b", "a live instance of 'lobby'")):
        with pytest.raises(Rejected) as refused:
            changes.delete(shelf.state, name)
        assert refused.value.code is Code.TEMPLATE_IN_USE
        assert user in refused.value.message


def test_a_parent_is_used_by_the_groups_that_name_its_children(shelf: Shelf) -> None:
    shelf.upload("a", "a")
    shelf.upload("maps/b", "b", settings=parents("a"))
    shelf.upload("c", "c", settings=parents("maps/b"))
    shelf.add_group("lobby", templates=("c",))
    shelf.add_group("arena", template_selection=TemplateSelection(all_in_groups=_choice("maps")))
    shelf.add_group("other")
    assert groups_using(shelf.state, "a") == ["arena", "lobby"]
    assert groups_using(shelf.state, "c") == ["lobby"]
    shelf.add_group("lobby")
    assert groups_using(shelf.state, "a") == ["arena"]


def test_asking_who_uses_each_of_many_templates_is_quick(shelf: Shelf) -> None:
    for number in range(300):
        shelf.upload(f"t{number}", str(number))
        shelf.add_group(f"g{number}", templates=(f"t{number}",))
    with counted_calls() as first:
        groups_using(shelf.state, "t0")
    with counted_calls() as rest:
        for number in range(1, 300):
            assert groups_using(shelf.state, f"t{number}") == [f"g{number}"]
    assert rest.calls < 20 * first.calls, "the groups are looked through again for each template"
