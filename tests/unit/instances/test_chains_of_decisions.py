"""I13: whatever operators do and whatever happens to nodes and instances, each change has a chain to a root."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from reconciled_world import KeptReads, ReconciledWorld, finished
from world_histories import instance

from corral.controller.http.resources.why.cause_chains import LONGEST, ChainReader
from corral.controller.http.resources.why.decision_history import DecisionHistory
from corral.controller.instances import group_changes, instance_changes
from corral.domain.access import access_of_role
from corral.domain.decisions import DecisionKind
from corral.domain.events import Event
from corral.domain.groups.group import CrashLoopSpec, DependencySpec, RestartOn, RestartSpec
from corral.domain.groups.instance_records import DecisionRecord, InstanceRecord
from corral.domain.groups.scaling_spec import ScalingMode, ScalingSpec, ScheduleSpec
from corral.domain.node_states import Admission
from corral.domain.permissions import Role

GROUPS = ("g0", "g1")
NODES = ("n1", "n2")
CHANGES = frozenset(
    {
        DecisionKind.START,
        DecisionKind.STOP,
        DecisionKind.RESTART,
        DecisionKind.SCALE,
        DecisionKind.PROMOTE,
        DecisionKind.PLACE,
        DecisionKind.DRAIN,
        DecisionKind.UNDRAIN,
    }
)

groups = st.sampled_from(GROUPS)
nodes = st.sampled_from(NODES)
which = st.integers(0, 5)
"""One of the instances, by its place among all."""
flags = st.booleans()
DYNAMIC = ScalingSpec(mode=ScalingMode.DYNAMIC, idle_seconds=5, window_seconds=5, cooldown_seconds=5)
"""With one place an instance, a second player needs one more."""
SOON = ScheduleSpec(name="soon", cron="*/2 * * * *", duration_seconds=60, max=12, min=3)
documents = st.fixed_dictionaries(
    {
        "min": st.integers(0, 12),
        "warm": st.integers(0, 2),
        "static": flags,
        "memory_mb": st.sampled_from([10, 400]),
        "restart": st.sampled_from([RestartSpec(on=each) for each in RestartOn]),
        "crash_loop": st.just(CrashLoopSpec(failures=2, within_seconds=60, pause_seconds=60)),
        "min_alive_ms": st.just(0),
        "scaling": st.sampled_from([ScalingSpec(), DYNAMIC]),
        "max_players": st.just(1),
        "max": st.sampled_from([None, 12]),
        "schedules": st.sampled_from([(), (SOON,)]),
        "depends_on": st.sampled_from([(), (DependencySpec(group="g0"),)]),
    }
)
patches = st.fixed_dictionaries(
    {}, optional={"min": st.integers(0, 4), "warm": st.integers(0, 2), "memory_mb": st.integers(1, 700)}
)
acts = st.one_of(
    st.tuples(st.just("create"), groups, documents),
    st.tuples(st.just("patch"), groups, patches),
    st.tuples(st.just("scale"), groups, st.integers(0, 4)),
    st.tuples(st.just("hold"), groups, flags),
    st.tuples(st.sampled_from(["release", "unpause", "delete", "start"]), groups),
    st.tuples(st.sampled_from(["stop", "kill", "restart", "remove", "end", "enter", "leave"]), which),
    st.tuples(st.sampled_from(["crash", "refuse"]), which, flags),
    st.tuples(st.just("crash"), which, st.just(False)),
    st.tuples(st.sampled_from(["drop", "forget"]), nodes),
    st.just(("obey", "n1")),
    st.just(("obey", "n2")),
    st.tuples(st.just("return"), nodes, flags, st.sampled_from(["", "g1-9"])),
    st.tuples(st.just("cordon"), nodes, flags),
    st.tuples(st.just("wait"), st.sampled_from([1, 6, 31, 70, 4000])),
    st.just(("look",)),
)
histories = st.lists(st.tuples(acts, st.sampled_from([True, True, False])), min_size=5, max_size=40)
"""What happens, and whether the reconciler has its turn before the next."""
LOBBY = {
    "min": 2,
    "warm": 1,
    "static": False,
    "memory_mb": 300,
    "max": 6,
    "crash_loop": CrashLoopSpec(failures=2, within_seconds=60, pause_seconds=60),
}


def lived(history) -> ReconciledWorld:
    """A world with a group that runs, after this has happened to it."""
    world = ReconciledWorld()
    begin = [("create", "g0", LOBBY), ("settle",), ("obey", "n1"), ("obey", "n2"), ("settle",)]
    for each in begin:
        act(world, *each)
    for each, settles in history:
        act(world, *each)
        if settles:
            world.settle()
    world.settle()
    return world


def act(world: ReconciledWorld, what: str, *args) -> None:
    """One thing that happens; what is not possible is left out."""
    match what, args:
        case "create", (name, fields):
            fields = {**fields, "warm": 0} if fields["static"] else fields
            fields = {**fields, "depends_on": ()} if name == "g0" else fields
            if world.state.groups.find(name) is None:
                world.create(name, **fields)
        case "look", ():
            world.look_at_everything()
        case "settle", ():
            world.settle()
        case "wait", (seconds,):
            world.wait(seconds)
        case "obey", (node,):
            world.obey(node)
        case "drop", (node,):
            world.drop(node)
        case "forget", (node,):
            world.forget(node)
        case "return", (node, with_runs, adopted):
            world.come_back(node, with_runs=with_runs, adopted=adopted)
        case "cordon", (node, closed):
            world.configure_node(node, Admission.CORDONED if closed else Admission.OPEN)
        case _, (str(name), *more) if world.state.groups.find(name) is not None:
            of_group(world, what, name, *more)
        case _, (int(number), *more) if (record := instance(world, number)) is not None:
            of_instance(world, what, record, *more)


def of_group(world: ReconciledWorld, what: str, name: str, *args) -> None:
    match what, args:
        case "patch", (fields,):
            world.ask(group_changes.patch_group, name, fields)
        case "scale", (count,):
            world.ask(group_changes.scale_group, name, count)
        case "hold", (when_empty,):
            world.ask(group_changes.hold_group, name, by="ada", reason="test", when_empty=when_empty)
        case "release", ():
            world.ask(group_changes.release_group, name, by="ada")
        case "unpause", ():
            world.ask(group_changes.unpause_group, name)
        case "delete", ():
            world.ask(group_changes.delete_group, name, cascade=True, confirm=name)
        case "start", ():
            world.ask(instance_changes.start_instance, name)


def of_instance(world: ReconciledWorld, what: str, record: InstanceRecord, *args) -> None:
    match what, args:
        case "stop", ():
            world.ask(instance_changes.stop_instance, record.id, reason="by ada")
        case "kill", ():
            world.ask(instance_changes.kill_instance, record.id, reason="by ada")
        case "restart", ():
            world.ask(instance_changes.restart_instance, record.id, reason="by ada")
        case "remove", ():
            world.ask(instance_changes.remove_instance, record.id)
        case "end", ():
            world.end(record)
        case "enter", ():
            world.enter(record.id)
        case "leave", ():
            world.leave(record.id)
        case "crash", (restarted,):
            world.crash(record, restarted=restarted)
        case "refuse", (permanent,):
            world.refuse(record, permanent=permanent)


class Chains:
    """What led to each decision of a world."""

    def __init__(self, world: ReconciledWorld) -> None:
        self._world = world
        self._made = {each.id: (number, each) for number, each in enumerate(world.made())}
        self._events = {str(each.cursor): each for each in world.events}

    def check(self) -> None:
        for number, decision in self._made.values():
            if decision.kind in CHANGES:
                assert decision.causes, f"nothing led to {decision.kind} {decision.subject}: {decision.cause}"
                reached = self._reached(decision, number)
                assert decision.root in reached, decision
                assert any(self._is_root(each) for each in reached), (decision, reached)

    def _reached(self, decision: DecisionRecord, number: int) -> set[str]:
        """Every cause behind a decision. Each is older than what it led to, so that there are no cycles."""
        reached: set[str] = set()
        for cause in decision.causes:
            reached.add(cause)
            behind = cause if cause.startswith("dec-") else self._announced(cause)
            if behind:
                assert behind in self._made, f"{cause} of {decision} is not there"
                earlier, found = self._made[behind]
                assert earlier < number, f"{cause} is not older than {decision}"
                reached |= self._reached(found, earlier)
        return reached

    def _event(self, cause: str) -> Event:
        found = self._events.get(cause.removeprefix("event:"))
        assert found is not None, f"there is no {cause}"
        return found

    def _announced(self, cause: str) -> str:
        """The decision that an event announced."""
        return str(self._event(cause).data.get("decision", "")) if cause.startswith("event:") else ""

    def _is_root(self, cause: str) -> bool:
        kind, _, id = cause.partition(":")
        match kind:
            case "event":
                return not self._announced(cause)
            case "request":
                return id in self._world.requests
            case "crash" | "players":
                return True
            case "node":
                return id in NODES
        return False


def after(*history) -> list:
    """These acts, each with a turn of the reconciler after it."""
    return [(each, True) for each in history]


CRASHES = (("crash", 0, False), ("crash", 1, False))
MATCHES = {**LOBBY, "warm": 0, "restart": RestartSpec(on=RestartOn.FAILURE), "min_alive_ms": 0}
LARGE = {"min": 2, "memory_mb": 900, "static": False}
OBEY = (("obey", "n1"), ("obey", "n2"))
CROWD = (
    "create",
    "g1",
    {"min": 1, "max": 3, "memory_mb": 10, "static": False, "scaling": DYNAMIC, "max_players": 1},
)


@pytest.mark.system
@settings(max_examples=70, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
@example(after(*CRASHES, *OBEY, ("crash", 0, False), ("wait", 70), *OBEY))
@example(after(*CRASHES, ("crash", 2, False), ("unpause", "g0")))
@example(after(("create", "g1", MATCHES), *OBEY, ("end", 3), ("wait", 1), ("look",), ("wait", 6)))
@example(after(("create", "g1", {**LOBBY, "min": 12, "warm": 0}), *OBEY))
@example(after(("stop", 0), *OBEY, ("kill", 1)))
@example(after(("create", "g1", {"min": 1, "static": True}), *OBEY, ("stop", 3), *OBEY, ("remove", 3)))
@example(after(("cordon", "n1", True), ("cordon", "n2", True), ("crash", 0, False), ("cordon", "n1", False)))
@example(
    after(
        ("drop", "n1"), ("wait", 6), ("return", "n1", False, "g0-9"), *OBEY, ("drop", "n1"), ("forget", "n1")
    )
)
@example(after(("restart", 0), *OBEY, ("hold", "g0", True), ("wait", 6), *OBEY, ("release", "g0")))
@example(after(("enter", 0), ("hold", "g0", True), ("leave", 0), *OBEY))
@example(after(CROWD, *OBEY, ("enter", 3), *OBEY, ("leave", 3), ("wait", 6), ("wait", 6), *OBEY))
@example(
    after(CROWD, *OBEY, ("enter", 3), *OBEY, ("enter", 4), ("patch", "g1", {"max": 1}), ("leave", 4), *OBEY)
)
@example(
    after(("create", "g1", {**LOBBY, "warm": 0, "schedules": (SOON,)}), ("wait", 70), *OBEY, ("wait", 70))
)
def test_each_change_has_a_chain_to_a_root(history):
    Chains(lived(history)).check()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories)
@example(after(("create", "g1", {"min": 1, "static": True}), *OBEY, ("stop", 3), *OBEY, ("remove", 3)))
def test_when_events_alone_leave_nothing_to_do_a_look_at_every_group_finds_nothing(history):
    """I12."""
    world = lived(history)
    before = len(world.made())
    world.look_at_everything()
    world.settle()
    assert [each for each in world.made()[before:] if each.kind in CHANGES] == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories, st.integers(0, 30), st.sampled_from([1, 2, 3, 1_000_000]))
@example(after(("scale", "g0", 4)), 0, 1)
@example(after(("stop", 0), *OBEY), 0, 1_000_000)
@example(after(*CRASHES), 6, 1_000_000)
@example(after(("create", "g1", LARGE), ("hold", "g0", False), *OBEY, ("wait", 1)), 0, 1_000_000)
@example(after(("drop", "n1"), ("wait", 6), ("return", "n1", False, "g0-9")), 0, 1_000_000)
def test_a_chain_is_shown_to_its_root_or_says_that_it_is_cut(history, dropped, kept):
    world = lived(history)
    reads = KeptReads(world, dropped_events=min(dropped, len(world.events)), decisions=kept)
    whole = not dropped and kept > 1_000
    for decision in world.made():
        if decision.kind not in CHANGES:
            continue
        near = decision.subject
        decisions = DecisionHistory(reads)
        reader = ChainReader(world.state, reads, access_of_role(Role.VIEWER), decisions, [])
        found = finished(reader.find(decision.id, near=near))
        if found is None:
            assert not whole
            continue
        first, *_ = steps = finished(reader.chain(found))
        assert steps[-1].id == decision.id
        if first.kind == "truncated":
            assert not whole or len(steps) == LONGEST, steps
        elif first.kind == "event":
            announced = next(each for each in world.events if str(each.cursor) == first.id)
            assert not announced.data.get("decision"), steps
        else:
            assert first.kind in ("request", "crash", "restart", "cause"), steps
            assert first.kind != "cause" or decision.causes, steps
