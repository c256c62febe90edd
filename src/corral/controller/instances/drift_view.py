"""The drift of instances, as of now; see `domain.groups.drift`. What it takes to plan a group is looked up again only when
the group, a template, the catalog or a module has changed."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from corral.controller.instances.plans import StateSources
from corral.controller.instances.revisions import next_revision
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.drift import Drift, drift_of, misplaced
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, stays
from corral.domain.groups.plan_resolution import resolve_plan
from corral.domain.groups.revisions import restarted_basis
from corral.domain.planning.node_table import unsuited
from corral.domain.planning.placement import affinity_numbers, label_applies
from corral.domain.planning.refusals import RefusalCode, sentence
from corral.errors import Rejected

SHOWN: Final = 100
"""The most ids of a kind that are listed for a group."""
NODES: Final = 5
"""The most nodes that the group would not choose now, and that are explained."""


class _Known(NamedTuple):
    spec: GroupSpec
    stamp: tuple[int, ...]
    basis: str
    """Of the document, without restarts."""
    bound: bool
    """Some field restricts the nodes."""


class GroupDrift(NamedTuple):
    """The instances of a group by their drift."""

    ids: dict[Drift, list[str]]
    """At most `SHOWN` of each."""
    counts: dict[Drift, int]
    nodes: dict[str, str]
    """By node, why the group would not choose it now, for those with instances; at most `NODES`."""
    pinned: int = 0
    """The revision that its starts are made by instead of the document; 0: none."""
    pending: bool = False
    """The document, or what it names, differs from that revision."""


class DriftView:
    """Bases of groups over one state of the cluster."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[str, _Known] = {}

    def basis(self, group: str) -> str:
        """The basis of the group's next start; empty: it does not exist, is abstract or cannot be planned."""
        known, stored = self._find(group), self._state.groups.find(group)
        return self._next_basis(stored.record, known) if known is not None and stored is not None else ""

    def _next_basis(self, group: GroupRecord, known: _Known) -> str:
        found = self._state.deployments.find(group.deployment) if group.deployment else None
        number = next_revision(group, found.record if found is not None else None)
        if not number:
            return self._present_basis(known)
        revision = self._state.revisions.numbered(group.spec.name, number)
        return revision.basis if revision is not None else ""

    def _present_basis(self, known: _Known) -> str:
        newest = self._state.revisions.newest(known.spec.name)
        return restarted_basis(known.basis, newest.restart) if newest is not None else known.basis

    def outdates_failures(self, group: str) -> bool:
        """Is the group's next start made of something else than the runs whose failures it counts?"""
        stored = self._state.groups.find(group)
        failed = stored.record.failed_basis if stored is not None else ""
        return drift_of(failed, self.basis(group), elsewhere=False) is Drift.OUTDATED

    def of(self, record: InstanceRecord) -> Drift:
        """The drift of an instance; of one that is not to stay there is none."""
        if not stays(record):
            return Drift.NONE
        known, stored = self._find(record.group), self._state.groups.find(record.group)
        if known is None or stored is None:
            return Drift.UNKNOWN
        elsewhere = known.bound and self._misplaced(record.group, record.node)
        return drift_of(record.basis, self._next_basis(stored.record, known), elsewhere=elsewhere)

    def of_group(self, name: str) -> GroupDrift:
        """What holds for the whole group, or for a node, is looked up once: this is asked with each look at a group."""
        found = GroupDrift(ids={}, counts={}, nodes={}, **self._pin(name))
        known, basis = self._find(name), self.basis(name)
        elsewhere: dict[str, bool] = {}
        for stored in self._state.instances.of_group(name):
            record = stored.record
            if not stays(record):
                continue
            if known is None:
                drift = Drift.UNKNOWN
            else:
                if known.bound and record.node not in elsewhere:
                    elsewhere[record.node] = self._misplaced(name, record.node)
                drift = drift_of(record.basis, basis, elsewhere=elsewhere.get(record.node, False))
            if drift is Drift.NONE:
                continue
            found.counts[drift] = found.counts.get(drift, 0) + 1
            ids = found.ids.setdefault(drift, [])
            if len(ids) < SHOWN:
                ids.append(stored.record.id)
            node = stored.record.node
            if drift is Drift.PLACEMENT and node not in found.nodes and len(found.nodes) < NODES:
                found.nodes[node] = self._misplacement(name, node)
        return found

    def _pin(self, name: str) -> dict[str, Any]:
        known, stored = self._find(name), self._state.groups.find(name)
        if known is None or stored is None or not (number := stored.record.pinned_revision):
            return {}
        revision = self._state.revisions.numbered(name, number)
        pending = revision is None or self._present_basis(known) not in ("", revision.basis)
        return {"pinned": number, "pending": pending}

    def _misplaced(self, group: str, node: str) -> bool:
        stored, there = self._state.groups.find(group), self._state.nodes.find(node)
        return stored is not None and there is not None and misplaced(stored.record.spec, there.record)

    def _misplacement(self, group: str, node: str) -> str:
        """What of a misplaced node differs from the document."""
        spec, there = self._state.groups.require(group).record.spec, self._state.nodes.require(node).record
        refusal = unsuited(spec, there)
        if refusal is not None:
            return refusal.reason
        for each in spec.affinity:
            if each.required and each.label and label_applies(each, there.labels) != (each.weight >= 0):
                return sentence(RefusalCode.AFFINITY, affinity_numbers(each))
        return ""

    def _find(self, group: str) -> _Known | None:
        state = self._state
        stored = state.groups.find(group)
        if stored is None:
            self._known.pop(group, None)
            return None
        spec, stamp = stored.record.spec, (state.templates.folds, state.catalog.folds, state.modules.folds)
        known = self._known.get(group)
        if known is None or known.stamp != stamp or (known.spec is not spec and known.spec != spec):
            known = self._known[group] = _Known(spec, stamp, self._planned(spec), _bound(spec))
        elif known.spec is not spec:  # the record was written again, with the same document
            known = self._known[group] = known._replace(spec=spec)
        return known

    def _planned(self, spec: GroupSpec) -> str:
        try:
            return "" if spec.abstract else resolve_plan(spec, StateSources(self._state), _first).basis
        except Rejected:
            return ""


def _bound(spec: GroupSpec) -> bool:
    return bool(
        spec.nodes
        or spec.node_labels
        or spec.node_capabilities
        or any(each.required and each.label for each in spec.affinity)
    )


def _first(count: int) -> int:
    del count
    return 0
