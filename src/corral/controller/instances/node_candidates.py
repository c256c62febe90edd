"""The nodes that a transaction may place on: their records, what is reserved there, and their present load."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import NODE_LEDGERS, RESERVATIONS
from corral.controller.state.mirrors import Mirror
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.instance_states import InstanceState
from corral.domain.node_states import NodeState
from corral.domain.planning.node_usage import Usage
from corral.domain.planning.node_views import (
    Ledgers,
    NodeSignals,
    NodeView,
    by_space,
    port_space,
    views_of_space,
)
from corral.domain.records import NodeRecord

UNPREPARED: Final = (InstanceState.SCHEDULED, InstanceState.PREPARING)


class NodeLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The load of a connected node."""

    cpu_mean: float = 0.0
    """The CPUs that were busy in the last minute, on average."""
    free_disk_mb: int | None = None


class _Known(NamedTuple):
    record: NodeRecord
    usage: Usage
    signals: NodeSignals
    view: NodeView


class KnownViews:
    """Views of nodes that earlier transactions made, for as long as they hold: most nodes did not change since."""

    def __init__(self) -> None:
        self.views: dict[str, _Known] = {}
        self.spaces: dict[str, list[NodeRecord]] = {}
        self.folds = -1

    def by_space(self, nodes: Mirror[NodeRecord]) -> dict[str, list[NodeRecord]]:
        if self.folds != nodes.folds:
            self.folds = nodes.folds
            self.spaces = by_space(stored.record for stored in nodes)
            self.views = {id: known for id, known in self.views.items() if nodes.find(id) is not None}
        return self.spaces


class PlacementRules(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of placement, and how it learns the load of a node."""

    cpu_overcommit: float = 1.0
    wait_reconnect_seconds: float = 30.0
    load: Callable[[str], NodeLoad | None] = lambda _: None
    known: KnownViews | None = None
    """Of the state that all transactions with these rules are about; None: nothing is kept."""


DEFAULT_RULES: Final = PlacementRules()


class NodeCandidates:
    """The views of all nodes, made when they are first read. A changed reservation outdates those of one address."""

    def __init__(
        self,
        state: ClusterState,
        ledgers: Ledgers,
        changed_instances: Mapping[str, Any],
        changed_nodes: Mapping[str, Any],
        *,
        now: dt.datetime,
        rules: PlacementRules,
    ) -> None:
        self._state = state
        self._ledgers = ledgers
        self._changed_instances = changed_instances
        self._changed_nodes = changed_nodes
        self._now = now
        self._rules = rules
        self._known = rules.known or KnownViews()
        self._views: dict[str, list[NodeView]] = {}
        self._preparing: Counter[str] | None = None

    def views(self) -> list[NodeView]:
        """Nodes that may be placed on. Excluded are those with unreadable records of what runs there."""
        for space, records in self._by_space().items():
            if space not in self._views:
                self._views[space] = self._views_of(records)
        unreadable = self._state.quarantine.owners(NODE_LEDGERS.name, RESERVATIONS.name)
        found = [view for views in self._views.values() for view in views if view.id not in unreadable]
        return [self._changed(view) for view in found] if self._changed_nodes else found

    def _changed(self, view: NodeView) -> NodeView:
        """The view with the admission that this transaction gives to the node: nothing else of it is changed by one."""
        record = self._changed_nodes.get(view.id)
        if not isinstance(record, NodeRecord):
            return view
        return msgspec.structs.replace(
            view, admission=record.admission, admission_reason=record.admission_reason
        )

    def _views_of(self, records: list[NodeRecord]) -> list[NodeView]:
        if len(records) > 1 or self._ledgers.ledger(records[0].id).refused_ports:
            return views_of_space(records, self._ledgers, self._now, self._signals)
        record = records[0]
        usage, signals = self._ledgers.usage(record.id), self._signals(record)
        known = self._known.views.get(record.id)
        if known is not None and known.record is record and known.usage is usage and known.signals == signals:
            return [known.view]
        [view] = views_of_space(records, self._ledgers, self._now, lambda _: signals)
        if usage is self._state.reservations.usage(
            record.id
        ):  # and not what only this transaction makes of it
            self._known.views[record.id] = _Known(record, usage, signals, view)
        return [view]

    def shared_space(self, node: str) -> str:
        """The address of a node, if it has that in common with others; else empty."""
        stored = self._state.nodes.find(node)
        space = port_space(stored.record) if stored else ""
        return space if len(self._by_space().get(space, ())) > 1 else ""

    def outdate(self, node: str) -> None:
        stored = self._state.nodes.find(node)
        if stored is not None:
            self._views.pop(port_space(stored.record), None)
        self._preparing = None

    def clear(self) -> None:
        self._views.clear()
        self._preparing = None

    def _by_space(self) -> dict[str, list[NodeRecord]]:
        return self._known.by_space(self._state.nodes)

    def _signals(self, record: NodeRecord) -> NodeSignals:
        load = self._rules.load(record.id)
        until = self._awaited_until(record)
        if load is None:
            return NodeSignals(reconnect_until=until)
        return NodeSignals(
            reconnect_until=until,
            cpu_mean=load.cpu_mean,
            free_disk_mb=load.free_disk_mb,
            preparing_disk_mb=self._preparing_disk()[record.id],
        )

    def _awaited_until(self, record: NodeRecord) -> dt.datetime | None:
        """Until when a node that disconnected moments ago is waited for: a restarting daemon or controller needs a
        moment. A clock that was set back does not make it longer."""
        if record.state is not NodeState.DISCONNECTED:
            return None
        wait = dt.timedelta(seconds=self._rules.wait_reconnect_seconds)
        return record.state_since + wait if abs(self._now - record.state_since) < wait else None

    def _preparing_disk(self) -> Counter[str]:
        """By node, the disk that runs need which are placed there and not prepared."""
        if self._preparing is None:
            self._preparing = Counter()
            instances = self._state.instances
            stored = set(instances.narrowed(states=UNPREPARED))
            records = [instances.require(id).record for id in stored - self._changed_instances.keys()]
            records += [each for each in self._changed_instances.values() if isinstance(each, InstanceRecord)]
            for record in records:
                group = self._state.groups.find(record.group)
                if record.state in UNPREPARED and group is not None:
                    self._preparing[record.node] += group.record.spec.disk_mb
        return self._preparing
