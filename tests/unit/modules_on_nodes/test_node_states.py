"""What nodes say about modules, folded into rows and events."""

from __future__ import annotations

import pytest
from package_records import NOW, ONE, TWO, World, package

from corral.controller.modules_on_nodes.module_states import (
    MOST_ERROR,
    StateFold,
    fold_list,
    forget_node,
    request_recovery,
    runs_with_refusal,
    update_error,
)
from corral.controller.state.collections import MODULE_PACKAGES
from corral.domain.ids import NodeId
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.errors import Code
from corral.wire.v1.module_pb2 import MODULE_INTENT_PAUSED, ModuleSetEntry, ModuleStateUpdate
from corral.wire.v1.node_pb2 import Handshake

N1 = NodeId("n1")


@pytest.fixture
def world():
    world = World()
    world.put(MODULE_PACKAGES, "small", package())
    return world


def update(state="ACTIVE", came_from="WAITING", **fields):
    defaults = {"module_id": "small", "version": "1.0.0", "sha256": ONE, "updated_at_ms": 1000}
    return ModuleStateUpdate(**{**defaults, "state": state, "from_state": came_from, **fields})


def entry(state="ACTIVE", **fields):
    defaults = {"module_id": "small", "version": "1.0.0", "sha256": ONE, "updated_at_ms": 1000}
    return ModuleSetEntry(**{**defaults, "state": state, **fields})


def fold(world, *updates):
    folding = StateFold(world.state, N1, now=NOW)
    events = [event for update in updates for event in folding.take(update)]
    return world.take(folding.writes() + events)


def listed(world, *entries):
    return world.take(fold_list(world.state, N1, Handshake(modules=entries), now=NOW))


def row(world, module="small"):
    stored = world.state.module_node_states.find(f"n1/{module}")
    return stored.record if stored else None


def test_several_updates_are_one_row_and_an_event_each_in_order(world):
    steps = [("INSTALLED", ""), ("WAITING", "INSTALLED"), ("ACTIVE", "WAITING")]
    events = fold(world, *(update(state, came_from) for state, came_from in steps))
    assert [(event["from"], event["to"]) for event in events] == [
        (None, "INSTALLED"),
        ("INSTALLED", "WAITING"),
        ("WAITING", "ACTIVE"),
    ]
    assert {event["node"] for event in events} == {"n1"}
    assert {"id", "version", "from", "to", "intent", "reason", "at"} <= events[0].keys()
    assert (row(world).phase, row(world).version, row(world).sha256) == (ModulePhase.ACTIVE, "1.0.0", ONE)
    assert [each.record.module for each in world.state.module_node_states.of_node("n1")] == ["small"]
    assert [each.record.node for each in world.state.module_node_states.of_module("small")] == ["n1"]


def test_a_module_that_is_unloaded_has_no_row_and_may_come_again(world):
    fold(world, update())
    events = fold(world, update("UNLOADED", "INSTALLED"))
    assert [event["to"] for event in events] == ["UNLOADED"]
    assert row(world) is None
    assert world.state.module_node_states.of_node("n1") == []
    fold(world, update("UNLOADED"), update("INSTALLED", ""))
    assert row(world).phase is ModulePhase.INSTALLED


def test_a_node_that_tells_neither_archive_nor_intent_has_what_it_was_sent(world):
    fold(world, ModuleStateUpdate(module_id="small", state="ACTIVE"))
    assert (row(world).sha256, row(world).version, row(world).intent) == (ONE, "1.0.0", ModuleIntent.ACTIVE)
    assert row(world).updated_at == NOW


def test_what_is_kept_is_bounded_and_makes_sense(world):
    odd = update(
        last_error="e" * 100_000, reason="r" * 9_000, version="v" * 999, sha256="no", updated_at_ms=2**62
    )
    fold(world, odd)
    kept = row(world)
    assert (len(kept.error), len(kept.reason), len(kept.version)) == (MOST_ERROR, 500, 100)
    assert (kept.sha256, kept.updated_at) == ("", NOW)


@pytest.mark.parametrize(
    ("bad", "code", "field"),
    [
        ({"module_id": "../etc"}, Code.INVALID_FIELD, "module_id"),
        ({"module_id": "stranger"}, Code.NOT_FOUND, "module_id"),
        ({"state": ""}, Code.MISSING_FIELD, "state"),
        ({"state": "SLEEPY"}, Code.INVALID_FIELD, "state"),
    ],
)
def test_nonsense_changes_nothing_and_is_named(world, bad, code, field):
    told = update(**bad)
    refused = update_error(world.state, N1, told)
    assert refused is not None
    assert (refused.code, refused.field) == (code, field)
    assert fold(world, told) == []
    assert row(world) is None


def test_an_uninstalled_package_keeps_its_row_until_the_node_tells(world):
    fold(world, update())
    world.put(MODULE_PACKAGES, "small", None)
    assert fold(world, update("STOPPING", "ACTIVE"))
    assert row(world).phase is ModulePhase.STOPPING
    fold(world, update("UNLOADED", "INSTALLED"))
    assert row(world) is None
    assert update_error(world.state, N1, update("UNLOADED")) is None


