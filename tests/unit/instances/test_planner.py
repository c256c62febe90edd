"""The planner over whole states: nothing is promised twice, its result is final, and one group hurts no other."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from world import N1, NOW, World, spec

from corral.controller.instances.group_changes import create_group, patch_group
from corral.controller.instances.instance_changes import order_stop
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.report_values import RunReport
from corral.controller.instances.reports import fold_report
from corral.controller.state.collections import GROUPS, NODES
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.group import AffinitySpec, DependencySpec, PortProtocol, PortSpec, SpreadSpec
from corral.domain.groups.instance_records import CrashLoop, DecisionRecord, GroupRecord, Readiness, live
from corral.domain.ids import NodeId
from corral.domain.instance_states import InstanceState
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.group_plans import needed
from corral.domain.planning.node_usage import port_keys
from corral.domain.planning.planner import PassLimits, plan

PORTS = {"primary": PortSpec(range=(100, 103), protocol=PortProtocol.UDP)}
TIED = {**PORTS, "query": PortSpec(of="primary", offset=4, protocol=PortProtocol.UDP)}


@pytest.fixture
def world() -> World:
    return World()


def put(world: World, **fields) -> None:
    """A group as it is stored, whatever a request would check."""
    name = fields.pop("name", "lobby")
    record = GroupRecord(spec=spec(name, **fields), created_at=NOW, updated_at=NOW)
    world.apply([GROUPS.put(name, record, expect=world.state.groups.revision(name))])


def running(world: World, *ids: str) -> None:
    """Their nodes report them as running and ready."""
    for id in ids:
        record = world.record(id)
        said = RunReport(
            id=id,
            incarnation=record.incarnation,
            state=InstanceState.RUNNING,
            started_at=NOW,
            readiness=Readiness.READY,
        )
        world.do(fold_report, record.node, said)


def names(world: World) -> list[str]:
    return [name for name, _ in world.state.groups.items()]


def alive(world: World, group: str) -> list[str]:
    return [each.record.id for each in world.state.instances.of_group(group) if live(each.record.state)]


def settle(world: World, limits: PassLimits) -> int:
    """Passes until nothing is left to do; how many. What a pass starts wakes those that need it."""
    scope, passes = names(world), 0
    while scope:
        result = world.keep_all(scope, limits)
        started = {each.group for each in result.decisions if each.placement is not None}
        waking = {name for name in names(world) if started & needed(world.group(name).spec)}
        scope = sorted(waking.union(result.unfinished))
        passes += 1
        assert passes < 200
    return passes


nodes = st.lists(
    st.fixed_dictionaries(
        {
            "address": st.sampled_from(["one", "two", ""]),
            "memory": st.integers(0, 1500),
            "cpus": st.integers(1, 4),
            "labels": st.fixed_dictionaries({}, optional={"zone": st.sampled_from(["a", "b"])}),
            "admission": st.sampled_from([Admission.OPEN, Admission.OPEN, Admission.CORDONED]),
            "state": st.sampled_from([NodeState.ONLINE] * 4 + [NodeState.DISCONNECTED]),
            "state_since": st.sampled_from([NOW, NOW - dt.timedelta(hours=1)]),
        }
    ),
    min_size=1,
    max_size=4,
)
groups = st.lists(
    st.fixed_dictionaries(
        {
            "min": st.integers(0, 6),
            "warm": st.integers(0, 2),
            "memory_mb": st.integers(0, 400),
            "cpu": st.sampled_from([0.0, 0.5, 2.0]),
            "disk_mb": st.sampled_from([0, 10_000, 60_000]),
            "ports": st.sampled_from([{}, PORTS, TIED]),
            "priority": st.integers(0, 3),
            "node_labels": st.sampled_from([{}, {}, {"zone": "a"}]),
            "spread": st.sampled_from(
                [(SpreadSpec(),), (SpreadSpec(by="zone", max_skew=1),), (SpreadSpec(max_skew=1),), ()]
            ),
            "affinity": st.sampled_from(
                [
                    (),
                    (AffinitySpec(label="zone=b", weight=50),),
                    (AffinitySpec(group="g0", required=True),),
                    (AffinitySpec(group="g0", weight=-50, required=True),),
                ]
            ),
            "depends_on": st.sampled_from([(), (), (DependencySpec(group="g0"),)]),
        }
    ),
    min_size=1,
    max_size=5,
)


def made(hosts, wanted) -> World:
    world = World()
    for number, facts in enumerate(hosts):
        world.add_node(NodeId(f"n{number + 1}"), **facts)
    for number, fields in enumerate(wanted):
        if number == 0:
            fields = {**fields, "depends_on": ()}
        put(world, name=f"g{number}", **fields)
    return world


def check_promises(world: World) -> None:
    """I1, I2: no node has promised more than it has, and no port twice."""
    leased = []
    for stored in world.state.nodes:
        node = stored.record
        runs = [each.record for each in world.state.reservations.of_node(node.id)]
        assert sum(run.memory_mb for run in runs) <= node.memory_mb
        assert round(sum(run.cpu for run in runs), 6) <= node.cpus
        for run in runs:
            assert len(run.ports) in (0, len(PORTS), len(TIED))
            leased += [
                (node.address or node.id, key)
                for port in run.ports
                for key in port_keys(port.port, port.protocol)
            ]
    assert len(leased) == len(set(leased))


def check_rest(world: World) -> None:
    """I11: after its result nothing is left to do. Only the reason of a refusal may have become another, by what was
    placed after it; then once."""
    found = world.planned(names(world)).decisions
    assert {each.rule for each in found} <= {Rule.PLACE_REFUSE}
    world.keep_all(names(world))
    assert world.planned(names(world)).decisions == ()


@pytest.mark.trap("T21", "T27")
@settings(max_examples=150, deadline=None)
@given(nodes, groups, st.integers(1, 4), st.integers(1, 4))
def test_whatever_is_planned_no_node_promises_more_than_it_has_and_a_second_pass_finds_nothing(
    hosts, wanted, most, most_of_group
):
    world = made(hosts, wanted)
    limits = PassLimits(starts=most, starts_of_group=most_of_group)
    settle(world, limits)
    check_promises(world)
    for _, stored in world.state.groups.items():
        name = stored.record.spec.name
        tally = world.workspace().tally(name)
        assert tally.serving <= world.wanted(name), "I6"
        assert tally.serving == world.wanted(name) or stored.record.reason, "I4: a reason for each shortage"
    check_rest(world)
    again = world.planned(names(world))
    assert world.planned(names(world)) == again, "the same state, the same plan"
    assert msgspec.json.encode(again.groups, enc_hook=str) == msgspec.json.encode(again.groups, enc_hook=str)


@settings(max_examples=60, deadline=None)
@given(nodes, groups)
def test_passes_group_by_group_end_where_a_full_pass_finds_nothing(hosts, wanted):
    """I12."""
    world = made(hosts, wanted)
    for name in names(world):
        while world.keep_all([name]).unfinished:
            pass
    settle(world, PassLimits())
    check_promises(world)
    check_rest(world)


@settings(max_examples=60, deadline=None)
@given(nodes, groups)
def test_every_start_and_refusal_names_its_rule_its_cause_and_each_node_once(hosts, wanted):
    """I13, and: each node is the choice, a reason, a tie or a lower score."""
    world = made(hosts, wanted)
    settle(world, PassLimits())
    count = len(list(world.state.nodes))
    for entry in world.decisions:
        decision = msgspec.json.decode(entry.body, type=DecisionRecord)
        assert (decision.root, decision.causes) == ("event:1-1", ("event:1-1",))
        assert decision.rule in {rule.value for rule in Rule}
        if decision.kind is DecisionKind.START:
            assert sum(decision.rejected_counts.values()) == count - 1
        if decision.rule == Rule.PLACE_REFUSE:
            assert sum(decision.rejected_counts.values()) == count


def test_a_broken_group_delays_no_other(world):
    """I18."""
    put(world, name="broken", min=1, templates=("gone",))
    put(world, name="fine", min=1)
    world.keep_all(["broken", "fine"])
    assert alive(world, "fine") == ["fine-1"]
    assert "gone" in world.group("broken").reason


@pytest.mark.trap("T22")
def test_a_paused_group_starts_nothing_beside_healthy_ones(world):
    put(world, name="looping", min=3)
    put(world, name="fine", min=2)
    pause = CrashLoop(since=NOW, until=NOW + dt.timedelta(minutes=1), pauses=1, reason="3 failures")
    record = msgspec.structs.replace(world.group("looping"), paused=pause)
    world.apply([GROUPS.put("looping", record, expect=world.state.groups.revision("looping"))])
    world.keep_all(["looping", "fine"])
    assert (alive(world, "looping"), len(alive(world, "fine"))) == ([], 2)
    assert "paused as crash-looping" in world.group("looping").reason


def test_thousands_of_missing_instances_cost_a_pass_no_more_than_it_starts(world):
    """A start is made when it is its turn, not before."""
    put(world, name="huge", min=10_000, warm=10_000, nodes=("nowhere",))
    put(world, name="many", min=10_000, memory_mb=0)
    asked = 0

    class Counting(WorkspaceView):
        def start_requests(self, group, *, reason):
            nonlocal asked
            for request in super().start_requests(group, reason=reason):
                asked += 1
                yield request

    found = plan(Counting(world.workspace()), ["huge", "many"], PassLimits(starts=50, starts_of_group=10))
    assert found.groups["many"].started == 10
    assert found.unfinished == ("many",)
    assert asked < 20


def test_static_groups_without_a_place_are_passed_over_within_bounds(world):
    asked = 0

    class Counting(WorkspaceView):
        def start_requests(self, group, *, reason):
            nonlocal asked
            for request in super().start_requests(group, reason=reason):
                asked += 1
                yield request

    for number in range(8):
        put(world, name=f"huge{number}", min=10_000, static=True, nodes=("nowhere",))
    plan(Counting(world.workspace()), [f"huge{number}" for number in range(8)])
    assert asked <= 10_000 + 2 * 8


def test_scarce_room_goes_by_dependency_priority_size_and_name(world):
    put(world, name="low", min=1, memory_mb=600, priority=10)
    put(world, name="high", min=1, memory_mb=600, priority=90)
    put(world, name="base", min=1, memory_mb=300, priority=0)
    put(world, name="after", min=1, memory_mb=300, priority=100, depends_on=(DependencySpec(group="base"),))
    world.keep_all(["low", "high", "base", "after"])
    assert alive(world, "high")
    assert not alive(world, "low")
    assert alive(world, "base")
    assert world.group("after").reason == "waits for 'base': 0 of 1 ready"
    running(world, "base-1")
    world.keep_all(["after"])
    assert "NO_CAPACITY" in world.group("after").reason


def test_an_unmet_dependency_stops_nothing_that_runs(world):
    put(world, name="db", min=1)
    put(world, name="web", min=1, depends_on=(DependencySpec(group="db"),))
    world.keep_all(["db", "web"])
    assert alive(world, "web") == []
    running(world, "db-1")
    world.keep_all(["web"])
    assert alive(world, "web") == ["web-1"]
    world.do(order_stop, world.record("db-1"), reason="test")
    world.keep_all(["web", "db"])
    assert alive(world, "web") == ["web-1"]


def test_the_oldest_ready_warm_instance_takes_the_place_of_a_missing_one(world):
    put(world, min=2, warm=2, memory_mb=10)
    world.keep()
    assert [world.record(id).warm for id in alive(world, "lobby")] == [False, False, True, True]
    running(world, "lobby-1", "lobby-2", "lobby-4")
    world.do(order_stop, world.record("lobby-1"), reason="test")
    result = world.keep_all(["lobby"])
    kinds = [(each.kind, each.rule, each.instance) for each in result.decisions]
    assert kinds == [
        (DecisionKind.PROMOTE, Rule.WARM_PROMOTE, "lobby-4"),
        (DecisionKind.START, Rule.WARM_REFILL, "lobby-5"),
    ]
    assert not world.record("lobby-4").warm
    assert world.record("lobby-5").warm
    assert "INSTANCE_PROMOTED" in world.types()
    assert world.planned(["lobby"]).decisions == ()


def test_fewer_warm_ones_wanted_stops_the_youngest_and_none_that_serves(world):
    world.do(create_group, spec(min=1, warm=3))
    world.keep()
    running(world, *alive(world, "lobby"))
    world.do(patch_group, "lobby", {"warm": 1})
    result = world.keep_all(["lobby"])
    assert [(each.rule, each.instance) for each in result.decisions] == [
        (Rule.SURPLUS_STOP, "lobby-4"),
        (Rule.SURPLUS_STOP, "lobby-3"),
    ]


def test_warm_ones_come_on_top_of_the_maximum(world):
    world.do(create_group, spec(min=1, max=1, warm=2))
    world.keep()
    assert len(alive(world, "lobby")) == 3


def test_a_start_waits_for_the_only_fitting_node_while_that_reconnects(world):
    world.add_node(N1, state=NodeState.DISCONNECTED, state_since=NOW)
    put(world, min=1)
    result = world.keep_all(["lobby"])
    assert [(each.kind, each.rule) for each in result.decisions] == [(DecisionKind.SKIP, Rule.RECONNECT_WAIT)]
    assert result.wake_at == NOW + dt.timedelta(seconds=30)
    assert "waits for node 'n1' to reconnect" in world.group().reason
    world.now = NOW + dt.timedelta(seconds=31)
    refused = world.keep_all(["lobby"])
    assert [each.rule for each in refused.decisions] == [Rule.PLACE_REFUSE]


def test_a_node_where_the_group_failed_lately_is_taken_last(world):
    world.add_node(NodeId("n2"), memory=100)
    put(world, min=1, memory_mb=50)
    failed = msgspec.structs.replace(world.group(), failed_on={"n1": NOW})
    world.apply([GROUPS.put("lobby", failed, expect=world.state.groups.revision("lobby"))])
    world.keep()
    assert world.record("lobby-1").node == "n2"
    put(world, name="other", min=1, memory_mb=50)
    world.keep("other")
    assert world.record("other-1").node == "n1"


def test_static_names_are_the_ids_of_the_first_instances(world):
    put(world, min=3, static_names=("hub", "spawn"))
    world.keep()
    assert sorted(alive(world, "lobby")) == ["hub", "lobby-3", "spawn"]


def test_more_than_a_pass_may_start_is_left_for_the_next_and_no_group_starves(world):
    for number in range(4):
        put(world, name=f"g{number}", min=5)
    first = world.keep_all(names(world), PassLimits(starts=8, starts_of_group=2))
    assert [len(alive(world, name)) for name in names(world)] == [2, 2, 2, 2]
    assert sorted(first.unfinished) == ["g0", "g1", "g2", "g3"]
    assert settle(world, PassLimits(starts=8, starts_of_group=2)) == 2
    assert [len(alive(world, name)) for name in names(world)] == [5, 5, 5, 5]


def test_a_refusal_counts_what_was_started_before_it_in_the_same_pass(world):
    put(world, min=5, memory_mb=300)
    put(world, name="spare", min=0, warm=2, memory_mb=90)
    refusals = [each for each in world.keep_all(["lobby", "spare"]).decisions if each.refusal is not None]
    assert [(each.group, each.reason.partition(";")[0], each.inputs["present"]) for each in refusals] == [
        ("lobby", "5 are wanted, 3 are there", 3),
        ("spare", "2 warm ones are wanted, 1 is there", 0),
    ]


def test_a_group_without_room_is_not_tried_again_and_again(world):
    put(world, min=100, memory_mb=100)
    assert world.keep_all(["lobby"]).unfinished == ("lobby",)
    assert world.keep_all(["lobby"]).unfinished == ()
    assert (len(alive(world, "lobby")), world.group().reason[:11]) == (10, "NO_CAPACITY")


def test_a_cordoned_node_is_named_with_its_reason(world):
    stored = world.state.nodes.require("n1")
    cordoned = msgspec.structs.replace(
        stored.record, admission=Admission.CORDONED, admission_reason="kernel update"
    )
    world.apply([NODES.put("n1", cordoned, expect=stored.revision)])
    put(world, min=1)
    result = world.keep_all(["lobby"])
    assert result.groups["lobby"].refusal.refusals[0].reason == "it is cordoned: kernel update"
