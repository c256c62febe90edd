"""What would change a refusal: each named condition, applied to the snapshot, makes the planner place the run."""

from __future__ import annotations

import datetime as dt
import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.decisions import DecisionKind
from corral.domain.groups.group import DependencySpec, GroupSpec, PortSpec, SpreadSpec
from corral.domain.groups.instance_records import CrashLoop, GroupRecord, Hold, Reservation
from corral.domain.ids import Incarnation, InstanceId
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.counterfactuals import Counterfactual, group_counterfactuals
from corral.domain.planning.node_usage import LeasedPorts, Usage, port_keys, usage_of
from corral.domain.planning.node_views import NodeView
from corral.domain.planning.planner import plan
from corral.domain.planning.signals import Signals
from corral.domain.planning.start_requests import StartRequest
from corral.domain.planning.tallies import GroupTally

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def usage(memory_mb: int = 0, cpu: float = 0.0) -> Usage:
    run = Reservation(instance=InstanceId("x-1"), incarnation=Incarnation(1), memory_mb=memory_mb, cpu=cpu)
    return usage_of([run])


class Snapshot(Signals):
    """A group without instances, and nodes."""

    cpu_overcommit = 1.0
    now = NOW
    steady = NOW
    emptied: frozenset[str] = frozenset()

    def __init__(self, spec: GroupSpec, nodes, *, runs=None, home="", **fields) -> None:
        self._home = home
        self.record = GroupRecord(spec=spec, created_at=NOW, updated_at=NOW, **fields)
        self._nodes = list(nodes)
        self._runs = runs or {}

    def group(self, name):
        return self.record if name == self.record.spec.name else None

    def tally(self, group):
        return GroupTally()

    def instances_of(self, group):
        return []

    def pause_over(self, group):
        return self.record.paused is None

    def unreadable_of(self, group):
        return []

    def start_requests(self, group, *, reason):
        for number in itertools.count(1):
            yield StartRequest(id=InstanceId(f"{group.spec.name}-{number}"), reason=reason)

    def as_started(self, group, request):
        del request
        return group

    def unstartable(self, group, request):
        return None

    def home_of(self, group, request):
        return self._home

    def chosen_node(self, request):
        return None

    def nodes(self):
        return self._nodes

    def runs_by_node(self, group):
        return self._runs.get(group, {})

    def changed(self, found: Counterfactual) -> Snapshot:
        """The snapshot in which the condition is met."""
        spec, nodes = self.record.spec, {node.id: node for node in self._nodes}
        for each in found.changes:
            if each.node:
                nodes[each.node] = msgspec.structs.replace(nodes[each.node], **{each.field: each.value})
            else:
                spec = msgspec.structs.replace(spec, **{each.field: each.value})
        return Snapshot(spec, nodes.values(), runs=self._runs, home=self._home)


def asked(snapshot: Snapshot) -> list[Counterfactual]:
    found = plan(snapshot, ["lobby"]).groups["lobby"]
    return group_counterfactuals(snapshot, snapshot.record, found)


def started_on(snapshot: Snapshot) -> list[str]:
    decisions = plan(snapshot, ["lobby"]).decisions
    return [each.placement.node for each in decisions if each.kind is DecisionKind.START]


def spec(**fields) -> GroupSpec:
    return GroupSpec(**{"name": "lobby", "command": ("serve",), "min": 1, **fields})


def node(id="n1", **fields) -> NodeView:
    return NodeView(**{"id": id, "memory_mb": 1000, "cpus": 4, **fields})


NODES = st.builds(
    node,
    state=st.sampled_from([NodeState.ONLINE, NodeState.ONLINE, NodeState.DISCONNECTED, NodeState.ENROLLED]),
    admission=st.sampled_from([Admission.OPEN, Admission.OPEN, Admission.CORDONED, Admission.DRAINING]),
    labels=st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}]),
    memory_mb=st.integers(0, 1500),
    cpus=st.integers(1, 4),
    free_disk_mb=st.one_of(st.none(), st.integers(0, 1500)),
    preparing_disk_mb=st.integers(0, 500),
    usage=st.builds(usage, memory_mb=st.integers(0, 1500), cpu=st.floats(0, 5).map(lambda x: round(x, 2))),
)
SPECS = st.builds(
    spec,
    memory_mb=st.integers(0, 2000),
    cpu=st.floats(0, 6).map(lambda x: round(x, 2)),
    disk_mb=st.integers(0, 2000),
    node_labels=st.sampled_from([{}, {"zone": "a"}]),
    nodes=st.sampled_from([(), (), ("n1",)]),
)


@given(spec=SPECS, nodes=st.lists(NODES, min_size=1, max_size=4))
def test_each_condition_that_is_named_makes_the_planner_place_the_run(spec, nodes):
    snapshot = Snapshot(spec, [msgspec.structs.replace(n, id=f"n{i}") for i, n in enumerate(nodes, 1)])
    if started_on(snapshot):
        return
    for found in asked(snapshot):
        assert found.changes, found
        assert started_on(snapshot.changed(found)) == [found.node], found


