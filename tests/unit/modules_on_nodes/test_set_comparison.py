"""What is said to a node, given what it shall have and what it has."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from package_records import ONE, TWO, package

from corral.controller.modules_on_nodes.comparison import (
    Control,
    Had,
    Install,
    Wanted,
    compare_one,
    told,
    wanted_on_nodes,
)
from corral.domain.module_manifest import ModuleHost
from corral.domain.module_phases import ModuleIntent

WANTED = Wanted(id="small", version="2.0.0", sha256=TWO, intent=ModuleIntent.ACTIVE, settings_sha256="s")
THERE = Had(
    sha256=TWO,
    version="2.0.0",
    intent=ModuleIntent.ACTIVE,
    paused_reason="",
    settings_sha256="s",
    reload_ms=0,
)
OLD = msgspec.structs.replace(THERE, sha256=ONE, version="1.0.0")
REFUSED = msgspec.structs.replace(OLD, refused_sha256=TWO)
NOTHING: dict[str, int] = {}
AGAIN, RELOAD = {"recover_ms": 7}, {"reload_ms": 7}


@pytest.mark.parametrize(
    ("had", "asked", "order"),
    [
        (None, NOTHING, Install(id="small")),
        (THERE, NOTHING, None),
        (OLD, NOTHING, Install(id="small", previous_version="1.0.0")),
        (REFUSED, NOTHING, None),
        (REFUSED, AGAIN, Install(id="small", previous_version="1.0.0", again=True)),
        (Had(refused_sha256=TWO), NOTHING, None),
        (Had(refused_sha256=TWO), AGAIN, Install(id="small", again=True)),
        (THERE, AGAIN, Control(id="small", recover=True)),
        (THERE, RELOAD, Control(id="small", reload=True)),
        (msgspec.structs.replace(THERE, settings_sha256="t"), NOTHING, Control(id="small")),
        (msgspec.structs.replace(THERE, intent=ModuleIntent.INACTIVE), NOTHING, Control(id="small")),
        (msgspec.structs.replace(THERE, intent=None), NOTHING, Control(id="small")),
        (REFUSED, RELOAD, Control(id="small", reload=True, settings=False)),
        (msgspec.structs.replace(THERE, refused_sha256=TWO), NOTHING, None),
        (msgspec.structs.replace(THERE, refused_sha256=TWO), RELOAD, None),
        (msgspec.structs.replace(THERE, refused_sha256=TWO), AGAIN, Install(id="small", again=True)),
        (msgspec.structs.replace(THERE, refused_sha256=ONE), NOTHING, None),
        (
            msgspec.structs.replace(REFUSED, intent=ModuleIntent.PAUSED),
            NOTHING,
            Control(id="small", settings=False),
        ),
    ],
)
def test_a_module_that_is_wanted_is_spoken_of_only_when_something_differs(had, asked, order):
    assert compare_one(msgspec.structs.replace(WANTED, **asked), had) == order


SIGNED = msgspec.structs.replace(WANTED, signature_sha256="new")


@pytest.mark.parametrize(
    ("had", "asked", "order"),
    [
        ({"signature_sha256": "new"}, NOTHING, None),
        ({"signature_sha256": None}, NOTHING, None),  # a daemon that knows nothing of it
        ({"signature_sha256": "old"}, NOTHING, Install(id="small")),
        ({"signature_sha256": ""}, NOTHING, Install(id="small")),
        ({"signature_sha256": "old"}, RELOAD, Control(id="small", reload=True)),
        ({"refused_sha256": TWO, "refused_signature_sha256": "new"}, NOTHING, None),
        ({"refused_sha256": TWO, "refused_signature_sha256": None}, NOTHING, None),
        ({"refused_sha256": TWO, "refused_signature_sha256": ""}, NOTHING, Install(id="small")),
        (
            {"sha256": ONE, "version": "1.0.0", "refused_sha256": TWO, "refused_signature_sha256": "old"},
            NOTHING,
            Install(id="small", previous_version="1.0.0"),
        ),
    ],
)
def test_another_signature_is_sent_also_of_an_archive_that_was_refused(had, asked, order):
    wanted = msgspec.structs.replace(SIGNED, **asked)
    assert compare_one(wanted, msgspec.structs.replace(THERE, **had)) == order


@pytest.mark.parametrize(
    ("reload_ms", "recover_ms", "order"),
    [
        (7, 7, None),
        (8, 9, None),  # of a package that was installed anew, or a store of an earlier day
        (6, 7, Control(id="small", reload=True)),
        (None, 7, None),  # a daemon that does not count them
        (7, 6, Control(id="small", recover=True)),
        (0, 0, Control(id="small", reload=True, recover=True)),
    ],
)
def test_a_wish_is_told_to_whoever_has_not_carried_it_out(reload_ms, recover_ms, order):
    wanted = msgspec.structs.replace(WANTED, reload_ms=7, recover_ms=7)
    had = msgspec.structs.replace(THERE, reload_ms=reload_ms, recover_ms=recover_ms)
    assert compare_one(wanted, had) == order


def test_a_node_that_gets_the_module_anew_needs_no_reload():
    wanted = msgspec.structs.replace(WANTED, reload_ms=7)
    for had in (None, OLD):
        order = compare_one(wanted, had)
        assert isinstance(order, Install)
        assert compare_one(wanted, told(wanted, had, order)) is None


def test_where_no_signature_is_wanted_whatever_the_node_has_is_fine():
    assert compare_one(WANTED, msgspec.structs.replace(THERE, signature_sha256="old")) is None


def test_a_pause_is_told_again_when_its_reason_is_another_or_not_known():
    paused = msgspec.structs.replace(WANTED, intent=ModuleIntent.PAUSED, paused_reason="later")
    had = msgspec.structs.replace(THERE, intent=ModuleIntent.PAUSED)
    for reason, order in (("later", None), ("now", Control(id="small")), (None, Control(id="small"))):
        assert compare_one(paused, msgspec.structs.replace(had, paused_reason=reason)) == order


def test_only_packages_with_a_part_for_nodes_are_wanted_there():
    assert wanted_on_nodes(package(hosts=(ModuleHost.CONTROLLER,))) is None
    both = wanted_on_nodes(package(hosts=(ModuleHost.CONTROLLER, ModuleHost.DAEMON)))
    assert both is not None
    assert both.id == "small"


_digests = st.sampled_from([ONE, TWO])
_intents = st.sampled_from(list(ModuleIntent))
_wanted = st.builds(
    Wanted,
    id=st.just("small"),
    version=st.just("1"),
    sha256=_digests,
    intent=_intents,
    paused_reason=st.just(""),
    settings_sha256=st.sampled_from(["s", "t"]),
    signature_sha256=st.sampled_from(["", "new"]),
    reload_ms=st.integers(0, 2),
    recover_ms=st.integers(0, 2),
)
_had = st.builds(
    Had,
    sha256=_digests,
    version=st.just("1"),
    intent=_intents,
    paused_reason=st.sampled_from([None, "", "x"]),
    settings_sha256=st.sampled_from(["s", "t"]),
    refused_sha256=st.sampled_from(["", ONE, TWO]),
    signature_sha256=st.sampled_from([None, "", "old", "new"]),
    refused_signature_sha256=st.sampled_from([None, "", "old", "new"]),
    reload_ms=st.none() | st.integers(0, 2),
    recover_ms=st.integers(0, 2),
)


@given(wanted=_wanted, had=st.none() | _had)
def test_once_told_there_is_nothing_more_to_say_but_a_signature(wanted, had):
    order = compare_one(wanted, had)
    if isinstance(order, Control):
        had = told(wanted, had, order)
        order = compare_one(wanted, had)
        assert order is None or isinstance(order, Install)
    if order is not None:
        assert compare_one(wanted, told(wanted, had, order)) is None
