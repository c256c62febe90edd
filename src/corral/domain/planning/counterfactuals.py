"""What would change a refusal: the failing comparisons turned round, each tried on the snapshot before it is named.

A condition is only named where the run would be placed with it. Where a node fails several comparisons, one after the
other, the condition joins them.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from corral.domain.decisions import Rule
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.group_plans import failed_lately, is_held
from corral.domain.planning.lacking_room import LARGER_NODE, LackingAmount
from corral.domain.planning.node_table import NodeTable
from corral.domain.planning.node_usage import LeasedPorts
from corral.domain.planning.node_views import NodeView
from corral.domain.planning.placement import Placement, PlacementRequest, counts_other_nodes, place
from corral.domain.planning.plan_results import GroupResult
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.planner import place_one
from corral.domain.planning.refusals import NodeRefusal, PlacementRefusal, RefusalCode
from corral.domain.planning.start_requests import StartRequest

_NODES: Final = 8
"""The most nodes that are tried."""
_NODES_TOGETHER: Final = 3
"""The same for a group whose instances are counted over all nodes in each trial."""
_STEPS: Final = 3
"""The most changes of one node that are joined to one condition."""
_REQUESTS: Final = 10
_DIGITS: Final = 6
RUNS_OF: Final = "runs"
"""As the field of a change: how many instances of which groups are on the node."""
_ANY_VALUE: Final = "…"
_EASIEST: Final = (
    RefusalCode.MEMORY,
    RefusalCode.CPU,
    RefusalCode.DISK,
    RefusalCode.ADMISSION,
    RefusalCode.RECONNECTING,
    RefusalCode.STATE,
    RefusalCode.PORTS,
    RefusalCode.LABELS,
    RefusalCode.SKEW,
    RefusalCode.AFFINITY,
    RefusalCode.CHOICE,
    RefusalCode.CAPABILITY,
    RefusalCode.RUNTIME,
)
_SIZES: Final = {RefusalCode.MEMORY: "memory_mb", RefusalCode.CPU: "cpu", RefusalCode.DISK: "disk_mb"}


class SnapshotChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed field of a node's view; of the group's document where `node` is empty."""

    node: str = ""
    field: str
    value: Any


class Counterfactual(msgspec.Struct, frozen=True, kw_only=True):
    """A condition, and what would follow from it; `at`: when it is met without anybody's doing."""

    condition: str
    effect: str
    at: dt.datetime | None = None
    node: str = ""
    """The node that would take the run."""
    missing: int = 0
    """How many instances are missing where the condition is about one of them; 0: it is about all."""
    changes: tuple[SnapshotChange, ...] = ()
    """The condition as changes of the snapshot; empty: it is not about placement."""


def group_counterfactuals(
    view: PlanView, group: GroupRecord, found: GroupResult, *, node: str = ""
) -> list[Counterfactual]:
    """What would let a group have more instances; `node`: there and nowhere else."""
    name, need = group.spec.name, found.need
    starts = f"{need.missing} can be started" if need.missing else "starts are possible again"
    if group.hold is not None:
        return [Counterfactual(condition=f"corral group release {name}", effect=starts)]
    if group.deleting or group.spec.abstract:
        return []
    if need.rule is Rule.CRASH_PAUSE and group.paused is not None:
        return [
            Counterfactual(condition="the pause ends", effect="a start is tried", at=group.paused.until),
            Counterfactual(condition=f"corral group unpause {name}", effect="a start is tried at once"),
        ]
    if need.rule is Rule.PLACE_AGAIN:
        return [Counterfactual(condition="its place is taken again", effect=starts, at=need.wake_at)]
    if need.rule is Rule.DEPENDS_WAIT:
        unmet = [each for each in group.spec.depends_on if view.tally(each.group).ready < each.ready]
        return [
            Counterfactual(condition=f"'{each.group}' has {each.ready} ready", effect=starts)
            for each in unmet
        ]
    if need.missing or need.refill or found.move_refusal is not None:
        return _of_starts(view, group, found, node)
    return _of_met_group(view, group, found)


