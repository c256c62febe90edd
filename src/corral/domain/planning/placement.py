"""Placement: which nodes can take a run, with which ports, which of them suits best, and why the others
cannot.

Ports are chosen by (host address, port, transport), and none is leased twice.
"""

from __future__ import annotations

import collections
import enum
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Final, Protocol

import msgspec

from corral.domain.groups.group import GroupSpec, PortProtocol, PortSpec
from corral.domain.groups.instance_records import LeasedPort
from corral.domain.groups.port_sets import PortSet, port_sets
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.node_usage import PortKey, PortLookup, port_keys
from corral.domain.planning.node_views import NodeView
from corral.errors import Code, Rejected


class NoPort(Exception):
    """No number is free for one of the ports; the text names the port and the reason."""


def choose_ports(
    specs: Mapping[str, PortSpec],
    *,
    leased: Set[PortKey],
    refused: Set[PortKey],
    last: Sequence[LeasedPort] = (),
) -> tuple[LeasedPort, ...]:
    """For each port its `last` number if that is free, else the lowest free one; fixed ones come first, then
    those that had a number. Tied ports get their numbers together, or none does. Raises `NoPort`."""
    taken: set[PortKey] = set()
    chosen: list[LeasedPort] = []
    before = {port.name: port.port for port in last}
    for tied in sorted(port_sets(specs), key=lambda each: (not each.fixed, each.name not in before)):
        number = _free(tied, before.get(tied.name), leased, refused, taken)
        if number is None:
            raise NoPort(_why(tied, leased, refused))
        for port in tied.members:
            taken.update(port_keys(number + port.offset, port.protocol))
            chosen.append(LeasedPort(name=port.name, port=number + port.offset, protocol=port.protocol))
    return tuple(sorted(chosen, key=lambda port: port.name))


def _free(tied: PortSet, first: int | None, *occupied: Set[PortKey]) -> int | None:
    """The first choice if it is in the range and free, else the lowest free number."""
    needed = [
        (port.offset, transport)
        for port in tied.members
        for _, transport in port_keys(tied.low, port.protocol)
    ]
    numbers = range(tied.low, tied.high + 1)
    if first is not None and first in numbers and _next_free(first, needed, occupied) == first:
        return first
    number = tied.low
    while number in numbers:
        found = _next_free(number, needed, occupied)
        if found == number:
            return number
        number = found
    return None


def _next_free(
    number: int, needed: Sequence[tuple[int, PortProtocol]], occupied: Sequence[Set[PortKey]]
) -> int:
    """A number from this one on below which none is free for all that is needed; the same one: it is free."""
    for some in occupied:
        for offset, kind in needed:
            if isinstance(some, PortLookup):
                number = some.next_free(number + offset, kind) - offset
            else:
                while (number + offset, kind) in some:
                    number += 1
    return number


def _why(tied: PortSet, leased: Set[PortKey], refused: Set[PortKey]) -> str:
    first, *others = tied.members
    numbers = {number + port.offset for port in tied.members for number in range(tied.low, tied.high + 1)}
    text = f"port '{tied.name}': "
    text += f"{tied.low}" if tied.low == tied.high else f"each of {tied.low}-{tied.high}"
    text += f" ({first.protocol}"
    text += "".join(f"; '{port.name}' = {tied.name}{port.offset:+d} {port.protocol}" for port in others)
    held = {number for number, _ in leased if number in numbers}
    busy = {number for number, _ in refused if number in numbers} - held
    parts = [f"{len(held)} leased"] if held else []
    parts += [f"{len(busy)} in use by something else on the node"] if busy else []
    return f"{text}) is taken: {', '.join(parts) or 'by this instance itself'}"


def free_share(specs: Mapping[str, PortSpec], leased: Set[PortKey]) -> float:
    """The free share of the scarcest range, from 0 to 1. A tied port follows the port of its range: only that one is
    counted."""
    share = 1.0
    for spec in specs.values():
        if spec.of is not None:
            continue
        low, high = spec.bounds()
        if isinstance(leased, PortLookup):
            used = leased.count(low, high)
        else:
            used = sum(low <= number <= high for number, _ in leased)
        per_port = 2 if spec.protocol is PortProtocol.BOTH else 1
        share = min(share, 1.0 - min(1.0, used / ((high - low + 1) * per_port)))
    return share


