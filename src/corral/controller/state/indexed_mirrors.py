"""Mirrors with indexes: nodes, crashes, deployments, reservations on nodes, revisions, modules on nodes, templates.

The indexes keep events and requests from scanning a whole collection.
"""

from __future__ import annotations

import bisect
import datetime as dt
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final

from corral.controller.state.collections import (
    CRASHES,
    DEPLOYMENTS,
    MODULE_NODE_STATES,
    NODES,
    RESERVATIONS,
    REVISIONS,
    TEMPLATES,
)
from corral.controller.state.mirrors import Mirror, StoredRecord
from corral.controller.state.sorted_keys import KeyIndex
from corral.domain.groups.crash_records import CrashRecord
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import Reservation
from corral.domain.groups.revisions import RevisionRecord, revision_id
from corral.domain.modules.records import NodeModuleState
from corral.domain.node_states import EMPTIED
from corral.domain.planning.node_usage import ReservedSums, Usage
from corral.domain.records import NodeRecord
from corral.domain.templates import TemplateRecord, TemplateVersion, group_of


class NodeMirror(Mirror[NodeRecord]):
    """All nodes, and which of them are emptied."""

    def __init__(self) -> None:
        super().__init__(NODES, "node")
        self.emptied: frozenset[str] = frozenset()
        """Those that are draining or drained."""

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        super().fold(id, revision, body)
        stored = self._documents.get(id)
        emptied = stored is not None and stored.record.admission in EMPTIED
        if emptied != (id in self.emptied):
            self.emptied = self.emptied | {id} if emptied else self.emptied - {id}


class CrashMirror(Mirror[CrashRecord]):
    """All crashes, by id, by node and by instance."""

    def __init__(self) -> None:
        super().__init__(CRASHES, "crash")
        self._by_node: dict[str, OrderedDict[str, None]] = {}
        """Crash ids in the order of the fold. That is the order of receipt, except for those loaded from a
        snapshot."""
        self._unordered: set[str] = set()
        """Nodes whose crashes were not folded in the order of receipt."""
        self._newest: dict[str, str] = {}

    def nodes(self) -> list[str]:
        """The nodes that reported crashes."""
        return list(self._by_node)

    def of_node(self, node: str) -> list[str]:
        """The ids of this node's crashes, in the order of receipt."""
        ids = self._by_node.get(node)
        if ids is None:
            return []
        if node in self._unordered:
            self._unordered.discard(node)
            ids = self._by_node[node] = OrderedDict.fromkeys(sorted(ids, key=self._received))
        return list(ids)

    def newest_of(self, instance: str) -> str | None:
        """The id of the crash of this instance that was received last, if it is still stored."""
        return self._newest.get(instance)

    def _received(self, id: str) -> tuple[dt.datetime, str]:
        record = self._documents[id].record
        return record.received_at or record.at, id

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        old = self._documents.get(id)
        if old is not None:
            self._leave(id, old.record)
        super().fold(id, revision, body)
        new = self._documents.get(id)
        if new is not None:
            self._enter(id, new.record)

    def _enter(self, id: str, record: CrashRecord) -> None:
        ids = self._by_node.setdefault(record.node, OrderedDict())
        if ids and self._received(id)[0] < self._received(next(reversed(ids)))[0]:
            self._unordered.add(record.node)
        ids[id] = None
        newest = self._newest.get(record.instance)
        if newest is None or self._received(newest)[0] <= self._received(id)[0]:
            self._newest[record.instance] = id

    def _leave(self, id: str, record: CrashRecord) -> None:
        ids = self._by_node[record.node]
        del ids[id]
        if not ids:
            del self._by_node[record.node]
            self._unordered.discard(record.node)
        if self._newest.get(record.instance) == id:
            del self._newest[record.instance]


class DeploymentMirror(Mirror[DeploymentRecord]):
    """The deployments, by id and by group."""

    def __init__(self) -> None:
        super().__init__(DEPLOYMENTS, "deployment")
        self._by_group = KeyIndex()

    def of_group(self, group: str) -> list[StoredRecord[DeploymentRecord]]:
        """The deployments of a group, the last first."""
        found = [self._documents[id] for id in self._by_group.of(group)]
        return sorted(found, key=lambda each: (each.record.created_at, each.record.target), reverse=True)

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        old = self._documents.get(id)
        super().fold(id, revision, body)
        new = self._documents.get(id)
        self._by_group.move(id, old.record.group if old else None, new.record.group if new else None)