def _of_met_group(view: PlanView, group: GroupRecord, found: GroupResult) -> list[Counterfactual]:
    """What would let a group have more than it wants now."""
    if group.spec.static:
        held = [each for each in view.instances_of(group.spec.name) if is_held(group, each)]
        if held:
            return [
                Counterfactual(condition=f"corral instance restart {each.id}", effect=f"'{each.id}' starts")
                for each in held[:_NODES]
            ]
    most = group.spec.max
    if most is not None and found.need.present >= most:
        return [Counterfactual(condition=f"max > {most}", effect="more instances can be started")]
    return []


def _of_starts(view: PlanView, group: GroupRecord, found: GroupResult, node: str) -> list[Counterfactual]:
    requests = view.start_requests(group, reason=found.need.start_reason)
    for _, request in zip(range(_REQUESTS), requests, strict=False):
        refused = place_one(view, group, request)
        if isinstance(refused, PlacementRefusal):
            found_for_one = placement_counterfactuals(view, group, request, refused, node=node)
            missing = found.need.missing + found.need.refill - found.started
            return [msgspec.structs.replace(each, missing=missing) for each in found_for_one]
    return []


def placement_counterfactuals(
    view: PlanView,
    group: GroupRecord,
    request: StartRequest,
    refused: PlacementRefusal,
    *,
    node: str = "",
) -> list[Counterfactual]:
    """What would let a run be placed that no node takes, the smallest changes first; `node`: on this one."""
    if refused.cause is not None:
        hint = refused.cause.hint
        return [Counterfactual(condition=hint, effect=f"'{request.id}' can be started")] if hint else []
    trial = _Trial(view, group, request)
    refusals = [each for each in refused.refusals if node in ("", each.node)]
    together = any(each.by != "node" or each.max_skew is not None for each in group.spec.spread)
    nearest = _nearest(refusals)[: _NODES_TOGETHER if together else _NODES]
    found = [each for refusal in nearest if (each := trial.on_node(refusal)) is not None]
    found = _one_larger_node(found)
    found.sort(key=lambda each: len(each.changes))
    found += trial.smaller(refusals) if not node else []
    unique = {each.condition: each for each in reversed(found)}
    return [*reversed(unique.values()), *_end_of_wait(view, refused)]


def _one_larger_node(found: Sequence[Counterfactual]) -> list[Counterfactual]:
    """All nodes that are too small for the run would say the same."""
    larger = [each for each in found if each.condition.startswith(LARGER_NODE)]
    return [each for each in found if each not in larger[1:]]


def _end_of_wait(view: PlanView, refused: PlacementRefusal) -> list[Counterfactual]:
    """The end of the wait for nodes that reconnect."""
    returning = refused.returning()
    ends = [node.reconnect_until for node in view.nodes() if node.id in returning and node.reconnect_until]
    if not ends:
        return []
    text = "it is no longer waited for " + ", ".join(returning[:3])
    return [Counterfactual(condition=text, effect="the start is refused until a node has room", at=max(ends))]


def _nearest(refusals: Sequence[NodeRefusal]) -> list[NodeRefusal]:
    def order(refusal: NodeRefusal) -> tuple[int, float, str]:
        lacks = refusal.numbers.get("lacks", 0)
        return _EASIEST.index(refusal.code), float(lacks), refusal.node

    return sorted(refusals, key=order)[:_NODES]