_LISTED: Final = 20


class Obstacle(enum.StrEnum):
    """Why a node cannot take a run, in the order of the checks."""

    STATE = "not connected"
    ADMISSION = "takes nothing new"
    CHOICE = "not among the nodes it may run on"
    LABELS = "other labels"
    RUNTIME = "lacks the runtime"
    CAPABILITIES = "lacks a capability"
    MEMORY = "not enough memory"
    PORTS = "no free port"


_ROOM: Final = frozenset({Obstacle.MEMORY, Obstacle.PORTS})


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


class NodeRefusal(msgspec.Struct, frozen=True, kw_only=True):
    node: str
    obstacle: Obstacle
    reason: str


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The node and ports of a run, and the rejected nodes."""

    node: str
    ports: tuple[LeasedPort, ...]
    score: float
    refusals: tuple[NodeRefusal, ...]
    others: tuple[tuple[str, float], ...]
    """Nodes that rank after it, with their lower scores; their ports were not checked."""


class PlacementRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """No node can take it."""

    code: Code
    summary: str
    """Counts by obstacle: it changes only when something relevant does."""
    refusals: tuple[NodeRefusal, ...] = ()
    cause: Rejected | None = None
    """No node was checked: there is no plan, for this reason."""

    @classmethod
    def without_plan(cls, error: Rejected) -> PlacementRefusal:
        """Something that the group's document names does not exist, or does not fit together."""
        return cls(code=error.code, summary=error.message, cause=error)

    @classmethod
    def without_number(cls, error: Rejected) -> PlacementRefusal:
        """There is no number left for another start."""
        return cls(code=error.code, summary=f"{error.message}; {error.hint}", cause=error)

    @classmethod
    def claimed(cls, id: str, node: str) -> PlacementRefusal:
        """A node lists a run of the id that nothing proves to be the cluster's: a second one is not started
        beside it."""
        error = Rejected(
            Code.CONFLICT,
            f"node '{node}' runs '{id}' already, and nothing proves that it was started by us",
            hint=f"end it on '{node}' and restart the daemon there, or revoke that node",
        )
        return cls(code=error.code, summary=error.message, cause=error)

    def at_home(self, id: str, home: str) -> PlacementRefusal:
        """The same, for an instance whose directory is on one node: other nodes do not matter."""
        own = tuple(each for each in self.refusals if each.node == home)
        # The free amounts change constantly, and are left out.
        reasons = "; ".join(each.obstacle if each.obstacle in _ROOM else each.reason for each in own)
        return PlacementRefusal(
            code=self.code,
            summary=f"the directory of '{id}' is on node '{home}': {reasons}; wait for that node, "
            "or delete the instance to begin anew elsewhere",
            refusals=own,
        )

    def error(self, group: str) -> Rejected:
        if self.cause is not None:
            return Rejected(
                self.code, f"group '{group}' cannot be started: {self.summary}", hint=self.cause.hint
            )
        reasons = "; ".join(f"{each.node}: {each.reason}" for each in self.refusals[:_LISTED])
        more = len(self.refusals) - _LISTED
        reasons += f"; and {more} more" if more > 0 else ""
        return Rejected(
            self.code,
            f"no node can take an instance of group '{group}'" + (f" ({reasons})" if reasons else ""),
            hint=self.summary,
        )


