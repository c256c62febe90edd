"""Placement: which nodes can take a run, which of them suits best, and why the others do not.

A score is a base that does not depend on the group (free memory, CPU, number of runs), less what speaks against the
node for this group. So nodes are looked at in the order of their bases, and the search ends at the first base below
the best score found.
"""

from __future__ import annotations

import enum
import itertools
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from corral.domain.decisions import Alternative, Numbers
from corral.domain.groups.group import BY_NODE, AffinitySpec, GroupSpec
from corral.domain.groups.instance_records import LeasedPort
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.node_table import NodeTable, Room
from corral.domain.planning.node_views import NodeView
from corral.domain.planning.ports import NoPort, choose_ports, free_share
from corral.domain.planning.refusals import (
    LOWER,
    TIE,
    NodeRefusal,
    PlacementRefusal,
    RefusalCode,
    count_codes,
)
from corral.domain.planning.spread import SpreadCounts

_DIGITS: Final = 6
_OF_PORTS: Final = 0.10
_FAILED_THERE: Final = 0.50
_AFFINITY_SCALE: Final = 200
_BOUNDS: Final = 20


class PlacementRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One run that needs a node."""

    instance: str
    only: str | None = None
    """The one node that it may run on: others are not looked at."""
    at_home: bool = False
    """`only` has its directory: affinity and spread, which choose among nodes, do not matter."""
    avoid: str | None = None
    """A node to take when no other can."""
    prefer: str | None = None
    """A node to take if it can."""
    last_ports: tuple[LeasedPort, ...] = ()
    """Taken again where they are free."""
    failed_on: frozenset[str] = frozenset()
    """Nodes on which the group failed lately."""


class PlacementChoice(enum.StrEnum):
    """By what a node was chosen."""

    HOME = "home"
    """It has the directory of the instance; no other was looked at."""
    BOUND = "bound"
    """The instance is bound to it; no other was looked at."""
    KEPT = "kept"
    """The instance was there before, and it can take it again."""
    ONLY = "only"
    """No other can take it."""
    TIE = "tie"
    ELSEWHERE = "elsewhere"
    """It scores best beside the node that is avoided."""
    BEST = "best"


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The node and ports of a run, and the nodes that were not chosen."""

    node: str
    ports: tuple[LeasedPort, ...]
    score: float
    choice: PlacementChoice = PlacementChoice.BEST
    refusals: tuple[NodeRefusal, ...]
    others: tuple[tuple[str, float], ...] = ()
    """Nodes that rank after it, with their scores, the best first; their ports were not checked."""
    ties: tuple[str, ...] = ()
    """Nodes that have the same score, and are not preferred by the hash."""
    below: int = 0
    """The number of further nodes, whose scores cannot be higher: no more was looked at than whether they suit the group."""
    bounds: tuple[tuple[str, float], ...] = ()
    """Some of these, with the highest scores that they could have."""

    def alternatives(self) -> list[Alternative]:
        """The nodes that were not chosen, as a decision stores them: those next to the choice first."""
        tied = [_alternative(node, TIE, {"score": self.score}) for node in self.ties]
        lower = [_alternative(node, LOWER, {"score": s, "best": self.score}) for node, s in self.others]
        bounded = [
            _alternative(node, LOWER, {"kind": "bound", "score": s, "best": self.score})
            for node, s in self.bounds
        ]
        return [*tied, *(refusal.alternative() for refusal in self.refusals), *lower, *bounded]

    def counts(self) -> dict[str, int]:
        """How many nodes were not chosen, by code."""
        counts = count_codes(self.refusals)
        counts |= {TIE: len(self.ties)} if self.ties else {}
        lower = len(self.others) + self.below
        return counts | ({LOWER: lower} if lower else {})


def _alternative(node: str, code: str, numbers: Numbers) -> Alternative:
    return Alternative(subject=f"node/{node}", code=code, numbers=numbers)


def counts_other_nodes(spec: GroupSpec) -> bool:
    """Does it depend on other nodes whether one can take the group? Spread with a bound, or by a label, compares them."""
    return any(each.by != BY_NODE or each.max_skew is not None for each in spec.spread)


def place(table: NodeTable, spec: GroupSpec, request: PlacementRequest) -> Placement | PlacementRefusal:
    """Choose a node and its ports; the same table always gives the same answer."""
    return _Search(table, spec, request).run()


class _Candidate(NamedTuple):
    rank: tuple[int, float]
    """Whether it is preferred (1) or avoided (-1), and the score."""
    hash: int
    node: str
    score: float
    ports: tuple[LeasedPort, ...]


