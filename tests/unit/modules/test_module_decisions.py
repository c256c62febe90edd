"""What comes next for a module, and what its record says then."""

from __future__ import annotations

import datetime as dt
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.events import EventType
from corral.domain.modules.capability_graph import stages_of_end
from corral.domain.modules.lifecycle_decisions import (
    Runs,
    Todo,
    View,
    check_verb,
    decide,
    first_step,
    restart_delay,
    rewound,
    stepped,
)
from corral.domain.modules.manifest import (
    CapabilitiesPart,
    Manifest,
    Provision,
    Requirement,
)
from corral.domain.modules.phases import MODULE_LIFECYCLE, ModuleIntent, ModulePhase, ModuleTrigger
from corral.domain.modules.records import (
    HISTORY_LENGTH,
    FailureDetails,
    PackageRecord,
    event_of,
    phase_events,
    uninstalled,
)
from corral.domain.modules.verbs import Verb
from corral.errors import IllegalTransition

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
P, W, T = ModulePhase, ModuleIntent, ModuleTrigger


def record(phase: ModulePhase = P.INSTALLED, **more: object) -> PackageRecord:
    declared = Manifest(manifest_version=1, id="a", version="1.0.0")
    made = PackageRecord(
        id="a", version="1.0.0", sha256="0", size=1, manifest=declared, installed_at=NOW, updated_at=NOW
    )
    return msgspec.structs.replace(made, phase=phase, **more)


STEP_OF = {
    Todo.LOAD: {T.ACTIVATE},
    Todo.START: {T.BOUND},
    Todo.WITHDRAW: {T.STOP},
    Todo.STOP: {T.STOP},
    Todo.FINISH_STOP: {T.STOPPED},
    Todo.REWIND: {T.STOP, T.STOPPED},
    Todo.FAIL: {T.FAIL},
}


VIEWS = st.builds(
    View,
    phase=st.sampled_from(P),
    intent=st.sampled_from(W),
    hosted=st.booleans(),
    runs=st.sampled_from(Runs),
    unresolved=st.sampled_from([(), ("x",), ("x", "y")]),
    conflict=st.sampled_from(["", "z"]),
    waited_out=st.booleans(),
    backing_off=st.booleans(),
    failed_reason=st.sampled_from(["", "memory_limit"]),
)


@given(VIEWS)
def test_every_decision_is_a_step_that_the_table_has(view: View) -> None:
    todo = decide(view).todo
    allowed = {trigger for trigger in T if MODULE_LIFECYCLE.allows(view.phase, trigger)}
    assert todo not in STEP_OF or STEP_OF[todo] & allowed


@given(VIEWS)
def test_nothing_starts_that_is_not_wanted_or_lacks_something(view: View) -> None:
    decision = decide(view)
    if decision.todo in (Todo.LOAD, Todo.START):
        assert view.intent is W.ACTIVE
    if decision.todo is Todo.START:
        assert not view.unresolved
        assert not view.conflict


@given(VIEWS)
def test_failed_is_sticky_and_what_is_doomed_fails_wherever_it_is(view: View) -> None:
    if view.phase in (P.FAILED, P.UNLOADED):
        assert decide(view).todo is Todo.REST
    elif view.failed_reason:
        assert decide(view).todo is Todo.FAIL


