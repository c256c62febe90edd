"""The orders that bring a module of a node to what is desired of it."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.ids import NodeId
from corral.domain.modules.convergence import (
    ControlOrder,
    DesiredModule,
    InstallOrder,
    ObservedModule,
    UninstallOrder,
    applied,
    difference,
    reported,
)
from corral.domain.modules.phases import ModuleIntent, ModulePhase
from corral.domain.modules.records import NodeModuleState

ONE, TWO = "1" * 64, "2" * 64
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DESIRED = DesiredModule(
    id="small", version="2.0.0", sha256=TWO, intent=ModuleIntent.ACTIVE, settings_sha256="s"
)
THERE = ObservedModule(
    id="small",
    sha256=TWO,
    version="2.0.0",
    intent=ModuleIntent.ACTIVE,
    paused_reason="",
    settings_sha256="s",
    reload_ms=0,
)
replace = msgspec.structs.replace
OLD = replace(THERE, sha256=ONE, version="1.0.0")
REFUSED = replace(OLD, refused_sha256=TWO)
NEVER = ObservedModule(id="small", refused_sha256=TWO)
NOTHING: dict[str, int] = {}
AGAIN, RELOAD = {"recover_ms": 7}, {"reload_ms": 7}
INSTALL, CONTROL = InstallOrder(id="small"), ControlOrder(id="small")


@pytest.mark.parametrize(
    ("observed", "asked", "orders"),
    [
        (None, NOTHING, (INSTALL,)),
        (THERE, NOTHING, ()),
        (OLD, NOTHING, (replace(INSTALL, previous_version="1.0.0"),)),
        (REFUSED, NOTHING, ()),
        (REFUSED, AGAIN, (replace(INSTALL, previous_version="1.0.0", again=True),)),
        (NEVER, NOTHING, ()),
        (NEVER, AGAIN, (replace(INSTALL, again=True),)),
        (THERE, AGAIN, (replace(CONTROL, recover=True),)),
        (THERE, RELOAD, (replace(CONTROL, reload=True),)),
        (replace(THERE, settings_sha256="t"), NOTHING, (CONTROL,)),
        (replace(THERE, intent=ModuleIntent.INACTIVE), NOTHING, (CONTROL,)),
        (replace(THERE, intent=None), NOTHING, (CONTROL,)),
        (REFUSED, RELOAD, (replace(CONTROL, reload=True, settings=False),)),
        (replace(THERE, refused_sha256=TWO), NOTHING, ()),
        (replace(THERE, refused_sha256=TWO), RELOAD, ()),
        (replace(THERE, refused_sha256=TWO), AGAIN, (replace(INSTALL, again=True),)),
        (replace(THERE, refused_sha256=ONE), NOTHING, ()),
        (replace(REFUSED, intent=ModuleIntent.PAUSED), NOTHING, (replace(CONTROL, settings=False),)),
    ],
)
def test_a_module_is_ordered_about_only_when_something_differs(observed, asked, orders):
    assert difference(replace(DESIRED, **asked), observed) == orders


def test_what_is_not_desired_is_uninstalled_also_where_it_was_only_refused():
    for observed in (THERE, REFUSED, NEVER):
        assert difference(None, observed) == (UninstallOrder(id="small"),)
    assert difference(None, None) == ()


SIGNED = replace(DESIRED, signature_sha256="new")


@pytest.mark.parametrize(
    ("observed", "asked", "orders"),
    [
        ({"signature_sha256": "new"}, NOTHING, ()),
        ({"signature_sha256": None}, NOTHING, ()),  # a daemon that knows nothing of it
        ({"signature_sha256": "old"}, NOTHING, (INSTALL,)),
        ({"signature_sha256": ""}, NOTHING, (INSTALL,)),
        ({"signature_sha256": "old", "settings_sha256": "t"}, NOTHING, (INSTALL,)),
        ({"signature_sha256": "old"}, RELOAD, (replace(CONTROL, reload=True), INSTALL)),
        ({"refused_sha256": TWO, "refused_signature_sha256": "new"}, NOTHING, ()),
        ({"refused_sha256": TWO, "refused_signature_sha256": None}, NOTHING, ()),
        ({"refused_sha256": TWO, "refused_signature_sha256": ""}, NOTHING, (INSTALL,)),
        (
            {"sha256": ONE, "version": "1.0.0", "refused_sha256": TWO, "refused_signature_sha256": "old"},
            NOTHING,
            (replace(INSTALL, previous_version="1.0.0"),),
        ),
    ],
)
def test_another_signature_is_sent_also_of_an_archive_that_was_refused(observed, asked, orders):
    assert difference(replace(SIGNED, **asked), replace(THERE, **observed)) == orders


@pytest.mark.parametrize(
    ("reload_ms", "recover_ms", "orders"),
    [
        (7, 7, ()),
        (8, 9, ()),  # of a package that was installed anew, or a store of an earlier day
        (6, 7, (replace(CONTROL, reload=True),)),
        (None, 7, ()),  # a daemon that does not count them
        (7, 6, (replace(CONTROL, recover=True),)),
        (0, 0, (replace(CONTROL, reload=True, recover=True),)),
    ],
)
def test_a_request_is_sent_to_whoever_has_not_carried_it_out(reload_ms, recover_ms, orders):
    desired = replace(DESIRED, reload_ms=7, recover_ms=7)
    assert difference(desired, replace(THERE, reload_ms=reload_ms, recover_ms=recover_ms)) == orders


def test_a_node_that_gets_the_module_anew_needs_no_reload():
    desired = replace(DESIRED, reload_ms=7)
    for observed in (None, OLD):
        (order,) = orders = difference(desired, observed)
        assert isinstance(order, InstallOrder)
        assert difference(desired, applied(desired, observed, orders)) == ()


def test_where_no_signature_is_desired_whatever_the_node_has_is_fine():
    assert difference(DESIRED, replace(THERE, signature_sha256="old")) == ()


def test_a_pause_is_sent_again_when_its_reason_is_another_or_not_reported():
    paused = replace(DESIRED, intent=ModuleIntent.PAUSED, paused_reason="later")
    observed = replace(THERE, intent=ModuleIntent.PAUSED)
    for reason, orders in (("later", ()), ("now", (CONTROL,)), (None, (CONTROL,))):
        assert difference(paused, replace(observed, paused_reason=reason)) == orders
    unknown = replace(paused, paused_reason=None)  # from a controller that does not send it
    assert difference(unknown, replace(observed, paused_reason="now")) == ()


def test_an_intent_that_is_not_known_is_that_of_no_module():
    for intent in (None, ModuleIntent.ACTIVE):
        assert difference(replace(DESIRED, intent=None), replace(THERE, intent=intent)) == (CONTROL,)


_digests = st.sampled_from([ONE, TWO])
_intents = st.sampled_from(list(ModuleIntent))
_desired = st.builds(
    DesiredModule,
    id=st.just("small"),
    version=st.just("1"),
    sha256=_digests,
    intent=_intents,
    paused_reason=st.sampled_from(["", "x", "y"]),
    settings_sha256=st.sampled_from(["s", "t"]),
    signature_sha256=st.sampled_from(["", "new"]),
    reload_ms=st.integers(0, 2),
    recover_ms=st.integers(0, 2),
)
_observed = st.builds(
    ObservedModule,
    id=st.just("small"),
    sha256=st.just("") | _digests,
    version=st.just("1"),
    intent=st.none() | _intents,
    paused_reason=st.sampled_from([None, "", "x", "y"]),
    settings_sha256=st.sampled_from(["s", "t"]),
    refused_sha256=st.sampled_from(["", ONE, TWO]),
    signature_sha256=st.sampled_from([None, "", "old", "new"]),
    refused_signature_sha256=st.sampled_from([None, "", "old", "new"]),
    reload_ms=st.none() | st.integers(0, 2),
    recover_ms=st.integers(0, 2),
)


def _is_as_desired(desired: DesiredModule | None, observed: ObservedModule | None) -> bool:
    """In plain words, and not in those of the comparison."""
    if desired is None or observed is None:
        return desired is observed
    follows = observed.intent is desired.intent and (
        desired.intent is not ModuleIntent.PAUSED or observed.paused_reason == desired.paused_reason
    )
    reloaded = observed.reload_ms is None or observed.reload_ms >= desired.reload_ms
    refused = observed.refused_sha256 == desired.sha256
    signature = observed.refused_signature_sha256 if refused else observed.signature_sha256
    proven = signature is None or desired.signature_sha256 in ("", signature)
    if observed.recover_ms < desired.recover_ms or not proven:
        return False
    if refused:
        return observed.sha256 in ("", desired.sha256) or (follows and reloaded)
    return (
        observed.sha256 == desired.sha256
        and observed.settings_sha256 == desired.settings_sha256
        and follows
        and reloaded
    )


@given(desired=st.none() | _desired, observed=st.none() | _observed)
def test_there_is_no_difference_exactly_when_a_module_is_as_desired(desired, observed):
    assert (difference(desired, observed) == ()) == _is_as_desired(desired, observed)


@given(desired=st.none() | _desired, observed=st.none() | _observed)
def test_once_the_difference_is_applied_there_is_none(desired, observed):
    after = applied(desired, observed, difference(desired, observed))
    assert difference(desired, after) == ()
    assert applied(desired, after, ()) == after


def _report(**fields):
    stands = {"phase": ModulePhase.ACTIVE, "version": "1.0.0", "sha256": ONE, "intent": ModuleIntent.ACTIVE}
    return NodeModuleState(node=NodeId("n1"), module="small", updated_at=NOW, **{**stands, **fields})


def test_a_refused_archive_is_known_by_the_report_and_so_is_the_reload_that_it_did_not_get():
    sent = replace(THERE, signature_sha256="new", reload_ms=7)
    refused = reported(sent, _report(refused_sha256=TWO, reload_done_ms=3))
    assert (refused.sha256, refused.refused_sha256, refused.reload_ms) == (ONE, TWO, 3)
    assert (refused.signature_sha256, refused.refused_signature_sha256) == (None, "new")
    assert reported(refused, _report(refused_sha256=TWO, reload_done_ms=3)) == refused
    assert difference(replace(SIGNED, reload_ms=7), refused) == (
        replace(CONTROL, reload=True, settings=False),
    )
    assert reported(sent, _report(refused_sha256=TWO)).reload_ms == 7, "a daemon that does not count them"


def test_what_runs_in_place_of_a_refused_archive_is_told_the_intent_that_went_with_it():
    rests = _report(refused_sha256=TWO, intent=ModuleIntent.PAUSED)
    refused = reported(THERE, rests)
    assert (refused.intent, refused.paused_reason) == (ModuleIntent.PAUSED, None)
    assert difference(DESIRED, refused) == (replace(CONTROL, settings=False),)


def test_a_refused_archive_that_came_up_at_last_is_known_by_the_report():
    refused = replace(REFUSED, refused_signature_sha256="new")
    there = reported(refused, _report(sha256=TWO, version="2.0.0"))
    assert (there.sha256, there.version, there.refused_sha256) == (TWO, "2.0.0", "")
    assert (there.signature_sha256, there.refused_signature_sha256) == ("new", None)


def test_a_report_that_is_older_than_the_last_order_changes_nothing():
    for report in (_report(), _report(refused_sha256="3" * 64), _report(sha256=TWO), _report(sha256="")):
        assert reported(THERE, report) == THERE
