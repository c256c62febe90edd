"""Conflicts and cycles between modules, and what keeps one from starting."""

from __future__ import annotations

import contextlib
import datetime as dt

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.modules.capability_graph import (
    Provided,
    Rival,
    UnresolvedReason,
    check_graph,
    provisions_on,
    unresolved,
)
from corral.domain.modules.manifest import (
    CapabilitiesPart,
    Manifest,
    ModuleHost,
    Provision,
    Requirement,
    Source,
)
from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.records import PackageRecord
from corral.errors import Code, Rejected

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
BOTH = (ModuleHost.CONTROLLER, ModuleHost.DAEMON)
NODE = (ModuleHost.DAEMON,)


def module(
    id: str,
    provides: str = "",
    requires: str | tuple[Requirement, ...] = "",
    *,
    hosts: tuple[ModuleHost, ...] = (ModuleHost.CONTROLLER,),
) -> Manifest:
    needed = (
        tuple(Requirement(id=each) for each in requires.split()) if isinstance(requires, str) else requires
    )
    offered = tuple(Provision(id=each, version="1.0.0") for each in provides.split())
    return Manifest(
        manifest_version=1,
        id=id,
        version="1.0.0",
        hosts=hosts,
        capabilities=CapabilitiesPart(provides=offered, requires=needed),
    )


def installed(manifest: Manifest, intent: ModuleIntent = ModuleIntent.ACTIVE) -> PackageRecord:
    return PackageRecord(
        id=manifest.id,
        version=manifest.version,
        sha256="0" * 64,
        size=1,
        manifest=manifest,
        intent=intent,
        installed_at=NOW,
        updated_at=NOW,
    )


def test_a_second_provider_is_refused_while_the_first_is_wanted_active() -> None:
    first = installed(module("first", "player.journey"))
    with pytest.raises(Rejected) as refused:
        check_graph(module("second", "player.journey"), [first])
    assert refused.value.code is Code.CAPABILITY_CONFLICT
    assert "player.journey is already provided by module first" in refused.value.message
    assert "pause" in (refused.value.hint or "")


@pytest.mark.parametrize("intent", [ModuleIntent.PAUSED, ModuleIntent.INACTIVE])
def test_a_second_provider_is_let_in_while_the_first_is_not_wanted(intent: ModuleIntent) -> None:
    first = installed(module("first", "player.journey"), intent)
    found = check_graph(module("second", "player.journey"), [first])
    assert found.rivals == (Rival(id="player.journey", provider="first"),)


def test_what_the_host_provides_cannot_be_provided_again() -> None:
    with pytest.raises(Rejected) as refused:
        check_graph(module("mine", "corral.instance.files"), [], built_in={"corral.instance.files"})
    assert refused.value.code is Code.CAPABILITY_CONFLICT


def test_the_version_to_be_replaced_is_not_in_its_own_way() -> None:
    before = installed(module("stats", "stats.api"))
    assert check_graph(module("stats", "stats.api stats.more"), [before]).rivals == ()


def test_a_cycle_is_told_as_the_way_round() -> None:
    others = [installed(module("b", "cap.b", "cap.c")), installed(module("c", "cap.c", "cap.a"))]
    with pytest.raises(Rejected) as refused:
        check_graph(module("a", "cap.a", "cap.b"), others)
    assert refused.value.code is Code.CAPABILITY_CYCLE
    assert "a → b → c → a" in refused.value.message


def test_a_module_that_needs_itself_is_a_cycle() -> None:
    with pytest.raises(Rejected, match="a → a"):
        check_graph(module("a", "cap.a", "cap.a"), [])


def test_an_upgrade_that_closes_a_circle_is_refused() -> None:
    others = [installed(module("a", "cap.a")), installed(module("b", "cap.b", "cap.a"))]
    with pytest.raises(Rejected, match="a → b → a"):
        check_graph(module("a", "cap.a", "cap.b"), others)


def test_an_optional_requirement_closes_no_circle() -> None:
    loose = module("a", "cap.a", (Requirement(id="cap.b", optional=True),))
    found = check_graph(loose, [installed(module("b", "cap.b", "cap.a"))])
    assert found.needed_by == ("b",)
    assert found.depends_on == ()