@pytest.mark.parametrize(
    ("view", "todo", "reason"),
    [
        (View(phase=P.INSTALLED, intent=W.ACTIVE), Todo.LOAD, ""),
        (View(phase=P.INSTALLED, intent=W.ACTIVE, unresolved=("x",)), Todo.LOAD, "waiting_for_capability:x"),
        (View(phase=P.INSTALLED, intent=W.ACTIVE, backing_off=True), Todo.REST, ""),
        (View(phase=P.INSTALLED, intent=W.PAUSED), Todo.REST, ""),
        (View(phase=P.INSTALLED, intent=W.PAUSED, reason="paused"), Todo.REST, ""),
        (View(phase=P.INSTALLED, intent=W.INACTIVE, reason="installed"), Todo.REST, ""),
        (View(phase=P.INSTALLED, intent=W.INACTIVE, reason="paused"), Todo.EXPLAIN, "deactivated"),
        (
            View(phase=P.INSTALLED, intent=W.INACTIVE, reason="paused", inactive_reason="uninstall"),
            Todo.REST,
            "",
        ),
        (View(phase=P.INSTALLED, intent=W.PAUSED, reason="deactivated"), Todo.EXPLAIN, "paused"),
        (View(phase=P.INSTALLED, intent=W.PAUSED, runs=Runs.LOADED), Todo.UNLOAD, ""),
        (View(phase=P.WAITING, intent=W.ACTIVE), Todo.REWIND, "host_restarted"),
        (View(phase=P.WAITING, intent=W.ACTIVE, runs=Runs.LOADED), Todo.START, ""),
        (
            View(phase=P.WAITING, intent=W.ACTIVE, runs=Runs.LOADED, unresolved=("x",), waited_out=True),
            Todo.FAIL,
            "wait_timeout:x",
        ),
        (
            View(phase=P.WAITING, intent=W.ACTIVE, runs=Runs.LOADED, conflict="x"),
            Todo.FAIL,
            "capability_conflict:x",
        ),
        (View(phase=P.WAITING, intent=W.PAUSED, runs=Runs.LOADED), Todo.WITHDRAW, "paused"),
        (View(phase=P.WAITING, intent=W.ACTIVE, hosted=False), Todo.START, ""),
        (View(phase=P.ACTIVE, intent=W.ACTIVE, runs=Runs.BOUND), Todo.REST, ""),
        (View(phase=P.ACTIVE, intent=W.ACTIVE, runs=Runs.STARTED), Todo.BIND, ""),
        (View(phase=P.ACTIVE, intent=W.ACTIVE, lost="memory_limit"), Todo.REWIND, "memory_limit"),
        (View(phase=P.ACTIVE, intent=W.INACTIVE, runs=Runs.BOUND), Todo.STOP, "deactivated"),
        (
            View(phase=P.ACTIVE, intent=W.INACTIVE, runs=Runs.BOUND, inactive_reason="uninstall"),
            Todo.STOP,
            "uninstall",
        ),
        (
            View(phase=P.ACTIVE, intent=W.ACTIVE, runs=Runs.BOUND, unresolved=("x",)),
            Todo.STOP,
            "capability_vanished:x",
        ),
        (View(phase=P.STOPPING, intent=W.ACTIVE, runs=Runs.BOUND, reason="r"), Todo.FINISH_STOP, "r"),
        (View(phase=P.STOPPING, intent=W.ACTIVE), Todo.REWIND, "host_restarted"),
    ],
)
def test_what_comes_next(view: View, todo: Todo, reason: str) -> None:
    decision = decide(view)
    assert (decision.todo, decision.reason) == (todo, reason)


def test_a_changed_reason_to_wait_is_told_once() -> None:
    view = View(phase=P.WAITING, intent=W.ACTIVE, runs=Runs.LOADED, unresolved=("y",), reason="x")
    decision = decide(view)
    assert (decision.todo, decision.reason) == (Todo.EXPLAIN, "waiting_for_capability:y")
    assert decide(msgspec.structs.replace(view, reason=decision.reason)).todo is Todo.REST


@pytest.mark.parametrize("pair", list(itertools.product(P, T)))
def test_a_record_takes_the_steps_of_the_table_and_no_others(pair: tuple[P, T]) -> None:
    phase, trigger = pair
    before = record(phase)
    if not MODULE_LIFECYCLE.allows(phase, trigger):
        with pytest.raises(IllegalTransition):
            stepped(before, trigger, reason="r", at=NOW)
        return
    after = stepped(before, trigger, reason="r", at=NOW)
    step = after.history[-1]
    assert after.phase is MODULE_LIFECYCLE.transitions[phase, trigger]
    assert (step.from_phase, step.to_phase, step.reason) == (phase, after.phase, "r")


