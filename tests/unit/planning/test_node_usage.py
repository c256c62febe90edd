"""Sums and ports of reservations equal a recount; what placement asks of them is what a walk finds."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.controller.state.indexed_mirrors import ReservationMirror
from corral.domain.groups.group import PortProtocol, PortSpec
from corral.domain.groups.instance_records import LeasedPort, Reservation
from corral.domain.ids import Incarnation, InstanceId
from corral.domain.planning.node_usage import PortKey, PortLookup, SharedPorts, Usage, port_keys, usage_of
from corral.domain.planning.ports import NoPort, choose_ports, free_share
from corral.store.port import encode

TRANSPORTS = (PortProtocol.TCP, PortProtocol.UDP)
IDS = st.sampled_from(("a-1", "a-2", "b-1", "b-2", "c-1"))
NODES = st.sampled_from(("n1", "n2"))
NUMBERS = range(12)

PORTS = st.builds(
    LeasedPort, name=st.just("p"), port=st.integers(1, 10), protocol=st.sampled_from(PortProtocol)
)
RUNS = st.builds(
    Reservation,
    instance=IDS.map(InstanceId),
    incarnation=st.just(Incarnation(1024)),
    memory_mb=st.integers(0, 100),
    cpu=st.sampled_from((0.0, 0.1, 0.25, 1.7)),
    ports=st.lists(PORTS, max_size=3).map(tuple),
)
CHANGES = st.lists(st.tuples(NODES, IDS, st.one_of(st.none(), RUNS)), max_size=30)


def keys_of(runs: Iterable[Reservation]) -> set[PortKey]:
    return {key for run in runs for port in run.ports for key in port_keys(port.port, port.protocol)}


def check(usage: Usage, runs: list[Reservation]) -> None:
    assert usage.memory_mb == sum(run.memory_mb for run in runs)
    assert abs(usage.cpu - sum(run.cpu for run in runs)) < 1e-9
    assert usage.runs == len(runs)
    check_ports(usage.ports, keys_of(runs))


def check_ports(ports: PortLookup, keys: set[PortKey], *, counts: bool = True) -> None:
    assert set(ports) == keys
    assert len(ports) == len(keys)
    for number in NUMBERS:
        for kind in TRANSPORTS:
            assert ((number, kind) in ports) == ((number, kind) in keys)
            assert ports.next_free(number, kind) == next(
                n for n in range(number, 99) if (n, kind) not in keys
            )
        if counts and number <= 9:
            assert ports.count(number, 9) == sum(number <= n <= 9 for n, _ in keys)


@settings(deadline=None)
@given(CHANGES, CHANGES)
def test_kept_sums_equal_a_recount_also_under_the_changes_of_a_transaction(stored, changed):
    mirror = ReservationMirror()
    model: dict[str, Reservation] = {}
    for revision, (node, id, run) in enumerate(stored, start=1):
        mirror.fold(f"{node}/{id}", revision, None if run is None else encode(run))
        model.pop(f"{node}/{id}", None)
        if run is not None:
            model[f"{node}/{id}"] = run
    anew = ReservationMirror()
    for id, run in model.items():  # as a snapshot of the store is loaded
        anew.fold(id, 1, encode(run))
    for node in ("n1", "n2"):
        runs = [run for id, run in model.items() if id.startswith(node)]
        check(mirror.usage(node), runs)
        check(anew.usage(node), runs)
        assert len(mirror.of_node(node)) == len(runs)
        own = {f"{node}/{id}": run for at, id, run in changed if at == node}
        removed = usage_of(model[id] for id in own if id in model)
        added = usage_of(run for run in own.values() if run is not None)
        left = {id: run for id, run in model.items() if id.startswith(node)} | own
        check(
            mirror.usage(node).changed_by(added, removed), [run for run in left.values() if run is not None]
        )
    both = SharedPorts([mirror.usage("n1").ports, mirror.usage("n2").ports])
    check_ports(both, keys_of(model.values()), counts=False)


SPECS = st.fixed_dictionaries(
    {
        "root": st.builds(
            lambda low, width, protocol: PortSpec(range=(low, low + width), protocol=protocol),
            st.integers(1, 8),
            st.integers(0, 6),
            st.sampled_from(PortProtocol),
        ),
        "tied": st.builds(
            lambda offset, protocol: PortSpec(of="root", offset=offset, protocol=protocol),
            st.sampled_from((1, 2, 3)),
            st.sampled_from(PortProtocol),
        ),
    }
)


@settings(deadline=None)
@given(SPECS, st.lists(RUNS, max_size=4), st.sets(st.tuples(st.integers(1, 12), st.sampled_from(TRANSPORTS))))
def test_the_lowest_ports_that_are_free_together_are_found_as_by_a_walk(specs, runs, refused):
    leased = usage_of(runs).ports
    root, tied = specs["root"], specs["tied"]
    low, high = root.bounds()
    expected = next(
        (
            number
            for number in range(low, high + 1)
            if not any(
                key in leased or key in refused
                for key in (
                    *port_keys(number, root.protocol),
                    *port_keys(number + tied.offset, tied.protocol),
                )
            )
        ),
        None,
    )
    try:
        chosen = {port.name: port.port for port in choose_ports(specs, leased=leased, refused=refused)}
    except NoPort:
        chosen = {}
    assert chosen == ({} if expected is None else {"root": expected, "tied": expected + tied.offset})
    assert free_share(specs, leased) == free_share(specs, frozenset(leased))