def test_the_list_of_a_handshake_puts_rows_right(world):
    world.put(MODULE_PACKAGES, "other", package("other"))
    fold(world, update(), update(module_id="other"))
    events = listed(world, entry("FAILED", reason="hook_overrun", last_error="late"))
    assert "late" not in str(events), "more people may read events than logs"
    assert [(event["id"], event["from"], event["to"]) for event in events] == [
        ("small", "ACTIVE", "FAILED"),
        ("other", "ACTIVE", "UNLOADED"),
    ]
    assert (row(world).phase, row(world).error) == (ModulePhase.FAILED, "late")
    assert row(world, "other") is None
    assert listed(world, entry("FAILED", reason="hook_overrun", last_error="late")) == []


def test_a_list_invents_no_modules_and_says_nothing_by_nonsense(world):
    assert listed(world, entry(module_id="stranger"), entry("SLEEPY")) == []
    assert len(world.state.module_node_states) == 0


def test_with_a_node_go_its_rows(world):
    fold(world, update())
    world.take(forget_node(world.state, "n1"))
    assert row(world) is None


def asked(world, *nodes):
    world.take(request_recovery(world.state, "small", set(nodes), request="", now=NOW))


def test_a_recovery_is_owed_until_the_node_says_that_it_was_carried_out(world):
    refused = {"sha256": TWO, "refused_sha256": ONE}
    fold(world, update("ACTIVE", **refused, reload_ms=3, recover_ms=0))
    asked(world, NodeId("elsewhere"))
    assert not row(world).pending_recover_ms
    asked(world, N1)
    wish = row(world).pending_recover_ms
    assert wish == NOW.timestamp() * 1000
    asked(world, N1)
    assert row(world).pending_recover_ms == wish + 1, "a later wish is later, whatever the clock says"
    listed(world, entry("ACTIVE", **refused, recover_ms=0))
    fold(world, update("INSTALLED", "FAILED", recover_ms=wish))
    assert row(world).pending_recover_ms == wish + 1
    fold(world, update("INSTALLED", "FAILED", recover_ms=wish + 1, reload_ms=4))
    assert (row(world).pending_recover_ms, row(world).reload_done_ms) == (0, 4)


def test_that_a_wish_was_carried_out_and_nothing_else_is_no_event(world):
    assert fold(world, update(recover_ms=0, reload_ms=0))
    assert fold(world, update("ACTIVE", "ACTIVE", recover_ms=5, reload_ms=6)) == []
    assert (row(world).recover_done_ms, row(world).reload_done_ms) == (5, 6)
    refused = {"sha256": "", "refused_sha256": ONE}
    assert fold(world, update("FAILED", "", **refused, recover_ms=5, reload_ms=6))
    assert fold(world, update("FAILED", "", **refused, recover_ms=6, reload_ms=6)) == []
    assert fold(world, update("ACTIVE", "ACTIVE", recover_ms=7, reload_ms=8, last_error="no"))


def test_a_daemon_that_counts_no_wishes_has_done_what_it_was_asked_for_when_it_says_something_new(world):
    refused = {"sha256": TWO, "refused_sha256": ONE}
    fold(world, update("ACTIVE", **refused))
    asked(world, N1)
    listed(world, entry("ACTIVE", **refused))
    assert row(world).pending_recover_ms
    fold(world, update("ACTIVE", intent=MODULE_INTENT_PAUSED))
    assert (row(world).pending_recover_ms, row(world).reload_done_ms) == (0, None)
    assert row(world).intent is ModuleIntent.PAUSED


def test_a_wish_is_later_than_what_the_node_has_carried_out_though_the_clock_went_back(world):
    present = int(NOW.timestamp() * 1000)
    fold(world, update("FAILED", recover_ms=present + 3_600_000))
    asked(world, N1)
    assert row(world).pending_recover_ms == present + 3_600_001


def test_a_node_that_tells_of_a_moment_far_ahead_does_not_move_the_wishes_there(world):
    fold(world, update("FAILED", recover_ms=2**63 - 1))
    asked(world, N1)
    assert row(world).recover_asked_ms == NOW.timestamp() * 1000


def test_what_failed_for_its_signature_is_failed_and_does_not_run_without_what_it_was_given(world):
    fold(world, update("FAILED", last_error="signature_refused: no key"))
    assert not runs_with_refusal(row(world))
    fold(world, update("ACTIVE", last_error="signature_refused: no key"))
    assert runs_with_refusal(row(world))


def test_a_row_that_cannot_be_read_is_replaced_by_what_the_node_says(world):
    world.state.quarantine.add("module_node_states", "n1/small", 7, ValueError("damaged"))
    folding = StateFold(world.state, N1, now=NOW)
    folding.take(update())
    [write] = folding.writes()
    assert write.expect == 7
    world.state.quarantine.check([write])
    world.take([write])
    assert row(world).phase is ModulePhase.ACTIVE
