"""The nodes of one pass of the planner, the emptiest first, and what is placed on them in the pass."""

from __future__ import annotations

import bisect
import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import LeasedPort
from corral.domain.planning.node_usage import ChangedPorts, LeasedPorts, PortLookup, port_keys
from corral.domain.planning.node_views import NodeTraits, NodeView
from corral.domain.planning.refusals import NodeRefusal, RefusalCode

_NONE_REMOVED: Final = LeasedPorts()


class Room:
    """What is free on a node, less what was placed there in this pass."""

    __slots__ = ("base", "cpu", "disk_mb", "memory_mb", "runs", "view")

    def __init__(self, view: NodeView) -> None:
        self.view = view
        self.memory_mb = view.usage.memory_mb
        self.cpu = view.usage.cpu
        self.runs = view.usage.runs
        self.disk_mb = view.preparing_disk_mb
        self.base = view.base

    def take(self, spec: GroupSpec) -> None:
        self.memory_mb += spec.memory_mb
        self.cpu += spec.cpu
        self.disk_mb += spec.disk_mb
        self.runs += 1
        self.base = self.view.base_with(self.memory_mb, self.cpu, self.runs)


RunsByNode = Callable[[str], Mapping[str, int]]
"""By the name of a group: how many of its instances are on each node."""


class NodeTable:
    """The nodes of one pass. What is placed in the pass is taken into account."""

    def __init__(
        self, views: Iterable[NodeView], runs_by_node: RunsByNode, *, cpu_overcommit: float = 1.0
    ) -> None:
        self._rooms = {view.id: Room(view) for view in views}
        self._order = sorted((-room.base, id) for id, room in self._rooms.items())
        self._stored_runs = runs_by_node
        self._overcommit = cpu_overcommit
        self._runs: dict[str, collections.Counter[str]] = {}
        self._leased: dict[str, LeasedPorts] = {}
        """The ports of this pass, by port space."""
        self._unsuited: dict[tuple[object, ...], dict[str, NodeRefusal | None]] = {}

    def runs(self, group: str) -> Mapping[str, int]:
        """How many instances of a group are on each node, those of this pass included."""
        placed = self._runs.get(group)
        return self._stored_runs(group) if placed is None else placed

    def take(self, spec: GroupSpec, node: str, ports: Sequence[LeasedPort]) -> None:
        """Reserve what an instance of a group needs on a node, for the rest of the pass."""
        room = self._rooms[node]
        if ports:
            leased = self._leased.setdefault(room.view.port_space, LeasedPorts())
            for port in ports:
                for key in port_keys(port.port, port.protocol):
                    leased.add(key)
        del self._order[bisect.bisect_left(self._order, (-room.base, node))]
        room.take(spec)
        bisect.insort(self._order, (-room.base, node))
        counts = self._runs.setdefault(spec.name, collections.Counter(self._stored_runs(spec.name)))
        counts[node] += 1

    def ports(self, view: NodeView) -> PortLookup:
        """The ports that are leased on a node and on those with its address, those of this pass included."""
        leased = self._leased.get(view.port_space)
        return view.leased if leased is None else ChangedPorts(view.leased, leased, _NONE_REMOVED)

    def __len__(self) -> int:
        return len(self._rooms)

    def rooms(self, first: str | None, only: str | None) -> Iterable[Room]:
        """All of them, the highest base first; `first` before them. With `only` that one alone."""
        if only is not None:
            yield from [self._rooms[only]] if only in self._rooms else []
            return
        if first is not None and first in self._rooms:
            yield self._rooms[first]
        for _, id in self._order:
            if id != first:
                yield self._rooms[id]

    def unsuited(self, spec: GroupSpec) -> Callable[[NodeView], NodeRefusal | None]:
        """As the function `unsuited`, for one group: looked up once a node for all groups with the same demands."""
        key = (
            spec.nodes,
            tuple(sorted(spec.node_labels.items())),
            spec.runtime,
            spec.node_capabilities,
        )
        known = self._unsuited.setdefault(key, {})

        def found(view: NodeView) -> NodeRefusal | None:
            if view.id not in known:
                known[view.id] = unsuited(spec, view)
            return known[view.id]

        return found

    @property
    def overcommit(self) -> float:
        return self._overcommit


def unsuited(spec: GroupSpec, node: NodeTraits) -> NodeRefusal | None:
    """Why a group never runs on such a node, whatever its free capacity; None: it may."""

    def refused(code: RefusalCode, **numbers: str) -> NodeRefusal:
        return NodeRefusal(node=node.id, code=code, numbers={**numbers})

    if spec.nodes and node.id not in spec.nodes:
        return refused(RefusalCode.CHOICE)
    for key, value in sorted(spec.node_labels.items()):
        has = node.labels.get(key)
        if has is None:
            return refused(RefusalCode.LABELS, kind="none", label=key, wanted=value)
        if has != value:
            return refused(RefusalCode.LABELS, kind="other", label=key, has=has, wanted=value)
    if spec.runtime not in node.runtimes:
        return refused(RefusalCode.RUNTIME, runtime=spec.runtime)
    missing = [name for name in spec.node_capabilities if name not in node.capabilities]
    return refused(RefusalCode.CAPABILITY, missing=", ".join(missing)) if missing else None
