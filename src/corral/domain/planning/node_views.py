"""The view of a node that placement uses, and how it is built from the state."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import NodeLedger
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.node_usage import LeasedPorts, PortKey, PortLookup, SharedPorts, Usage, port_keys
from corral.domain.records import NodeRecord

BUSY: Final = dt.timedelta(seconds=60)
"""How long a port that a node found in use is not leased."""
_OF_MEMORY: Final = 0.50
_OF_CPU: Final = 0.30
_OF_RUNS: Final = 0.20
_RUNS_HALVE: Final = 10
"""With so many runs a node has half of what it gets for having few."""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node as of now: its traits, its reservations, and the taken ports of its address."""

    id: str
    address: str = ""
    state: NodeState = NodeState.ONLINE
    admission: Admission = Admission.OPEN
    labels: Mapping[str, str] = {}
    runtimes: frozenset[str] = frozenset({"process"})
    capabilities: frozenset[str] = frozenset()
    memory_mb: int = 0
    cpus: int = 0
    host_memory_mb: int = 0
    """What it has without the limit of an operator, if that is more than what counts."""
    host_cpus: int = 0
    admission_reason: str = ""
    reconnect_until: dt.datetime | None = None
    """It lost its connection moments ago, and is waited for until then."""
    cpu_mean: float = 0.0
    """The CPUs that were busy in the last minute, on average."""
    free_disk_mb: int | None = None
    """As it last reported; None: unknown."""
    preparing_disk_mb: int = 0
    """What runs need that are placed there and not prepared yet: it is not taken from the free disk so far."""
    usage: Usage = Usage()
    leased: PortLookup = LeasedPorts()
    """Ports leased on this node and on all others with its address."""
    refused: frozenset[PortKey] = frozenset()
    base: float = 0.0
    """The part of its score that is the same for all groups; computed."""

    def __post_init__(self) -> None:
        usage = self.usage
        msgspec.structs.force_setattr(self, "base", self.base_with(usage.memory_mb, usage.cpu, usage.runs))

    def base_with(self, memory_mb: int, cpu: float, runs: int) -> float:
        """That part with so much reserved, and so many runs."""
        of_memory = max(0.0, 1.0 - memory_mb / self.memory_mb) if self.memory_mb else 1.0
        of_cpu = max(0.0, 1.0 - max(cpu, self.cpu_mean) / self.cpus) if self.cpus else 0.0
        return _OF_MEMORY * of_memory + _OF_CPU * of_cpu + _OF_RUNS * _RUNS_HALVE / (_RUNS_HALVE + runs)

    @property
    def port_space(self) -> str:
        return self.address or f"node:{self.id}"


class NodeTraits(Protocol):
    """The traits of a node that decide which groups may ever run there: in a `NodeView`, and in a
    `NodeRecord`."""

    @property
    def id(self) -> str: ...

    @property
    def labels(self) -> Mapping[str, str]: ...

    @property
    def runtimes(self) -> Collection[str]: ...

    @property
    def capabilities(self) -> Collection[str]: ...


class Ledgers(Protocol):
    """The lookup of reservations, including those of an uncommitted transaction."""

    def ledger(self, node: str) -> NodeLedger: ...

    def usage(self, node: str) -> Usage: ...


class NodeSignals(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a node beside its record and its reservations; see `NodeView`."""

    reconnect_until: dt.datetime | None = None
    cpu_mean: float = 0.0
    free_disk_mb: int | None = None
    preparing_disk_mb: int = 0


_NO_SIGNALS: Final = NodeSignals()


def node_views(nodes: Iterable[NodeRecord], ledgers: Ledgers, now: dt.datetime) -> list[NodeView]:
    """The views of all nodes; two that advertise one address share its ports."""
    return [view for space in by_space(nodes).values() for view in views_of_space(space, ledgers, now)]


def by_space(nodes: Iterable[NodeRecord]) -> dict[str, list[NodeRecord]]:
    """The nodes by port space."""
    spaces: dict[str, list[NodeRecord]] = {}
    for record in nodes:
        spaces.setdefault(port_space(record), []).append(record)
    return spaces


def views_of_space(
    records: Sequence[NodeRecord],
    ledgers: Ledgers,
    now: dt.datetime,
    signals: Callable[[NodeRecord], NodeSignals] = lambda _: _NO_SIGNALS,
) -> list[NodeView]:
    """The views of all nodes of one address."""
    usages = [ledgers.usage(record.id) for record in records]
    leased = usages[0].ports if len(usages) == 1 else SharedPorts([usage.ports for usage in usages])
    refused = frozenset[PortKey]().union(
        *(refused_ports(ledgers.ledger(record.id), now) for record in records)
    )
    views: list[NodeView] = []
    for record, usage in zip(records, usages, strict=True):
        seen = signals(record)
        views.append(
            NodeView(
                id=record.id,
                address=record.address,
                state=record.state,
                admission=record.admission,
                admission_reason=record.admission_reason,
                reconnect_until=seen.reconnect_until,
                labels=record.labels,
                runtimes=frozenset(record.runtimes),
                capabilities=frozenset(record.capabilities),
                memory_mb=record.memory_mb,
                cpus=record.cpus,
                host_memory_mb=record.claimed.memory_mb,
                host_cpus=record.claimed.cpus,
                cpu_mean=seen.cpu_mean,
                free_disk_mb=seen.free_disk_mb,
                preparing_disk_mb=seen.preparing_disk_mb,
                usage=usage,
                leased=leased,
                refused=refused,
            )
        )
    return views


def port_space(record: NodeRecord) -> str:
    """The port space of a node: its address, or the node alone if it advertises none."""
    return record.address or f"node:{record.id}"


def refused_ports(ledger: NodeLedger, now: dt.datetime) -> frozenset[PortKey]:
    """The ports the node found in use lately. A clock that was set back does not make that longer."""
    found: list[PortKey] = []
    for name, until in ledger.refused_ports.items():
        if dt.timedelta() < until - now <= BUSY:
            number, protocol = name.split("/")
            found += port_keys(int(number), PortProtocol(protocol))
    return frozenset(found)