def test_a_story_keeps_its_last_steps_and_each_is_told_exactly_once() -> None:
    current = first_step(record(), at=NOW)
    events = [draft.type for draft in phase_events(None, current)]
    for number in range(HISTORY_LENGTH):
        trigger = T.ACTIVATE if number % 2 == 0 else T.STOP
        after = stepped(current, trigger, reason="r", at=NOW + dt.timedelta(seconds=number))
        (draft,) = phase_events(current, after)
        events.append(draft.type)
        current = after
    assert len(current.history) == HISTORY_LENGTH
    assert events[:3] == [EventType.MODULE_INSTALLED, EventType.MODULE_WAITING, EventType.MODULE_DEACTIVATED]
    assert phase_events(current, current) == []


@pytest.mark.parametrize(
    ("phase", "events"),
    [
        (P.ACTIVE, [EventType.MODULE_STOPPING, EventType.MODULE_DEACTIVATED]),
        (P.STOPPING, [EventType.MODULE_DEACTIVATED]),
        (P.WAITING, [EventType.MODULE_DEACTIVATED]),
        (P.INSTALLED, []),
        (P.FAILED, []),
    ],
)
def test_what_a_dead_host_left_is_walked_back_in_one_change(phase: P, events: list[EventType]) -> None:
    before = record(phase)
    after = rewound(before, reason="host_restarted", at=NOW)
    assert after.phase is (P.FAILED if phase is P.FAILED else P.INSTALLED)
    assert [draft.type for draft in phase_events(before, after)] == events


@pytest.mark.parametrize(
    ("start", "end", "event"),
    [
        (None, P.INSTALLED, EventType.MODULE_INSTALLED),
        (P.FAILED, P.INSTALLED, EventType.MODULE_INSTALLED),
        (P.WAITING, P.INSTALLED, EventType.MODULE_DEACTIVATED),
        (P.STOPPING, P.INSTALLED, EventType.MODULE_DEACTIVATED),
        (P.INSTALLED, P.WAITING, EventType.MODULE_WAITING),
        (P.WAITING, P.ACTIVE, EventType.MODULE_ACTIVATED),
        (P.ACTIVE, P.STOPPING, EventType.MODULE_STOPPING),
        (P.ACTIVE, P.FAILED, EventType.MODULE_FAILED),
        (P.FAILED, P.UNLOADED, EventType.MODULE_UNINSTALLED),
    ],
)
def test_which_event_tells_which_step(start: P | None, end: P, event: EventType) -> None:
    assert event_of(start, end) is event


def test_an_event_carries_the_whole_step() -> None:
    before = record(P.ACTIVE)
    (draft,) = phase_events(before, stepped(before, T.STOP, reason="paused", at=NOW))
    assert draft.subject == "a"
    assert draft.data == {
        "id": "a",
        "version": "1.0.0",
        "from": "ACTIVE",
        "to": "STOPPING",
        "intent": "active",
        "reason": "paused",
        "at": NOW.isoformat(),
    }
    gone = uninstalled(before, reason="uninstall", at=NOW)
    assert (gone.type, gone.data["to"]) == (EventType.MODULE_UNINSTALLED, "UNLOADED")


def test_why_it_failed_is_kept_until_it_is_recovered() -> None:
    story = FailureDetails(at=NOW, reason="memory_limit")
    failed = stepped(record(P.ACTIVE), T.FAIL, reason="memory_limit", at=NOW, failure=story)
    assert failed.failure == story
    assert stepped(failed, T.RECOVER, reason="recovered", at=NOW).failure is None