class ReservationMirror(Mirror[Reservation]):
    """What each run reserves on its node, and the sums of each node."""

    def __init__(self) -> None:
        super().__init__(RESERVATIONS, "reservation")
        self._usage: dict[str, ReservedSums] = {}
        self._by_node = KeyIndex()

    def usage(self, node: str) -> Usage:
        """The sums of a node; not to be changed."""
        return self._usage.get(node, _UNUSED)

    def of_node(self, node: str) -> list[StoredRecord[Reservation]]:
        """The reservations on a node, in the order of the instances' ids."""
        return [self._documents[id] for id in self._by_node.of(node)]

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        old = self._documents.get(id)
        super().fold(id, revision, body)
        new = self._documents.get(id)
        node, _, _ = id.partition("/")
        self._by_node.move(id, node if old is not None else None, node if new is not None else None)
        sums = self._usage.setdefault(node, ReservedSums())
        if old is not None:
            sums.remove(old.record)
        if new is not None:
            sums.add(new.record)
        if not sums.runs:
            del self._usage[node]


_UNUSED: Final = Usage()


class RevisionMirror(Mirror[RevisionRecord]):
    """The revisions of each group."""

    def __init__(self) -> None:
        super().__init__(REVISIONS, "revision")
        self._numbers: dict[str, list[int]] = {}

    def groups(self) -> list[str]:
        """The groups that have some."""
        return list(self._numbers)

    def numbers(self, group: str) -> Sequence[int]:
        """The numbers of a group's revisions, ascending; valid until the next commit."""
        return self._numbers.get(group, ())

    def of_group(self, group: str) -> list[StoredRecord[RevisionRecord]]:
        return [self._documents[revision_id(group, number)] for number in self.numbers(group)]

    def numbered(self, group: str, number: int) -> RevisionRecord | None:
        found = self._documents.get(revision_id(group, number))
        return found.record if found else None

    def newest(self, group: str) -> RevisionRecord | None:
        numbers = self._numbers.get(group)
        return self.numbered(group, numbers[-1]) if numbers else None

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        was = id in self._documents
        super().fold(id, revision, body)
        group, _, number = id.rpartition("/")
        if (body is not None) == was:
            return
        if body is not None:
            bisect.insort(self._numbers.setdefault(group, []), int(number))
            return
        self._numbers[group].remove(int(number))
        if not self._numbers[group]:
            del self._numbers[group]


class NodeStateMirror(Mirror[NodeModuleState]):
    """Module states on nodes, indexed by node and by module: a connecting node and a request for one module
    read only their own rows."""

    def __init__(self) -> None:
        super().__init__(MODULE_NODE_STATES, "state of a module on a node")
        self._by_node = KeyIndex()
        self._by_module = KeyIndex()

    def of_node(self, node: str) -> list[StoredRecord[NodeModuleState]]:
        """The rows of a node, in the order of the modules' ids."""
        return [self._documents[id] for id in self._by_node.of(node)]

    def of_module(self, module: str) -> list[StoredRecord[NodeModuleState]]:
        """The rows of a module, in the order of the nodes' ids."""
        return [self._documents[id] for id in self._by_module.of(module)]

    def rows_of_module(self, module: str) -> Iterator[NodeModuleState]:
        """The rows of a module, for counts."""
        return (self._documents[id].record for id in self._by_module.of(module))

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        was = id in self._documents
        super().fold(id, revision, body)
        node, _, module = id.partition("/")
        for index, value in ((self._by_node, node), (self._by_module, module)):
            index.move(id, value if was else None, value if body is not None else None)


class TemplateMirror(Mirror[TemplateRecord]):
    """All templates, indexed by template group so that planning a start does not scan all of them."""

    def __init__(self) -> None:
        super().__init__(TEMPLATES, "template")
        self._by_group = KeyIndex()

    def in_group(self, group: str) -> list[TemplateRecord]:
        """The templates of a template group, sorted by name."""
        return [self._documents[name].record for name in self._by_group.of(group)]

    def version_of(self, name: str, hash: str) -> TemplateVersion | None:
        found = self._documents.get(name)
        return found.record.by_hash(hash) if found else None

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        was = id in self._documents
        super().fold(id, revision, body)
        group = group_of(id)
        self._by_group.move(id, group if was else None, group if body is not None else None)
