"""What placement knows of a node, and how it is put together from the state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from corral.controller.state.indexed_mirrors import PortKey, Usage, port_keys
from corral.domain.groups import PortProtocol
from corral.domain.instance_records import NodeLedger
from corral.domain.node_states import Admission, NodeState
from corral.domain.records import NodeRecord

BUSY: Final = dt.timedelta(seconds=60)
"""How long a port that a node found in use is left alone."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as of now: what it is, what is reserved on it, which ports of its address are taken."""

    id: str
    address: str = ""
    state: NodeState = NodeState.ONLINE
    admission: Admission = Admission.OPEN
    labels: Mapping[str, str] = {}
    runtimes: frozenset[str] = frozenset({"process"})
    capabilities: frozenset[str] = frozenset()
    memory_mb: int = 0
    cpus: int = 0
    usage: Usage = Usage()
    leased: frozenset[PortKey] = frozenset()
    """On this node and on all others that have its address."""
    leased_numbers: tuple[int, ...] = ()
    """Those of `leased`, sorted."""
    refused: frozenset[PortKey] = frozenset()


class Ledgers(Protocol):
    """Where reservations are looked up, those of a transaction under way included."""

    def ledger(self, node: str) -> NodeLedger: ...

    def usage(self, node: str) -> Usage: ...


def node_views(nodes: Iterable[NodeRecord], ledgers: Ledgers, now: dt.datetime) -> list[NodeView]:
    """All nodes; two that advertise one address share its ports."""
    return [view for space in by_space(nodes).values() for view in views_of_space(space, ledgers, now)]


def by_space(nodes: Iterable[NodeRecord]) -> dict[str, list[NodeRecord]]:
    """The nodes whose ports are the same ports."""
    spaces: dict[str, list[NodeRecord]] = {}
    for record in nodes:
        spaces.setdefault(port_space(record), []).append(record)
    return spaces


def views_of_space(records: Sequence[NodeRecord], ledgers: Ledgers, now: dt.datetime) -> list[NodeView]:
    """The nodes of one address, all of them."""
    usages = [ledgers.usage(record.id) for record in records]
    leased, numbers = usages[0].ports, usages[0].numbers
    if len(usages) > 1:
        leased = leased.union(*(usage.ports for usage in usages[1:]))
        numbers = tuple(sorted(number for number, _ in leased))
    refused = frozenset[PortKey]().union(
        *(refused_ports(ledgers.ledger(record.id), now) for record in records)
    )
    return [
        NodeView(
            id=record.id,
            address=record.address,
            state=record.state,
            admission=record.admission,
            labels=record.labels,
            runtimes=frozenset(record.runtimes),
            capabilities=frozenset(record.capabilities),
            memory_mb=record.memory_mb,
            cpus=record.cpus,
            usage=usage,
            leased=leased,
            leased_numbers=numbers,
            refused=refused,
        )
        for record, usage in zip(records, usages, strict=True)
    ]


def port_space(record: NodeRecord) -> str:
    """Ports are taken by address; a node that names none is a host of its own."""
    return record.address or f"node:{record.id}"


def refused_ports(ledger: NodeLedger, now: dt.datetime) -> frozenset[PortKey]:
    """The ports the node found in use lately. A clock that was set back does not make that longer."""
    found: list[PortKey] = []
    for name, until in ledger.refused_ports.items():
        if dt.timedelta() < until - now <= BUSY:
            number, protocol = name.split("/")
            found += port_keys(int(number), PortProtocol(protocol))
    return frozenset(found)