def test_a_paired_module_may_ask_its_own_part_on_the_controller() -> None:
    asks = (Requirement(id="flags.rules", from_=Source.CONTROLLER),)
    paired = module("flags", "flags.rules", asks, hosts=BOTH)
    check_graph(paired, [])
    assert unresolved(paired, {}) == []
    missing = unresolved(paired, {}, host=ModuleHost.DAEMON)
    assert [each.id for each in missing] == ["flags.rules"]
    offers = {"flags.rules": Provided("1.0.0", "flags")}
    assert unresolved(paired, {}, host=ModuleHost.DAEMON, from_controller=offers) == []


def test_each_part_of_a_paired_module_hands_out_what_the_other_does_not_ask_it_for() -> None:
    asked = (
        Requirement(id="kept", from_=Source.CONTROLLER),
        Requirement(id="seen", from_=Source.NODE),
        Requirement(id="theirs", from_=Source.CONTROLLER),
    )
    paired = module("flags", "kept seen common", asked, hosts=BOTH)
    on = {host: [each.id for each in provisions_on(paired, host)] for host in BOTH}
    assert on == {ModuleHost.CONTROLLER: ["kept", "common"], ModuleHost.DAEMON: ["seen", "common"]}


def test_a_module_on_one_host_hands_out_all_that_it_provides_there_and_nothing_elsewhere() -> None:
    alone = module("flags", "kept", (Requirement(id="kept", from_=Source.CONTROLLER),), hosts=NODE)
    assert [each.id for each in provisions_on(alone, ModuleHost.DAEMON)] == ["kept"]
    assert provisions_on(alone, ModuleHost.CONTROLLER) == ()


def test_modules_on_different_hosts_do_not_meet() -> None:
    on_nodes = installed(module("b", "cap.b", "cap.a", hosts=NODE))
    assert check_graph(module("a", "cap.a", "cap.b"), [on_nodes]).depends_on == ()


def test_a_circle_over_two_hosts_is_found() -> None:
    asks = (Requirement(id="cap.a", from_=Source.CONTROLLER), Requirement(id="cap.c"))
    on_nodes = installed(module("b", "cap.b", asks, hosts=NODE))
    other = module("c", "cap.c", (Requirement(id="cap.b"),), hosts=NODE)
    with pytest.raises(Rejected, match="c → b → c"):
        check_graph(other, [on_nodes])


def test_unresolved_requirements_say_why() -> None:
    needs = (
        Requirement(id="here", version_range="^1"),
        Requirement(id="old", version_range="^2"),
        Requirement(id="gone"),
        Requirement(id="nice", optional=True),
    )
    offers = {"here": Provided("1.4.0", "a"), "old": ("1.9.0", "b")}
    found = unresolved(module("m", requires=needs), offers)
    assert [(each.id, each.why) for each in found] == [
        ("old", UnresolvedReason.VERSION_MISMATCH),
        ("gone", UnresolvedReason.MISSING_PROVIDER),
    ]
    assert found[0].reason == "b provides old 1.9.0, needed is ^2"
    every = unresolved(module("m", requires=needs), offers, with_optional=True)
    assert [each.id for each in every if each.optional] == ["nice"]


def test_what_a_node_provides_is_nothing_to_the_controllers_part() -> None:
    needs = (Requirement(id="node.thing", from_=Source.NODE),)
    both = module("m", requires=needs, hosts=BOTH)
    assert unresolved(both, {}) == []
    assert [each.id for each in unresolved(both, {}, host=ModuleHost.DAEMON)] == ["node.thing"]


@settings(deadline=None)
@given(st.dictionaries(st.integers(0, 7), st.sets(st.integers(0, 7), max_size=4), max_size=8))
def test_what_was_let_in_one_by_one_can_be_started_in_some_order(wanted: dict[int, set[int]]) -> None:
    kept: list[PackageRecord] = []
    for number, needs in wanted.items():
        candidate = module(f"m{number}", f"cap.{number}", " ".join(f"cap.{each}" for each in sorted(needs)))
        with contextlib.suppress(Rejected):
            check_graph(candidate, kept)
            kept.append(installed(candidate))
    offered = {each.id for record in kept for each in record.manifest.capabilities.provides}
    left, provided = (
        list(kept),
        {f"cap.{n}": Provided("1.0.0", "x") for n in range(8) if f"cap.{n}" not in offered},
    )
    while ready := [record for record in left if not unresolved(record.manifest, provided)]:
        left = [record for record in left if record not in ready]
        provided |= {
            each.id: Provided("1.0.0", record.id)
            for record in ready
            for each in record.manifest.capabilities.provides
        }
    assert left == []