@pytest.mark.parametrize(
    ("verb", "refused"),
    [
        (Verb.ACTIVATE, {(P.FAILED, W.ACTIVE), (P.FAILED, W.PAUSED), (P.INSTALLED, W.PAUSED)}),
        (Verb.DEACTIVATE, {(P.FAILED, W.ACTIVE), (P.FAILED, W.PAUSED)}),
        (Verb.PAUSE, {(P.FAILED, W.ACTIVE), (P.FAILED, W.PAUSED)}),
        (Verb.RESUME, {(P.ACTIVE, W.ACTIVE), (P.INSTALLED, W.INACTIVE), (P.FAILED, W.ACTIVE)}),
        (Verb.RECOVER, {(P.ACTIVE, W.ACTIVE), (P.INSTALLED, W.INACTIVE), (P.INSTALLED, W.PAUSED)}),
        (Verb.RELOAD, set()),
        (Verb.CONFIGURE, set()),
        (Verb.UNINSTALL, set()),
    ],
)
def test_which_verbs_are_refused_where(verb: Verb, refused: set[tuple[P, W]]) -> None:
    for phase, intent in [
        (P.ACTIVE, W.ACTIVE),
        (P.INSTALLED, W.INACTIVE),
        (P.INSTALLED, W.PAUSED),
        (P.FAILED, W.ACTIVE),
        (P.FAILED, W.PAUSED),
    ]:
        asked = stepped(record(P.WAITING), T.STOP, reason="earlier", at=NOW)
        asked = msgspec.structs.replace(asked, phase=phase, intent=intent)
        if (phase, intent) in refused:
            with pytest.raises(IllegalTransition) as error:
                check_verb(asked, verb)
            assert "earlier" in str(error.value)
        else:
            check_verb(asked, verb)


@pytest.mark.parametrize(
    ("phase", "intent", "verb", "hint"),
    [
        (P.FAILED, W.ACTIVE, Verb.ACTIVATE, "`corral module recover a` comes first"),
        (P.FAILED, W.ACTIVE, Verb.RESUME, "`corral module recover a` comes first"),
        (P.INSTALLED, W.PAUSED, Verb.ACTIVATE, "`corral module resume a` lets it run"),
        (
            P.INSTALLED,
            W.PAUSED,
            Verb.RECOVER,
            "nothing to recover: it is paused, and `corral module resume a`",
        ),
        (
            P.INSTALLED,
            W.INACTIVE,
            Verb.RESUME,
            "it is deactivated, and `corral module activate a` lets it run",
        ),
        (P.ACTIVE, W.ACTIVE, Verb.RECOVER, "there is nothing to recover: it is ACTIVE"),
        (P.WAITING, W.ACTIVE, Verb.RESUME, "there is nothing to resume: it is WAITING"),
    ],
)
def test_a_refused_verb_says_what_to_use_instead(phase: P, intent: W, verb: Verb, hint: str) -> None:
    with pytest.raises(IllegalTransition) as error:
        check_verb(record(phase, intent=intent), verb)
    assert hint in (error.value.hint or "")


def test_deaths_are_mended_with_growing_pauses_and_forgotten_after_a_while() -> None:
    steps = (1.0, 2.0, 4.0)
    assert restart_delay([0.0], now=0.0, mended=3, steps=steps) == 1.0
    assert restart_delay([0.0, 1.0], now=1.0, mended=3, steps=steps) == 2.0
    assert restart_delay([0.0, 1.0, 2.0], now=2.0, mended=3, steps=steps) == 4.0
    assert restart_delay([0.0, 1.0, 2.0, 3.0], now=3.0, mended=3, steps=steps) is None
    assert restart_delay([0.0, 1.0, 2.0, 700.0], now=700.0, mended=3, steps=steps) == 1.0
    assert restart_delay([0.0], now=0.0, mended=0, steps=steps) is None


def _needing(provides: tuple[str, ...], requires: tuple[str, ...]) -> Manifest:
    return Manifest(
        manifest_version=1,
        id="x",
        version="1.0.0",
        capabilities=CapabilitiesPart(
            provides=tuple(Provision(id=id, version="1.0.0") for id in provides),
            requires=tuple(Requirement(id=id) for id in requires),
        ),
    )


def test_consumers_end_before_what_they_use() -> None:
    stages = stages_of_end(
        {
            "base": _needing(("b",), ()),
            "middle": _needing(("m",), ("b",)),
            "top": _needing((), ("m", "b", "nobody")),
            "alone": _needing((), ()),
        }
    )
    assert stages == [["alone", "top"], ["middle"], ["base"]]
    assert stages_of_end({"x": _needing(("x",), ("y",)), "y": _needing(("y",), ("x",))}) == [["x", "y"]]