class _Search:
    """The search for the node of one run."""

    def __init__(self, table: NodeTable, spec: GroupSpec, request: PlacementRequest) -> None:
        self._table = table
        self._spec = spec
        self._request = request
        self._unsuited = table.unsuited(spec)
        self._here = table.runs(spec.name)
        self._spreads = [SpreadCounts(table, each, self._here, self._never) for each in spec.spread]
        self._attraction = sum(each.weight for each in spec.affinity if each.weight > 0) / _AFFINITY_SCALE
        self._refusals: list[NodeRefusal] = []
        self._lower: list[tuple[str, float]] = []
        self._best: _Candidate | None = None
        self._ties: list[_Candidate] = []

    def run(self) -> Placement | PlacementRefusal:
        request = self._request
        seen = excluded = 0
        bounds: list[tuple[str, float]] = []
        rooms = iter(self._table.rooms(request.prefer, request.only))
        for room in rooms:
            if self._best is not None and self._is_below(room):
                bounds, excluded = self._bounds(room, rooms)
                break
            seen += 1
            self._look_at(room)
        if self._best is None:
            return PlacementRefusal.by_nodes(self._refusals)
        best = self._best
        below = len(self._table) - seen - excluded if request.only is None else 0
        return Placement(
            node=best.node,
            ports=best.ports,
            score=best.score,
            choice=self._choice(best, below),
            refusals=tuple(sorted(self._refusals, key=lambda refusal: refusal.node)),
            others=tuple(sorted(self._lower, key=lambda other: (-other[1], other[0]))),
            ties=tuple(sorted(each.node for each in self._ties if each.node != best.node)),
            below=below,
            bounds=tuple(bounds),
        )

    def _bounds(self, first: Room, rest: Iterator[Room]) -> tuple[list[tuple[str, float]], int]:
        """The highest scores that nodes could have which are not looked at, and how many of them never take the group:
        these are refusals, and looked for among all if the group is particular about nodes. Where the instance was before
        it stays, whatever the scores of others."""
        if self._best is None or self._best.rank[0]:
            return [], 0
        spec = self._spec
        particular = spec.nodes or spec.node_labels or spec.node_capabilities
        rooms = itertools.chain((first,), rest if particular else itertools.islice(rest, _BOUNDS - 1))
        bounds: list[tuple[str, float]] = []
        excluded = 0
        for room in rooms:
            refusal = self._unsuited(room.view)
            if refusal is not None:
                self._refusals.append(refusal)
                excluded += 1
            elif len(bounds) < _BOUNDS:
                bounds.append((room.view.id, round(room.base + self._attraction, _DIGITS)))
        return bounds, excluded

    def _choice(self, best: _Candidate, below: int) -> PlacementChoice:
        request = self._request
        if request.only is not None:
            return PlacementChoice.HOME if request.at_home else PlacementChoice.BOUND
        if best.node == request.prefer:
            return PlacementChoice.KEPT
        if len(self._ties) > 1:
            return PlacementChoice.TIE
        if any(node == request.avoid for node, _ in self._lower):
            return PlacementChoice.ELSEWHERE
        return PlacementChoice.BEST if self._lower or below else PlacementChoice.ONLY

    def _is_below(self, room: Room) -> bool:
        """Can neither this node nor any with a lower base be better, or as good?"""
        assert self._best is not None
        preference, score = self._best.rank
        if preference:  # the preferred one is looked at first; an avoided one only stays if no other can
            return preference > 0
        return round(room.base + self._attraction, _DIGITS) < score

    def _look_at(self, room: Room) -> None:
        view = room.view
        refusal = self._refusal(room)
        if refusal is not None:
            self._refusals.append(refusal)
            return
        score = self._score(room)
        request = self._request
        rank = (view.id == request.prefer) - (view.id == request.avoid), score
        if self._best is not None and rank < self._best.rank:
            self._lower.append((view.id, score))
            return
        ports = self._ports(view)  # only for candidates: the search costs more than all other checks
        if isinstance(ports, NodeRefusal):
            self._refusals.append(ports)
            return
        ordinal = request.instance.removeprefix(f"{self._spec.name}-")
        chance = zlib.crc32(f"{self._spec.name}/{ordinal}/{view.id}".encode())
        self._compare(_Candidate(rank, chance, view.id, score, ports))

    def _ports(self, view: NodeView) -> tuple[LeasedPort, ...] | NodeRefusal:
        try:
            return choose_ports(
                self._spec.ports,
                leased=self._table.ports(view),
                refused=view.refused,
                last=self._request.last_ports,
            )
        except NoPort as error:
            return self._refused(view, RefusalCode.PORTS, {"taken": str(error), "port": error.port})

    def _compare(self, found: _Candidate) -> None:
        best = self._best
        if best is None or found.rank > best.rank:
            self._lower += [(each.node, each.score) for each in self._ties]
            self._ties = [found]
            self._best = found
        else:
            self._ties.append(found)
            self._best = min(best, found, key=lambda each: (each.hash, each.node))

    # the filters, in the order of `RefusalCode`

    def _refusal(self, room: Room) -> NodeRefusal | None:
        view = room.view
        if view.state is not NodeState.ONLINE:
            if view.reconnect_until is None:
                return self._refused(view, RefusalCode.STATE, {"state": view.state.value})
            lasting = self._lasting(room)
            if lasting is not None:  # nothing would come of waiting for it
                return lasting
            ports = self._ports(view)
            if isinstance(ports, NodeRefusal):
                return ports
            until = f"{view.reconnect_until:%H:%M:%S} UTC"
            return self._refused(view, RefusalCode.RECONNECTING, {"until": until})
        return self._lasting(room)

    def _lasting(self, room: Room) -> NodeRefusal | None:
        """Why the node could not take the run, were it connected."""
        view = room.view
        if view.admission is not Admission.OPEN:
            numbers: Numbers = {"admission": view.admission.value, "reason": view.admission_reason}
            return self._refused(view, RefusalCode.ADMISSION, numbers)
        return self._unsuited(view) or self._misplaced(view) or self._full(room)

    def _never(self, view: NodeView) -> bool:
        """Can the node take none of the group, whatever its free capacity and its neighbours are?"""
        return self._unsuited(view) is not None or self._repelled(view) is not None

    def _repelled(self, view: NodeView) -> AffinitySpec | None:
        """The required affinity that excludes the node."""
        for each in self._spec.affinity:
            if each.required and self._applies(each, view) != (each.weight >= 0):
                return each
        return None

    def _misplaced(self, view: NodeView) -> NodeRefusal | None:
        if self._request.at_home:
            return None
        repelled_by = self._repelled(view)
        if repelled_by is not None:
            return self._refused(view, RefusalCode.AFFINITY, affinity_numbers(repelled_by))
        for spread in self._spreads:
            skewed = spread.skewed(view)
            if skewed is not None:
                return self._refused(view, RefusalCode.SKEW, skewed)
        return None

    def _applies(self, affinity: AffinitySpec, view: NodeView) -> bool:
        if affinity.group:
            runs = self._table.runs(affinity.group)
            first = affinity.group == self._spec.name and not any(runs.values()) and affinity.weight >= 0
            return (
                first or runs.get(view.id, 0) > 0
            )  # the first of a group that wants to be together is anywhere
        return label_applies(affinity, view.labels)

    def _full(self, room: Room) -> NodeRefusal | None:
        spec, view = self._spec, room.view
        free = max(0, view.memory_mb - room.memory_mb)
        if spec.memory_mb > free:
            limit = _limit(view.memory_mb, view.host_memory_mb, room.memory_mb + spec.memory_mb)
            return self._lacking(view, RefusalCode.MEMORY, spec.memory_mb, free, view.memory_mb, **limit)
        total = view.cpus * self._table.overcommit
        free_cpu = max(0.0, round(total - room.cpu, _DIGITS))
        if view.cpus and spec.cpu > free_cpu:  # a node that does not know its CPUs is not held to them
            host = view.host_cpus * self._table.overcommit
            limit = _limit(total, host, room.cpu + spec.cpu)
            return self._lacking(view, RefusalCode.CPU, spec.cpu, free_cpu, total, **limit)
        if spec.disk_mb and view.state is NodeState.ONLINE:  # of a node that is away it is not known
            if view.free_disk_mb is None:
                unknown: Numbers = {"kind": "unknown", "needed": spec.disk_mb}
                return self._refused(view, RefusalCode.DISK, unknown)
            free_disk = max(0, view.free_disk_mb - room.disk_mb)
            if spec.disk_mb > free_disk:
                return self._lacking(view, RefusalCode.DISK, spec.disk_mb, free_disk, free_disk, kind="known")
        return None

    def _lacking(
        self, view: NodeView, code: RefusalCode, needed: float, free: float, total: float, **more: str | float
    ) -> NodeRefusal:
        lacks = round(needed - free, _DIGITS)
        return self._refused(
            view, code, {"needed": needed, "free": free, "total": total, "lacks": lacks, **more}
        )

    @staticmethod
    def _refused(view: NodeView, code: RefusalCode, numbers: Numbers) -> NodeRefusal:
        return NodeRefusal(node=view.id, code=code, numbers=numbers)

    # the score

    def _score(self, room: Room) -> float:
        spec, view = self._spec, room.view
        score = room.base - sum(spread.penalty(view) for spread in self._spreads)
        if spec.ports:
            score -= _OF_PORTS * (1.0 - free_share(spec.ports, self._table.ports(view)))
        if view.id in self._request.failed_on:
            score -= _FAILED_THERE
        for each in spec.affinity:
            if not each.required and self._applies(each, view):
                score += each.weight / _AFFINITY_SCALE
        return round(score, _DIGITS)


def _limit(total: float, host: float, needed: float) -> dict[str, str | float]:
    """For the refusal, where only the limit of an operator is in the way."""
    return {"kind": "limited", "host": host} if total < needed <= host else {}


def label_applies(affinity: AffinitySpec, labels: Mapping[str, str]) -> bool:
    """Has a node the label of an affinity?"""
    key, _, value = affinity.label.partition("=")
    return labels.get(key) == value


def affinity_numbers(affinity: AffinitySpec) -> Numbers:
    """A required affinity that excludes a node, as its refusal stores it."""
    kind = ("" if affinity.weight >= 0 else "no_") + ("group" if affinity.group else "label")
    return {"kind": kind, "wanted": affinity.group or affinity.label}