def place(
    spec: GroupSpec,
    nodes: Iterable[NodeView],
    *,
    only: str | None = None,
    avoid: str | None = None,
    prefer: str | None = None,
    last_ports: Sequence[LeasedPort] = (),
) -> Placement | PlacementRefusal:
    """Choose a node and its ports; the same snapshot always gives the same answer.

    `only` is a hard filter, `avoid` a node to take when no other can, `prefer` one to take if it can; `last_ports`
    are taken again where they are free.
    """
    refusals: list[NodeRefusal] = []
    fits: list[tuple[float, str, NodeView]] = []
    for node in nodes:
        found = _obstacle(spec, node, only)
        if found is not None:
            refusals.append(NodeRefusal(node=node.id, obstacle=found[0], reason=found[1]))
        else:
            bias = (1.0 if node.id == prefer else 0.0) - (1.0 if node.id == avoid else 0.0)
            fits.append((-_score(spec, node) - bias, node.id, node))
    fits.sort(key=lambda fit: fit[:2])
    for place, (score, id, node) in enumerate(fits):
        # Only for the candidates: the search for ports costs more than all other checks.
        try:
            ports = choose_ports(spec.ports, leased=node.leased, refused=node.refused, last=last_ports)
        except NoPort as error:
            refusals.append(NodeRefusal(node=id, obstacle=Obstacle.PORTS, reason=str(error)))
            continue
        others = tuple((other, -worse) for worse, other, _ in fits[place + 1 :])
        return Placement(node=id, ports=ports, score=-score, refusals=_by_id(refusals), others=others)
    return _refused(_by_id(refusals))


def _by_id(refusals: Sequence[NodeRefusal]) -> tuple[NodeRefusal, ...]:
    return tuple(sorted(refusals, key=lambda refusal: refusal.node))


def _obstacle(spec: GroupSpec, node: NodeView, only: str | None) -> tuple[Obstacle, str] | None:
    if node.state is not NodeState.ONLINE:
        return Obstacle.STATE, f"it is {node.state}"
    if node.admission is not Admission.OPEN:
        return Obstacle.ADMISSION, f"it is {node.admission}"
    if only is not None and node.id != only:
        return Obstacle.CHOICE, f"node '{only}' was asked for"
    foreign = unsuited(spec, node)
    if foreign is not None:
        return foreign
    free = node.memory_mb - node.usage.memory_mb
    if spec.memory_mb > max(0, free):
        return (
            Obstacle.MEMORY,
            f"{spec.memory_mb} MB are wanted, {max(0, free)} of {node.memory_mb} MB are free",
        )
    return None


def unsuited(spec: GroupSpec, node: NodeTraits) -> tuple[Obstacle, str] | None:
    """Why a group never runs on such a node, whatever its free capacity; None: it may."""
    if spec.nodes and node.id not in spec.nodes:
        return Obstacle.CHOICE, "it is not in the group's 'nodes'"
    for key, value in sorted(spec.node_labels.items()):
        if node.labels.get(key) != value:
            has = f"is '{node.labels[key]}'" if key in node.labels else "is missing"
            return Obstacle.LABELS, f"label '{key}' {has}, '{value}' is wanted"
    if spec.runtime not in node.runtimes:
        return Obstacle.RUNTIME, f"it has no runtime '{spec.runtime}'"
    missing = [name for name in spec.node_capabilities if name not in node.capabilities]
    if missing:
        return Obstacle.CAPABILITIES, f"it has not proven {', '.join(missing)}"
    return None


def _score(spec: GroupSpec, node: NodeView) -> float:
    """Between 0 and 1: free memory counts most, then CPU, then the numbers of runs and of free ports."""
    memory = 1.0
    if node.memory_mb:
        memory = max(0.0, 1.0 - (node.usage.memory_mb + spec.memory_mb) / node.memory_mb)
    cpu = max(0.0, 1.0 - (node.usage.cpu + spec.cpu) / node.cpus) if node.cpus else 0.0
    fewness = 1.0 / (1.0 + node.usage.runs)
    ports = free_share(spec.ports, node.leased)
    return round(0.45 * memory + 0.2 * cpu + 0.25 * fewness + 0.1 * ports, 6)


def _refused(refusals: Sequence[NodeRefusal]) -> PlacementRefusal:
    counts = collections.Counter(each.obstacle for each in refusals)
    reachable = [each for each in refusals if each.obstacle not in (Obstacle.STATE, Obstacle.CHOICE)]
    only_ports = bool(reachable) and all(each.obstacle is Obstacle.PORTS for each in reachable)
    counted = ", ".join(f"{counts[each]} {each}" for each in Obstacle if counts[each])
    return PlacementRefusal(
        code=Code.PORT_RANGE_EXHAUSTED if only_ports else Code.NO_CAPACITY,
        summary=f"of {len(refusals)} nodes: {counted}" if refusals else "there is no node; enrol one",
        refusals=tuple(refusals),
    )
