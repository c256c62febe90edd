"""Placement: filters, score, ports, and words for what was refused."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.groups.group import (
    NODE_CAPABILITIES,
    AffinitySpec,
    GroupSpec,
    PortProtocol,
    PortSpec,
    SpreadSpec,
)
from corral.domain.groups.instance_records import LeasedPort, NodeLedger, Reservation
from corral.domain.ids import Incarnation, InstanceId, NodeId
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.node_table import NodeTable
from corral.domain.planning.node_usage import LeasedPorts, port_keys, usage_of
from corral.domain.planning.node_views import BUSY, NodeView, node_views, refused_ports
from corral.domain.planning.placement import Placement, PlacementChoice, PlacementRequest
from corral.domain.planning.placement import place as placed
from corral.domain.planning.ports import NoPort, choose_ports
from corral.domain.planning.refusals import PlacementRefusal, RefusalCode, sentence
from corral.domain.records import NodeRecord
from corral.errors import Code
from corral.sdk.runtime import RuntimeCapabilities

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
TCP, UDP, BOTH = PortProtocol.TCP, PortProtocol.UDP, PortProtocol.BOTH


def spec(**fields) -> GroupSpec:
    return GroupSpec(name="lobby", command=("serve",), **fields)


def node(id="n1", **fields) -> NodeView:
    return NodeView(**{"id": id, "memory_mb": 1000, "cpus": 4, **fields})


def leasing(*keys) -> LeasedPorts:
    ports = LeasedPorts()
    for key in keys:
        ports.add(key)
    return ports


def place(wanted: GroupSpec, nodes, runs=None, **request) -> Placement | PlacementRefusal:
    """`runs`: by group and node."""
    table = NodeTable(nodes, lambda group: (runs or {}).get(group, {}))
    return placed(table, wanted, PlacementRequest(instance="lobby-1", **request))


def code(found) -> RefusalCode:
    assert isinstance(found, PlacementRefusal)
    return found.refusals[0].code


@pytest.mark.parametrize(
    ("wanted", "given", "expected"),
    [
        ({}, {"state": NodeState.DISCONNECTED}, RefusalCode.STATE),
        ({}, {"admission": Admission.CORDONED}, RefusalCode.ADMISSION),
        ({"nodes": ("n2",)}, {}, RefusalCode.CHOICE),
        ({"node_labels": {"zone": "a"}}, {"labels": {"zone": "b"}}, RefusalCode.LABELS),
        ({"node_capabilities": ("memory-limit",)}, {"capabilities": {"cpu-limit"}}, RefusalCode.CAPABILITY),
        ({}, {"runtimes": frozenset({"tmux"})}, RefusalCode.RUNTIME),
        ({"memory_mb": 1001}, {}, RefusalCode.MEMORY),
        ({"cpu": 4.5}, {}, RefusalCode.CPU),
        ({"disk_mb": 1}, {}, RefusalCode.DISK),
        ({"disk_mb": 11}, {"free_disk_mb": 20, "preparing_disk_mb": 10}, RefusalCode.DISK),
        ({"affinity": (AffinitySpec(group="db", required=True),)}, {}, RefusalCode.AFFINITY),
        ({"affinity": (AffinitySpec(label="zone=a", required=True),)}, {}, RefusalCode.AFFINITY),
        (
            {"affinity": (AffinitySpec(label="zone=a", weight=-1, required=True),)},
            {"labels": {"zone": "a"}},
            RefusalCode.AFFINITY,
        ),
        ({"spread": (SpreadSpec(by="zone", max_skew=1),)}, {}, RefusalCode.SKEW),
        ({}, {"state": NodeState.DISCONNECTED, "reconnect_until": NOW}, RefusalCode.RECONNECTING),
        (
            {"memory_mb": 1001},
            {"state": NodeState.DISCONNECTED, "reconnect_until": NOW},
            RefusalCode.MEMORY,
        ),
        (
            {"ports": {"p": PortSpec(port=80)}},
            {"state": NodeState.DISCONNECTED, "reconnect_until": NOW, "leased": leasing((80, TCP))},
            RefusalCode.PORTS,
        ),
        ({"memory_mb": 1001}, {"state": NodeState.DISCONNECTED}, RefusalCode.STATE),
        ({"ports": {"p": PortSpec(port=80)}}, {"leased": leasing((80, TCP))}, RefusalCode.PORTS),
        ({"ports": {"p": PortSpec(port=80)}}, {"refused": frozenset({(80, UDP)})}, RefusalCode.PORTS),
    ],
)
def test_each_obstacle_is_named_by_itself(wanted, given, expected):
    assert code(place(spec(**wanted), [node(**given)])) is expected


def test_a_refusal_tells_every_node_and_the_code_of_its_cause():
    found = place(spec(memory_mb=5000), [node("a"), node("b", state=NodeState.UNREACHABLE)])
    assert found.code is Code.NO_CAPACITY
    error = found.error("lobby")
    assert "a: 5000 MB are wanted, 1000 of 1000 MB are free" in error.message
    assert "b: it is UNREACHABLE" in error.message
    taken = node(leased=leasing(*port_keys(80, BOTH)))
    assert place(spec(ports={"p": PortSpec(port=80)}), [taken]).code is Code.PORT_RANGE_EXHAUSTED
    assert "enrol" in place(spec(), []).summary


def test_the_emptier_node_wins_and_a_hash_breaks_ties():
    full = usage_of([reservation(memory=500)])
    found = place(spec(memory_mb=100), [node("a", usage=full), node("b")])
    assert isinstance(found, Placement)
    assert found.node == "b"
    assert found.below == 1
    [other] = found.alternatives()
    assert (other.subject, other.numbers["best"]) == ("node/a", found.score)
    assert sentence(other.code, other.numbers).startswith("could score 0.731818 at most")
    assert place(spec(), [node("a", usage=full), node("b")], prefer="a").alternatives() == []
    tied = place(spec(), [node("b"), node("a")])
    assert tied == place(spec(), [node("a"), node("b")])
    assert {tied.node, *tied.ties} == {"a", "b"}
    assert place(spec(), [node("b"), node("a")], prefer="b").node == "b"
    assert place(spec(), [node("b"), node("a")], avoid="a").node == "b"
    assert place(spec(), [node("a")], avoid="a").node == "a"


@pytest.mark.parametrize(
    ("others", "wanted", "chosen", "expected"),
    [
        ([], {}, "n1", PlacementChoice.ONLY),
        ([node("n2", memory_mb=10)], {"avoid": "n1"}, "n1", PlacementChoice.ONLY),
        ([node("n2")], {"failed_on": frozenset({"n2"})}, "n1", PlacementChoice.BEST),
        ([node("n2")], {"prefer": "n1", "failed_on": frozenset({"n1"})}, "n1", PlacementChoice.KEPT),
        ([node("n2")], {"avoid": "n1", "failed_on": frozenset({"n2"})}, "n2", PlacementChoice.ELSEWHERE),
        ([node("n2")], {"only": "n1", "failed_on": frozenset({"n1"})}, "n1", PlacementChoice.BOUND),
        ([node("n2")], {"only": "n1", "at_home": True}, "n1", PlacementChoice.HOME),
    ],
)
def test_a_placement_says_by_what_its_node_was_chosen(others, wanted, chosen, expected):
    found = place(spec(memory_mb=100), [node(), *others], **wanted)
    assert isinstance(found, Placement)
    assert (found.node, found.choice) == (chosen, expected)


@pytest.mark.parametrize(
    ("wanted", "given", "expected"),
    [
        ({"nodes": ("n1",)}, {}, RefusalCode.CHOICE),
        ({"node_labels": {"zone": "a"}}, {"labels": {}}, RefusalCode.LABELS),
        ({}, {"runtimes": frozenset({"tmux"})}, RefusalCode.RUNTIME),
        ({"node_capabilities": ("memory-limit",)}, {"capabilities": frozenset()}, RefusalCode.CAPABILITY),
    ],
)
def test_a_node_that_never_suits_is_excluded_though_its_score_could_not_win(wanted, given, expected):
    traits = {"labels": {"zone": "a"}, "capabilities": frozenset({"memory-limit"})}
    small = node("n2", **{**traits, "usage": usage_of([reservation(memory=500)]), **given})
    found = place(spec(**wanted), [node("n1", **traits), small])
    assert isinstance(found, Placement)
    assert (found.node, found.below, found.bounds) == ("n1", 0, ())
    assert [(each.node, each.code) for each in found.refusals] == [("n2", expected)]
    assert found.choice is PlacementChoice.ONLY
    assert found.counts() == {expected.value: 1}


def test_a_placement_says_that_it_was_a_tie():
    found = place(spec(memory_mb=100), [node("n1"), node("n2")])
    assert isinstance(found, Placement)
    assert found.choice is PlacementChoice.TIE


@pytest.mark.parametrize(
    "elsewhere",
    [AffinitySpec(label="disk=ssd", required=True), AffinitySpec(group="db", required=True)],
    ids=["label", "group"],
)
def test_a_node_that_a_required_affinity_excludes_is_no_empty_place(elsewhere):
    """Otherwise it would keep every other from growing."""
    wanted = spec(spread=(SpreadSpec(max_skew=1),), affinity=(elsewhere,))
    nodes = [node("n1", labels={"disk": "ssd"}), node("n2")]
    found = place(wanted, nodes, runs={"lobby": {"n1": 1}, "db": {"n1": 1}})
    assert isinstance(found, Placement), found
    assert found.node == "n1"


def test_fixed_ports_are_taken_before_ranges():
    ports = {"a": PortSpec(range=(80, 81)), "b": PortSpec(port=80)}
    chosen = {p.name: p.port for p in choose_ports(ports, leased=frozenset(), refused=frozenset())}
    assert chosen == {"a": 81, "b": 80}


def test_two_transports_of_one_number_are_two_ports():
    ports = {"a": PortSpec(port=80, protocol=TCP), "b": PortSpec(port=80, protocol=UDP)}
    assert len(choose_ports(ports, leased=frozenset(), refused=frozenset())) == 2
    with pytest.raises(NoPort, match="port 'c'"):
        choose_ports({"c": PortSpec(port=80)}, leased={(80, UDP)}, refused=frozenset())


def pair(**root) -> dict[str, PortSpec]:
    return {
        "primary": PortSpec(protocol=UDP, **root),
        "info": PortSpec(of="primary", offset=1, protocol=UDP),
    }


@pytest.mark.trap("T89")
def test_tied_ports_are_chosen_together_or_not_at_all():
    def chosen(*leased: int) -> dict[str, int]:
        held = {(number, UDP) for number in leased}
        ports = choose_ports(pair(range=(60, 64)), leased=held, refused=frozenset())
        return {port.name: port.port for port in ports}

    assert chosen() == {"primary": 60, "info": 61}
    assert chosen(60, 61) == {"primary": 62, "info": 63}
    assert chosen(61) == {"primary": 62, "info": 63}
    with pytest.raises(NoPort, match=r"60-64 \(udp; 'info' = primary\+1 udp\) is taken: 3 leased"):
        chosen(61, 63, 65)


def test_ties_may_go_on_and_go_down():
    ports = {
        "a": PortSpec(of="b", offset=-2),
        "b": PortSpec(of="c", offset=5),
        "c": PortSpec(range=(80, 90)),
    }
    found = choose_ports(ports, leased={(83, TCP)}, refused=frozenset())
    assert {port.name: port.port for port in found} == {"a": 84, "b": 86, "c": 81}


@settings(max_examples=60, deadline=None)
@given(st.sets(st.integers(1000, 1700), max_size=500), st.sets(st.integers(1000, 1700)), st.integers(1, 3))
def test_many_tied_ports_get_the_lowest_number_at_which_all_are_free(tcp, udp, step):
    """Far more of them than are compared one after the other."""
    ports = {"root": PortSpec(range=(1000, 1100))}
    ports |= {f"p{n}": PortSpec(of="root", offset=step * (n - 90)) for n in range(200) if n != 90}
    ports = {
        name: msgspec.structs.replace(each, protocol=PortProtocol.TCP if at % 3 else PortProtocol.BOTH)
        for at, (name, each) in enumerate(ports.items())
    }
    leased = leasing(*((n, PortProtocol.TCP) for n in tcp))
    refused = {(n, PortProtocol.UDP) for n in udp}
    free = [
        number
        for number in range(1000, 1101)
        if not any(
            key in leased or key in refused
            for each in ports.values()
            for key in port_keys(number + each.offset, each.protocol)
        )
    ]
    if free:
        chosen = choose_ports(ports, leased=leased, refused=refused)
        assert next(port.port for port in chosen if port.name == "root") == free[0]
        return
    with pytest.raises(NoPort) as caught:
        choose_ports(ports, leased=leased, refused=refused)
    assert len(str(caught.value)) < 500


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(10, 14), st.sampled_from(PortProtocol)), min_size=1, max_size=6),
    st.sets(st.integers(10, 24)),
    st.dictionaries(st.integers(0, 5), st.integers(10, 24)),
)
def test_ports_of_overlapping_ranges_get_the_lowest_that_is_left_to_each(ranges, leased, last):
    """As if each were looked for from the beginning of its range."""
    ports = {f"p{at}": PortSpec(range=(low, 24), protocol=kind) for at, (low, kind) in enumerate(ranges)}
    before = [
        LeasedPort(name=f"p{at}", port=number, protocol=ports[f"p{at}"].protocol)
        for at, number in last.items()
        if at < len(ports)
    ]
    occupied = {(n, PortProtocol.TCP) for n in leased}
    taken, expected = set(occupied), {}
    had = {port.name: port.port for port in before}
    for name in sorted(ports, key=lambda each: (each not in had, each)):
        low, high = ports[name].bounds()
        numbers = [had[name]] if name in had and low <= had[name] <= high else []
        keys = {n: set(port_keys(n, ports[name].protocol)) for n in (*numbers, *range(low, high + 1))}
        expected[name] = next((n for n in (*numbers, *range(low, high + 1)) if not keys[n] & taken), None)
        if expected[name] is None:
            break
        taken |= keys[expected[name]]
    if None in expected.values():
        with pytest.raises(NoPort):
            choose_ports(ports, leased=leasing(*occupied), refused=frozenset(), last=before)
        return
    chosen = choose_ports(ports, leased=leasing(*occupied), refused=frozenset(), last=before)
    assert {port.name: port.port for port in chosen} == expected


def test_a_tied_set_names_how_many_of_its_numbers_are_taken():
    ports = {"root": PortSpec(range=(100, 101)), "far": PortSpec(of="root", offset=50)}
    leased = leasing((100, PortProtocol.TCP), (151, PortProtocol.UDP), (120, PortProtocol.TCP))
    with pytest.raises(NoPort) as caught:
        choose_ports(ports, leased=leased, refused=frozenset())
    assert str(caught.value).endswith("is taken: 2 leased")


def test_a_refused_port_is_free_again_after_its_time_even_if_the_clock_goes_back():
    busy = NodeLedger(node=NodeId("a"), refused_ports={"80/tcp": NOW + BUSY})
    assert refused_ports(busy, NOW) == {(80, TCP)}
    assert refused_ports(busy, NOW + BUSY) == frozenset()
    assert refused_ports(busy, NOW - dt.timedelta(hours=1)) == frozenset()


def reservation(*, memory: int = 0, ports: tuple[LeasedPort, ...] = ()) -> Reservation:
    return Reservation(
        instance=InstanceId("x-1"), incarnation=Incarnation(1024), memory_mb=memory, ports=ports
    )


class Books:
    """Reservations of a test."""

    def __init__(self, **held: Reservation) -> None:
        self.held = {node: [run] for node, run in held.items()}

    def ledger(self, node):
        return NodeLedger(node=NodeId(node))

    def usage(self, node):
        return usage_of(self.held.get(node, ()))

    def take(self, found: Placement, number: int, memory: int) -> None:
        run = Reservation(
            instance=InstanceId(f"i-{number}"),
            incarnation=Incarnation(1024 * (number + 1)),
            memory_mb=memory,
            ports=found.ports,
        )
        self.held.setdefault(found.node, []).append(run)


def host(id: str, address: str, memory: int) -> NodeRecord:
    return NodeRecord(
        id=NodeId(id),
        state=NodeState.ONLINE,
        state_since=NOW,
        reason="",
        enrolled_at=NOW,
        serials=(),
        address=address,
        memory_mb=memory,
        runtimes=("process",),
    )


def test_nodes_of_one_address_share_its_ports():
    leased = LeasedPort(name="p", port=80, protocol=BOTH)
    views = node_views(
        [host("a", "one", 10), host("b", "one", 10), host("c", "two", 10)],
        Books(a=reservation(ports=(leased,))),
        NOW,
    )
    assert [len(view.leased) for view in views] == [2, 2, 0]


low = st.integers(1, 12)
port_specs = st.builds(
    lambda low, width, fixed, protocol: (
        PortSpec(port=low, protocol=protocol)
        if fixed
        else PortSpec(range=(low, low + width), protocol=protocol)
    ),
    low,
    st.integers(0, 8),
    st.booleans(),
    st.sampled_from(PortProtocol),
)
specs = st.builds(
    lambda memory, ports: spec(memory_mb=memory, ports=ports),
    st.integers(0, 400),
    st.dictionaries(st.sampled_from(["primary", "query", "rcon"]), port_specs, max_size=3),
)


@pytest.mark.trap("T21")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["one", "two", ""]), st.integers(0, 1500)), min_size=1, max_size=4),
    st.lists(specs, max_size=25),
)
def test_no_sequence_of_placements_leases_a_port_twice_or_promises_memory_twice(hosts, wanted):
    records = [host(f"n{i}", address, memory) for i, (address, memory) in enumerate(hosts)]
    books = Books()
    for number, each in enumerate(wanted):
        found = place(each, node_views(records, books, NOW))
        assert found == place(each, node_views(records, books, NOW)), "the same question, the same answer"
        if isinstance(found, Placement):
            books.take(found, number, each.memory_mb)
    taken = [
        (record.address or record.id, key)
        for record in records
        for run in books.held.get(record.id, ())
        for port in run.ports
        for key in port_keys(port.port, port.protocol)
    ]
    assert len(taken) == len(set(taken))
    assert all(books.usage(record.id).memory_mb <= record.memory_mb for record in records)


def test_every_capability_that_a_node_may_prove_can_be_asked_for():
    holding = RuntimeCapabilities(
        kill_tree=True, freeze=True, memory_limit=True, cpu_limit=True, tty=True, run_as=True
    )
    assert holding.names() == NODE_CAPABILITIES