class _Trial:
    """One run that no node takes, tried on changed snapshots."""

    def __init__(self, view: PlanView, group: GroupRecord, request: StartRequest) -> None:
        self._view = view
        self._spec = view.as_started(group, request).spec
        self._request = request
        self._nodes = {node.id: node for node in view.nodes()}
        home = view.home_of(group, request)
        self._bound = home or view.chosen_node(request)
        self._at_home = bool(home)
        self._failed_on = failed_lately(group, view.now)
        self._last_ports = request.last_ports if group.spec.static else ()

    def on_node(self, refusal: NodeRefusal) -> Counterfactual | None:
        """What would let this node take the run."""
        node = refusal.node
        changes: list[SnapshotChange] = []
        texts: list[str] = []
        for _ in range(_STEPS):
            step = self._step(refusal, self._changed(changes)[1][node])
            if step is None:
                return None
            texts.append(step[0])
            changes.append(step[1])
            found = self._place(changes, only=node)
            if isinstance(found, Placement):
                effect = f"'{self._request.id}' can start on {node}"
                condition = " and ".join(texts)
                return Counterfactual(condition=condition, effect=effect, node=node, changes=tuple(changes))
            again = next((each for each in found.refusals if each.node == node), None)
            if again is None or again.code is refusal.code:
                return None
            refusal = again
        return None

    def smaller(self, refusals: Sequence[NodeRefusal]) -> list[Counterfactual]:
        """The sizes in the group's document with which some node would take the run."""
        found = []
        for code, field in _SIZES.items():
            free = [each.numbers.get("free", 0) for each in refusals if each.code is code]
            most = max((float(each) for each in free), default=0.0)
            value = most if code is RefusalCode.CPU else int(most)
            changes = [SnapshotChange(field=field, value=value)]
            placed = self._place(changes, only=self._bound) if value > 0 else None
            if isinstance(placed, Placement):
                effect = f"'{self._request.id}' can start on {placed.node}"
                text = f"{field} ≤ {value:g}" if code is RefusalCode.CPU else f"{field} ≤ {value}"
                found.append(
                    Counterfactual(condition=text, effect=effect, node=placed.node, changes=tuple(changes))
                )
        return found

    def _changed(self, changes: Sequence[SnapshotChange]) -> tuple[Any, dict[str, NodeView]]:
        spec, nodes = self._spec, dict(self._nodes)
        for each in changes:
            if each.field == RUNS_OF:
                continue
            if each.node:
                nodes[each.node] = msgspec.structs.replace(nodes[each.node], **{each.field: each.value})
            else:
                spec = msgspec.structs.replace(spec, **{each.field: each.value})
        return spec, nodes

    def _place(self, changes: Sequence[SnapshotChange], *, only: str | None) -> Placement | PlacementRefusal:
        spec, nodes = self._changed(changes)
        if only is not None and not counts_other_nodes(spec):
            nodes = {only: nodes[only]} if only in nodes else {}
        elsewhere = {each.node: each.value for each in changes if each.field == RUNS_OF}

        def runs(group: str) -> Mapping[str, int]:
            changed = {id: value[group] for id, value in elsewhere.items() if group in value}
            return {**self._view.runs_by_node(group), **changed}

        table = NodeTable(nodes.values(), runs, cpu_overcommit=self._view.cpu_overcommit)
        request = PlacementRequest(
            instance=self._request.id,
            only=only,
            last_ports=self._last_ports,
            failed_on=self._failed_on,
            at_home=self._at_home,
        )
        return place(table, spec, request)

    def _step(self, refusal: NodeRefusal, view: NodeView) -> tuple[str, SnapshotChange] | None:
        """The failing comparison turned round: for people, and as a change of the snapshot."""
        node, numbers = view.id, refusal.numbers

        def change(text: str, field: str, value: Any) -> tuple[str, SnapshotChange]:
            return text, SnapshotChange(node=node, field=field, value=value)

        match refusal.code:
            case RefusalCode.STATE | RefusalCode.RECONNECTING if view.state is not NodeState.REVOKED:
                verb = "connects" if view.state is NodeState.ENROLLED else "reconnects"
                return change(f"{node} {verb}", "state", NodeState.ONLINE)
            case RefusalCode.ADMISSION:
                verb = "uncordon" if view.admission is Admission.CORDONED else "undrain"
                return change(f"{verb} {node}", "admission", Admission.OPEN)
            case RefusalCode.LABELS:
                label, value = str(numbers["label"]), str(numbers["wanted"])
                return change(f"label {label}={value} on {node}", "labels", {**view.labels, label: value})
            case RefusalCode.AFFINITY if numbers.get("kind") == "label":
                label, _, value = str(numbers["wanted"]).partition("=")
                return change(f"label {label}={value} on {node}", "labels", {**view.labels, label: value})
            case RefusalCode.AFFINITY if numbers.get("kind") in ("group", "no_group"):
                return self._neighbour(str(numbers["wanted"]), node, there=numbers["kind"] == "group")
            case RefusalCode.SKEW if numbers.get("kind") == "none":
                label = str(numbers["by"])
                return change(f"a label '{label}' on {node}", "labels", {**view.labels, label: _ANY_VALUE})
            case RefusalCode.RUNTIME:
                name = self._spec.runtime
                return change(f"runtime '{name}' on {node}", "runtimes", view.runtimes | {name})
            case RefusalCode.CAPABILITY:
                proven = view.capabilities | set(self._spec.node_capabilities)
                return change(f"{numbers['missing']} proven on {node}", "capabilities", proven)
            case RefusalCode.PORTS:
                return self._more_ports(refusal, view)
            case RefusalCode.MEMORY | RefusalCode.CPU | RefusalCode.DISK:
                return self._more_room(refusal, view)
            case _:
                return self._other_document(refusal)

    def _more_room(self, refusal: NodeRefusal, view: NodeView) -> tuple[str, SnapshotChange]:
        node, numbers = view.id, refusal.numbers
        if numbers.get("kind") == "unknown":
            text, field = f"{node} reports its free disk", "free_disk_mb"
            return text, SnapshotChange(
                node=node, field=field, value=view.preparing_disk_mb + self._spec.disk_mb
            )
        if refusal.code is RefusalCode.DISK:
            lacks = int(numbers["lacks"])
            disk = max(view.free_disk_mb or 0, view.preparing_disk_mb) + lacks
            text = f"{lacks} MB of disk on {node}"
            return text, SnapshotChange(node=node, field="free_disk_mb", value=disk)
        if refusal.code is RefusalCode.CPU:
            overcommit = self._view.cpu_overcommit or 1.0
            cpus = math.ceil(round((view.usage.cpu + self._spec.cpu) / overcommit, _DIGITS))
            amount = LackingAmount(
                "CPUs",
                "--cpus",
                self._spec.cpu,
                view.usage.cpu,
                view.cpus * overcommit,
                view.host_cpus * overcommit,
                cpus,
            )
            return amount.condition(node), SnapshotChange(node=node, field="cpus", value=cpus)
        memory = view.usage.memory_mb + self._spec.memory_mb
        amount = LackingAmount(
            "MB",
            "--memory-mb",
            self._spec.memory_mb,
            view.usage.memory_mb,
            view.memory_mb,
            view.host_memory_mb,
            memory,
        )
        return amount.condition(node), SnapshotChange(node=node, field="memory_mb", value=memory)

    def _neighbour(self, group: str, node: str, *, there: bool) -> tuple[str, SnapshotChange]:
        """A required affinity to a group is met by where that runs."""
        unknown = ", which does not exist," if self._view.group(group) is None else ""
        text = f"{'an' if there else 'no'} instance of '{group}'{unknown} on {node}"
        return text, SnapshotChange(node=node, field=RUNS_OF, value={group: int(there)})

    @staticmethod
    def _more_ports(refusal: NodeRefusal, view: NodeView) -> tuple[str, SnapshotChange]:
        name = refusal.numbers.get("port", "")
        text = f"a wider range of '{name}', or a free one" if name else "a free port"
        field = "refused" if view.refused and not view.leased else "leased"
        value = frozenset() if field == "refused" else LeasedPorts()
        return f"{text} on {view.id}", SnapshotChange(node=view.id, field=field, value=value)

    def _other_document(self, refusal: NodeRefusal) -> tuple[str, SnapshotChange] | None:
        numbers = refusal.numbers
        if refusal.code is RefusalCode.CHOICE and numbers.get("kind", "nodes") == "nodes":
            nodes = (*self._spec.nodes, refusal.node)
            return f"{refusal.node} in 'nodes'", SnapshotChange(field="nodes", value=nodes)
        if refusal.code is RefusalCode.SKEW and "count" in numbers:
            skew = int(numbers["count"]) + 1 - int(numbers["fewest"])
            spread = tuple(
                msgspec.structs.replace(each, max_skew=max(skew, each.max_skew))
                if each.by == numbers["by"] and each.max_skew is not None
                else each
                for each in self._spec.spread
            )
            return f"max_skew ≥ {skew}", SnapshotChange(field="spread", value=spread)
        return None