@pytest.mark.parametrize(
    ("group", "nodes", "conditions"),
    [
        (
            {"memory_mb": 512},
            [node(memory_mb=8192, usage=usage(7808)), node("n2", admission=Admission.DRAINING)],
            ["128 MB on n1", "undrain n2", "memory_mb ≤ 384"],
        ),
        ({"cpu": 2.5}, [node(cpus=2)], ["a larger node: 2.5 CPUs are wanted, n1 has 2 in all", "cpu ≤ 2"]),
        ({"disk_mb": 100}, [node(free_disk_mb=60)], ["40 MB of disk on n1", "disk_mb ≤ 60"]),
        ({"disk_mb": 100}, [node()], ["n1 reports its free disk"]),
        ({}, [node(admission=Admission.CORDONED)], ["uncordon n1"]),
        ({}, [node(state=NodeState.UNREACHABLE)], ["n1 reconnects"]),
        ({}, [node(state=NodeState.ENROLLED)], ["n1 connects"]),
        ({}, [node(state=NodeState.REVOKED)], []),
        ({"node_labels": {"zone": "a"}}, [node(labels={"zone": "b"})], ["label zone=a on n1"]),
        ({"nodes": ("other",)}, [node()], ["n1 in 'nodes'"]),
        ({"runtime": "docker"}, [node()], ["runtime 'docker' on n1"]),
        (
            {"memory_mb": 700, "cpu": 3},
            [node(usage=usage(400, 2))],
            ["100 MB on n1 and 1 CPUs on n1"],
        ),
        (
            {"memory_mb": 2000},
            [node(memory_mb=1900), node("n2")],
            ["a larger node: 2000 MB are wanted, n1 has 1900 in all", "memory_mb ≤ 1900"],
        ),
        (
            {"memory_mb": 500},
            [node(memory_mb=400, host_memory_mb=8000, usage=usage(304))],
            ["corral node cap n1 --memory-mb 804", "memory_mb ≤ 96"],
        ),
        (
            {"memory_mb": 300},
            [node(memory_mb=400, host_memory_mb=8000, usage=usage(304))],
            ["204 MB on n1, or corral node cap n1 --memory-mb 604", "memory_mb ≤ 96"],
        ),
        (
            {"memory_mb": 500},
            [node(memory_mb=400, host_memory_mb=600, usage=usage(304))],
            ["corral node cap n1 --memory-mb 600 and 204 MB on n1", "memory_mb ≤ 96"],
        ),
        ({"cpu": 2.5}, [node(cpus=2, host_cpus=8)], ["corral node cap n1 --cpus 3", "cpu ≤ 2"]),
    ],
)
def test_the_failing_comparison_is_turned_round(group, nodes, conditions):
    snapshot = Snapshot(spec(**group), nodes)
    found = asked(snapshot)
    assert [each.condition for each in found] == conditions
    assert all(started_on(snapshot.changed(each)) for each in found)


def test_ports_need_a_wider_range():
    leased = LeasedPorts()
    for key in port_keys(30000, "tcp"):
        leased.add(key)
    group = spec(ports={"game": PortSpec(range=(30000, 30000))})
    [found] = asked(Snapshot(group, [node(leased=leased)]))
    assert found.condition == "a wider range of 'game', or a free one on n1"


def test_a_skew_needs_another_bound():
    group = spec(min=1, spread=(SpreadSpec(by="zone", max_skew=1),))
    nodes = [node(labels={"zone": "a"}), node("n2", labels={"zone": "b"}, memory_mb=10)]
    snapshot = Snapshot(msgspec.structs.replace(group, memory_mb=100), nodes, runs={"lobby": {"n1": 1}})
    found = asked(snapshot)
    assert "max_skew ≥ 2" in [each.condition for each in found]
    assert all(started_on(snapshot.changed(each)) for each in found)


def test_waits_name_when_they_end():
    pause = CrashLoop(since=NOW, until=NOW + dt.timedelta(minutes=1), pauses=1, reason="boom")
    found = asked(Snapshot(spec(), [node()], paused=pause))
    assert [(each.condition, each.at) for each in found] == [
        ("the pause ends", pause.until),
        ("corral group unpause lobby", None),
    ]
    until = NOW + dt.timedelta(seconds=20)
    found = asked(Snapshot(spec(), [node(state=NodeState.DISCONNECTED, reconnect_until=until)]))
    assert [(each.condition, each.at) for each in found] == [
        ("n1 reconnects", None),
        ("it is no longer waited for n1", until),
    ]


def test_a_hold_a_dependency_and_a_maximum_are_named():
    hold = Hold(by="ann", reason="fair", since=NOW)
    assert [each.condition for each in asked(Snapshot(spec(), [node()], hold=hold))] == [
        "corral group release lobby"
    ]
    needs_db = spec(depends_on=(DependencySpec(group="db", ready=1),))
    assert [each.condition for each in asked(Snapshot(needs_db, [node()]))] == ["'db' has 1 ready"]
    assert [each.condition for each in asked(Snapshot(spec(min=0, max=0), [node()]))] == ["max > 0"]


def test_a_static_instance_needs_its_own_node():
    nodes = [node(state=NodeState.UNREACHABLE), node("n2")]
    snapshot = Snapshot(spec(static=True), nodes, home="n1")
    [found] = asked(snapshot)
    assert found.condition == "n1 reconnects"
    assert started_on(snapshot.changed(found)) == ["n1"]


@pytest.mark.parametrize(("spread", "tried"), [((), 8), ((SpreadSpec(by="zone"),), 3)])
def test_fewer_nodes_are_tried_where_each_trial_counts_over_all(spread, tried):
    nodes = [
        node(f"n{number:02}", admission=Admission.CORDONED, labels={"zone": "a"}) for number in range(20)
    ]
    found = asked(Snapshot(spec(min=1, spread=spread), nodes))
    assert [each.condition for each in found] == [f"uncordon n{number:02}" for number in range(tried)]
