"""A transaction under construction: the changes that it will make to groups, instances and ledgers.

Reads see the state with the changes of this workspace on top; a document that is changed several times is
written once. Nothing takes effect until `steps` are committed; a workspace that met a conflict is discarded
and a new one made.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from corral.controller.instances.crash_changes import CrashChanges
from corral.controller.instances.decision_entries import bounded_rejections, decision_entries
from corral.controller.instances.node_candidates import DEFAULT_RULES, NodeCandidates, PlacementRules
from corral.controller.instances.overlay import (
    Mark,
    Overlay,
    emptied_nodes,
    on_node,
    restoring,
    runs_by_node,
    tally_of,
    usage_on,
)
from corral.controller.instances.plan_resolver import PlanResolver
from corral.controller.instances.plans import StateSources
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import (
    CRASHES,
    DEPLOYMENTS,
    GROUPS,
    INSTANCES,
    NODE_LEDGERS,
    NODES,
    PLANS,
    RESERVATIONS,
    REVISIONS,
    StateCollection,
)
from corral.controller.state.ledger import Step
from corral.domain.decisions import Alternative, DecisionKind, Rule
from corral.domain.events import Draft, EventType
from corral.domain.groups.crash_records import CrashRecord
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import (
    DecisionRecord,
    GroupRecord,
    InstanceRecord,
    NodeLedger,
    PlanRecord,
    Reservation,
)
from corral.domain.groups.plan_resolution import ResolvedPlan
from corral.domain.ids import DecisionId, Epoch, Incarnation, NodeId
from corral.domain.planning.node_usage import Usage
from corral.domain.planning.node_views import NodeView
from corral.domain.planning.tallies import GroupTally
from corral.domain.records import BootMoment, NodeRecord, Record
from corral.store.port import Append
from corral.system.entropy import Entropy, new_id

_REASON: Final = 1000
R = TypeVar("R", bound=Record)


class StartNumbers(Protocol):
    def take(self) -> Incarnation: ...


class Workspace:
    """One transaction under construction, on behalf of `cause`."""

    def __init__(
        self,
        state: ClusterState,
        *,
        cause: str,
        now: dt.datetime,
        epoch: Epoch,
        entropy: Entropy,
        numbers: StartNumbers,
        left_alone: Callable[[], Mapping[str, str]] = dict,
        boot: BootMoment | None = None,
        steady: dt.datetime | None = None,
        request: str = "",
        by: str = "",
        placing: PlacementRules = DEFAULT_RULES,
    ) -> None:
        """`request`: the id of the request that the transaction belongs to; `by`: who made it, for people. `steady`: the
        time by a clock that is not set while the controller leads; None: by the wall clock."""
        self.state = state
        self.cause = cause
        self.by = by or cause
        self.request = request
        self.causes: tuple[str, ...] = ()
        """Ids of what led to the transaction, the nearest first; see `Decision.causes`."""
        self.now = now
        self.steady = steady or now
        self._boot = boot
        self._epoch = epoch
        self._entropy = entropy
        self._numbers = numbers
        self._left_alone_source = left_alone
        self._left_alone: Mapping[str, str] | None = None
        self._overlays = {
            GROUPS.name: Overlay(state.groups),
            INSTANCES.name: Overlay(state.instances),
            NODES.name: Overlay(state.nodes),
            DEPLOYMENTS.name: Overlay(state.deployments),
            NODE_LEDGERS.name: Overlay(state.node_ledgers),
            RESERVATIONS.name: Overlay(state.reservations),
            CRASHES.name: Overlay(state.crashes),
            REVISIONS.name: Overlay(state.revisions),
        }
        self._crashes = CrashChanges(state, self._overlays[CRASHES.name])
        self.plans = PlanResolver(StateSources(state), entropy)
        self._plans: dict[str, PlanRecord] = {}
        self._events: list[Draft] = []
        self._entries: list[Append] = []
        self._undo: list[Callable[[], object]] = []
        """The undo functions of all document changes, the latest last."""
        self.cpu_overcommit = placing.cpu_overcommit
        self._candidates = NodeCandidates(
            state,
            self,
            self._overlays[INSTANCES.name].changed,
            self._overlays[NODES.name].changed,
            now=now,
            rules=placing,
        )

    # reads

    def group(self, name: str) -> GroupRecord | None:
        found: GroupRecord | None = self._overlays[GROUPS.name].get(name)
        return found

    def require_group(self, name: str) -> GroupRecord:
        return self.group(name) or self.state.groups.require(name).record

    def groups(self) -> dict[str, GroupRecord]:
        """All groups by name."""
        return self._overlays[GROUPS.name].all()

    def instance(self, id: str) -> InstanceRecord | None:
        found: InstanceRecord | None = self._overlays[INSTANCES.name].get(id)
        return found

    def require_instance(self, id: str) -> InstanceRecord:
        return self.instance(id) or self.state.instances.require(id).record

    def instances_of(self, group: str) -> list[InstanceRecord]:
        """Every instance of a group, ended ones included."""
        changed = self._overlays[INSTANCES.name].changed
        stored = [
            each.record for each in self.state.instances.of_group(group) if each.record.id not in changed
        ]
        added = [r for r in changed.values() if isinstance(r, InstanceRecord) and r.group == group]
        return stored + added

    def tally(self, group: str) -> GroupTally:
        """The numbers of a group's instances."""
        return tally_of(self.state.instances, group, self._overlays[INSTANCES.name].changed)

    def runs_by_node(self, group: str) -> Mapping[str, int]:
        """How many instances of a group are on each node."""
        return runs_by_node(self.state.instances, group, self._overlays[INSTANCES.name].changed)

    def changed_instances(self) -> Iterable[str]:
        """The ids of instances that this transaction changes."""
        return self._overlays[INSTANCES.name].changed

    def node(self, id: str) -> NodeRecord | None:
        found: NodeRecord | None = self._overlays[NODES.name].get(id)
        return found

    def require_node(self, id: str) -> NodeRecord:
        return self.node(id) or self.state.nodes.require(id).record

    @property
    def emptied(self) -> frozenset[str]:
        """The nodes that are draining or drained."""
        changed = self._overlays[NODES.name].changed
        return emptied_nodes(self.state.nodes, changed) if changed else self.state.nodes.emptied

    def on_node(self, node: str) -> list[InstanceRecord]:
        """The instances whose present or last run is on a node."""
        return on_node(self.state.instances, node, self._overlays[INSTANCES.name].changed)

    def crash(self, id: str) -> CrashRecord | None:
        found: CrashRecord | None = self._overlays[CRASHES.name].get(id)
        return found

    def has_crash(self, id: str) -> bool:
        """Is the crash stored? An unreadable one counts, with all of its effects."""
        return self.crash(id) is not None or self.state.quarantine.holds(CRASHES.name, id)

    def ledger(self, node: str) -> NodeLedger:
        found: NodeLedger | None = self._overlays[NODE_LEDGERS.name].get(node)
        return found or NodeLedger(node=NodeId(node))

    def reservation(self, node: str, id: str) -> Reservation | None:
        """What a run reserves on a node."""
        found: Reservation | None = self._overlays[RESERVATIONS.name].get(f"{node}/{id}")
        return found

    def usage(self, node: str) -> Usage:
        return usage_on(self.state.reservations, node, self._overlays[RESERVATIONS.name].changed)

    def nodes(self) -> list[NodeView]:
        """Nodes that may be placed on."""
        return self._candidates.views()

    def unreadable_of(self, group: str) -> list[str]:
        """The ids of instances that seem to belong to a group and have unreadable records: they may be
        running."""
        if not self.state.quarantine:
            return []
        record = self.group(group)
        names = record.spec.static_names if record is not None else ()
        found = self.state.quarantine.of(INSTANCES.name)
        return [each.id for each in found if each.id in names or each.id.rpartition("-")[0] == group]

    def claimant(self, id: str) -> str:
        """The connected node that lists a run of this id which nothing proves to be the cluster's; empty when
        none does."""
        if self._left_alone is None:
            self._left_alone = self._left_alone_source()
        return self._left_alone.get(id, "")

    def boot_moment(self, seconds: float) -> BootMoment | None:
        """The time this many seconds from now, by the boot clock, which cannot be set; None where there is
        none."""
        if self._boot is None:
            return None
        return msgspec.structs.replace(self._boot, seconds=self._boot.seconds + seconds)

    def document(self, collection: StateCollection[R], id: str) -> R | None:
        """A document of a collection that has no words of its own here."""
        found: R | None = self._overlays[collection.name].get(id)
        return found

    # changes

    def put_document(self, collection: StateCollection[R], id: str, record: R | None) -> None:
        """None removes it."""
        self._change(collection.name, id, record)

    def put_group(self, record: GroupRecord) -> None:
        self._change(GROUPS.name, record.spec.name, record)

    def delete_group(self, name: str) -> None:
        self._change(GROUPS.name, name, None)

    def put_instance(self, record: InstanceRecord) -> None:
        self._change(INSTANCES.name, record.id, record)

    def delete_instance(self, id: str) -> None:
        self._change(INSTANCES.name, id, None)

    def deployment(self, id: str) -> DeploymentRecord | None:
        found: DeploymentRecord | None = self._overlays[DEPLOYMENTS.name].get(id)
        return found

    def put_deployment(self, record: DeploymentRecord) -> None:
        self._change(DEPLOYMENTS.name, record.id, record)

    def delete_deployment(self, id: str) -> None:
        self._change(DEPLOYMENTS.name, id, None)

    def put_node(self, record: NodeRecord) -> None:
        self._change(NODES.name, record.id, record)

    def put_crash(self, record: CrashRecord, *, most: int, instead: bool = False) -> None:
        """Add a crash, removing its node's oldest ones where more than `most` would be kept; `instead`:
        replace the newest one of its instance."""
        for id in self._crashes.add(record, most=most, instead=instead, undo=self._undo):
            self._change(CRASHES.name, id, None)
        self._change(CRASHES.name, record.id, record)

    def put_ledger(self, ledger: NodeLedger) -> None:
        self._change(NODE_LEDGERS.name, ledger.node, ledger)
        self._candidates.outdate(ledger.node)

    def set_reservation(self, node: str, id: str, reservation: Reservation | None) -> None:
        """Set what a run reserves on a node. To reserve, the ledger of the node has to be written, too."""
        self._change(RESERVATIONS.name, f"{node}/{id}", reservation)
        self._candidates.outdate(node)

    def _change(self, collection: str, id: str, record: Record | None) -> None:
        changed = self._overlays[collection].changed
        self._undo.append(restoring(changed, id))
        changed[id] = record

    def insist_on_neighbours(self, node: str) -> None:
        """Make the transaction fail when ports were leased concurrently on a node of the same address.

        All such transactions also write the document of the address, so that one of two concurrent ones
        conflicts.
        """
        if space := self._candidates.shared_space(node):
            self.put_ledger(NodeLedger(node=NodeId(f"@{space}")))

    def put_plan(self, plan: PlanRecord) -> None:
        """Write a plan even if it is stored: so it is not dropped as unused at the same time."""
        self._undo.append(restoring(self._plans, plan.hash))
        self._plans[plan.hash] = plan

    def event(self, type: EventType, subject: str, **data: Any) -> None:
        self._events.append(Draft(type=type, subject=subject, data=data))

    def resolve(self, spec: GroupSpec, *, draw: Callable[[int], int] | None = None) -> ResolvedPlan:
        """The plan that an instance of this group would be started with now. Raises what `resolve_plan`
        raises. `draw`: instead of chance. Starts of one transaction share a plan, unless it contains random choices.
        """
        return self.plans.resolve(spec, draw=draw)

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self._entropy)

    def next_incarnation(self) -> Incarnation:
        return self._numbers.take()

    def decide(
        self,
        kind: DecisionKind,
        *,
        group: str,
        instance: str | None = None,
        reason: str,
        inputs: Mapping[str, str | int | float | bool] | None = None,
        rejected: Sequence[Alternative] = (),
        request: str = "",
        rule: Rule = Rule.OPERATOR,
        causes: Sequence[str] = (),
        **facts: Any,
    ) -> DecisionId:
        """Record a decision: in the journals of its instance, its group, if that is not empty, and, where it names one, its node.
        `request`: the id of an earlier request that it continues, where this transaction has none. `causes`: ids of
        what led to it, nearer than the causes of the transaction. `facts`: further fields of a `Decision`."""
        request = self.request or request
        asked = (f"request:{request}",) if request else ()
        linked = tuple(dict.fromkeys(filter(None, (*causes, *self.causes, *asked))))
        decision = DecisionRecord(
            id=DecisionId(new_id("dec", self._entropy)),
            cause=self.cause,
            kind=kind,
            subject=instance or group or facts.get("node", ""),
            reason=reason[:_REASON],
            epoch=self._epoch,
            at=self.now,
            inputs=dict(inputs or {}),
            rejected=bounded_rejections(rejected),
            request=request,
            rule=rule,
            causes=linked,
            root=linked[-1] if linked else self.cause,
            **facts,
        )
        self._entries += decision_entries(decision, group=group, instance=instance)
        return decision.id

    # result

    def steps(self) -> tuple[Step, ...]:
        """All changes as the steps of one transaction; empty when nothing changes."""
        return self.pending_steps()()

    def pending_steps(self) -> Callable[[], tuple[Step, ...]]:
        """The same, with the revisions of now; the call encodes them, and may be made in another thread."""
        documents = [step for overlay in self._overlays.values() for step in overlay.pending()]
        plans = list(self._plans.values())
        others: list[Step] = [*self._events, *self._entries]

        def encoded() -> tuple[Step, ...]:
            puts = [PLANS.put(plan.hash, plan, expect=None) for plan in plans]
            return (*(encode() for encode in documents), *puts, *others)

        return encoded

    def mark(self) -> Mark:
        """A savepoint for `back_to`."""
        return Mark(changes=len(self._undo), events=len(self._events), entries=len(self._entries))

    def back_to(self, mark: Mark) -> None:
        """Undo the changes since the savepoint."""
        while len(self._undo) > mark.changes:
            self._undo.pop()()
        self._candidates.clear()
        del self._events[mark.events :]
        del self._entries[mark.entries :]
