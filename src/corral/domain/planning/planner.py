"""The planner: a snapshot of groups, instances and nodes in, decisions out.

It reads no clock, draws no lots, logs and changes nothing: the same snapshot gives the same decisions. The reconciler
carries them out; dry runs and `why` only show them.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.drain_records import DrainWait
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord
from corral.domain.planning.group_decisions import REPORT, look_at_group
from corral.domain.planning.group_plans import GroupNeed, failed_lately
from corral.domain.planning.node_loss import away_text, unreplaced
from corral.domain.planning.node_table import NodeTable
from corral.domain.planning.placement import Placement, PlacementRequest, place
from corral.domain.planning.plan_results import DecisionList, GroupResult, PlanResult
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.refusals import PlacementRefusal, listed_nodes
from corral.domain.planning.start_requests import StartRequest, revision_for_start
from corral.domain.planning.tiers import DependencyTiers

_URGENCY: Final = {
    Rule.DRAIN_MOVE: 1,
    Rule.DEPLOY_START: 1,
    Rule.DEPLOY_ROLLBACK: 1,
    Rule.LOAD_UP: 2,
    Rule.SLOTS_UP: 2,
    Rule.WARM_REFILL: 3,
}
"""Which starts are placed later than those that a document asks for."""
_PASSED_OVER: Final = 10_000
"""How many starts of static groups are passed over in one pass because their home has no place."""


class PassLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one pass does; the rest is left for the next."""

    starts: int = 50
    starts_of_group: int = 10
    searches: int = 500
    """How often a node is looked for, found or not."""
    stops: int = 50
    """Stops, and orders to take no more players."""


DEFAULT_LIMITS: Final = PassLimits()
SHOWN_LIMITS: Final = PassLimits(stops=100_000)
"""For a plan that is only shown: every instance that would stop is named."""
_PARTS: Final = frozenset({DecisionKind.STOP, DecisionKind.DRAIN})


class _Pending(msgspec.Struct, kw_only=True):
    """A start that waits for its place in the order."""

    order: tuple[int, int, int, int, int, str, int]
    group: GroupRecord
    need: GroupNeed
    request: StartRequest
    rule: Rule


def plan(view: PlanView, scope: Collection[str], limits: PassLimits = DEFAULT_LIMITS) -> PlanResult:
    """Decide what these groups need now."""
    return _Pass(view, limits).run(scope)


def place_one(view: PlanView, group: GroupRecord, request: StartRequest) -> Placement | PlacementRefusal:
    """The place of a single start that an operator or a report asks for."""
    refused = view.unstartable(group, request)
    return refused or _placed(view, _table(view), view.as_started(group, request), request)


def _table(view: PlanView) -> NodeTable:
    return NodeTable(view.nodes(), view.runs_by_node, cpu_overcommit=view.cpu_overcommit)


def _placed(
    view: PlanView, table: NodeTable, group: GroupRecord, request: StartRequest
) -> Placement | PlacementRefusal:
    """`group` is as it is started."""
    home = view.home_of(group, request)
    placing = PlacementRequest(
        instance=request.id,
        only=home or view.chosen_node(request),
        at_home=bool(home),
        avoid=request.avoid,
        prefer=request.prefer,
        last_ports=request.last_ports if group.spec.static else (),
        failed_on=failed_lately(group, view.steady),
    )
    found = place(table, group.spec, placing)
    return found.at_home(request.id, home) if isinstance(found, PlacementRefusal) and home else found


class _Pass:
    """One pass over some groups."""

    def __init__(self, view: PlanView, limits: PassLimits) -> None:
        self._view = view
        self._limits = limits
        self._made_table: NodeTable | None = None
        self._decisions = DecisionList()
        self._groups: dict[str, GroupResult] = {}
        self._unfinished: dict[str, None] = {}
        self._pending: dict[str, Iterator[_Pending]] = {}
        """By group, its starts in their order; made as they are needed, for there may be thousands."""
        self._passes = _PASSED_OVER
        self._tiers = DependencyTiers(view.group)
        self._without_place: set[tuple[str, str, int]] = set()
        """Group, home, which is empty for most, and revision of which no further instance finds a place in this pass."""

    def run(self, scope: Collection[str]) -> PlanResult:
        for name in sorted(scope):
            try:
                self._look_at(name)
            except Exception as error:  # one broken group delays no other
                self._groups[name] = GroupResult(need=GroupNeed(), error=error)
        self._bound_stops()
        self._place_all()
        for name, result in self._groups.items():
            if result.drain is not None and result.error is None:
                self._record_drain_wait(name, result)
        return PlanResult(
            decisions=tuple(self._decisions.made), groups=self._groups, unfinished=tuple(self._unfinished)
        )

    def _bound_stops(self) -> None:
        """Leave stops for the next pass that are too many for one, each with the change of number that it follows from."""
        parting = [each for each in self._decisions.made if each.kind in _PARTS]
        if len(parting) <= self._limits.stops:
            return
        left = {each.instance for each in parting[self._limits.stops :]}
        scaled = {each.group for each in parting if each.instance in left and each.rule is Rule.IDLE_DOWN}
        self._unfinished |= {each.group: None for each in parting if each.instance in left}
        self._decisions.made = [
            each
            for each in self._decisions.made
            if not (each.kind in _PARTS and each.instance in left)
            and not (each.kind is DecisionKind.SCALE and each.rule is Rule.IDLE_DOWN and each.group in scaled)
        ]

    def _place_all(self) -> None:
        """Look for a node for each start, in their order, until this pass has done enough."""
        limits = self._limits
        firsts = [self._next(name) for name in self._pending]
        heads = [(first.order, first) for first in firsts if first is not None]
        heapq.heapify(heads)
        started = searched = 0
        while heads:
            _, pending = heads[0]
            name = pending.group.spec.name
            result = self._groups[name]
            enough = started == limits.starts or searched >= limits.searches
            if enough or result.started == limits.starts_of_group:
                self._unfinished[name] = None
                if not result.started:
                    result.reason = result.reason or pending.group.reason
                    result.drain_wait = result.drain_wait or pending.group.drain_wait
                heapq.heappop(heads)
                continue
            found = self._try(pending, result)
            searched += found is not None
            if found:
                started += 1
                result.started += 1
            following = self._next(name) if result.error is None else None
            if following is None:
                heapq.heappop(heads)
            else:
                heapq.heapreplace(heads, (following.order, following))

    def _next(self, name: str) -> _Pending | None:
        """The next start of a group that may find a place; None: there is none."""
        try:
            for pending in self._pending[name]:
                if pending.request.claimed_by or self._place_of(pending) not in self._without_place:
                    return pending
                differ = pending.group.spec.static or len(pending.need.batches) > 1
                if not differ or not self._passes:
                    return None  # all of them have the same place, or this pass has looked at enough of them
                self._passes -= 1
        except Exception as error:  # one broken group delays no other
            self._groups[name].error = error
        return None

    def _try(self, pending: _Pending, result: GroupResult) -> bool | None:
        """Look for a node for one start; is there one? None: no search was made."""
        request = pending.request
        if request.claimed_by:
            self._fall_short(pending, PlacementRefusal.claimed(request.id, request.claimed_by), result)
            return None
        try:
            found = self._place(pending, result)
        except Exception as error:  # one broken group delays no other
            result.error = error
            return False
        if not found:
            self._without_place.add(self._place_of(pending))
        return found

    def _place_of(self, pending: _Pending) -> tuple[str, str, int]:
        group, request = pending.group, pending.request
        revision = revision_for_start(group, request)
        return group.spec.name, self._view.home_of(group, request), revision

    def _look_at(self, name: str) -> None:
        group = self._view.group(name)
        if group is None:
            return
        result = self._groups[name] = look_at_group(self._view, group, self._decisions)
        if result.need.start or result.need.refill or result.need.moves:
            self._ask_for_starts(group, result.need, result)

    def _ask_for_starts(self, group: GroupRecord, need: GroupNeed, result: GroupResult) -> None:
        name = group.spec.name
        unreadable = self._view.unreadable_of(name)
        start = max(0, need.start - len(unreadable))
        if need.start and unreadable and not start:
            result.reason = f"the record of {unreadable[0]} cannot be read; it counts as running"
            return
        self._pending[name] = self._starts(group, need, start)

    def _starts(self, group: GroupRecord, need: GroupNeed, start: int) -> Iterator[_Pending]:
        """The starts of a group in their order: those that serve, those in the place of others, then the warm ones."""
        name = group.spec.name
        requests = self._view.start_requests(group, reason=need.start_reason)
        lost = unreplaced(self._view.instances_of(name)) if self._view.tally(name).lost else []
        serving = start + len(need.moves)
        for number, request in enumerate(itertools.islice(requests, serving + need.refill)):
            warm = number >= serving
            rule = Rule.WARM_REFILL if warm else need.start_rule
            if warm:
                request = msgspec.structs.replace(
                    request, warm=True, reason=need.refill_reason, revision=need.refill_revision
                )
            elif number >= start:
                leaves = need.moves[number - start]
                request, rule = self._moved(group, request, leaves), Rule.DRAIN_MOVE
            elif (batch := need.batch_of(number)) is not None:
                request = msgspec.structs.replace(request, revision=batch.revision, reason=batch.reason)
                rule = batch.rule
            if number < min(len(lost), need.missing, start) and not group.spec.static:
                former = lost[number]
                reason = f"'{former.id}' is lost: {away_text(former)}"
                request = msgspec.structs.replace(request, replaces=former.id, reason=reason)
                rule = Rule.LOST_REPLACE
            order = (
                _URGENCY.get(rule, 0),
                self._tiers.tier(name),
                -group.spec.priority,
                -group.spec.memory_mb,
                (need.present + number) // self._limits.starts_of_group,  # in turns, those with few first
                name,
                number,
            )
            yield _Pending(order=order, group=group, need=need, request=request, rule=rule)

    def _moved(self, group: GroupRecord, request: StartRequest, leaves: InstanceRecord) -> StartRequest:
        """The start of an instance in the place of one that leaves its node; while there are two revisions, by the same."""
        two = bool(group.deployment or group.unsettled)
        return msgspec.structs.replace(
            request,
            moves=leaves.id,
            moves_run=leaves.incarnation,
            reason=f"in the place of '{leaves.id}': {self._view.drain_text(leaves.node)}",
            follows=self._view.drain_decision(leaves.node),
            revision=leaves.revision if two else 0,
        )

    def _place(self, pending: _Pending, result: GroupResult) -> bool:
        """Find a node for a start; is there one?"""
        group, need, request = pending.group, pending.need, pending.request
        started = self._view.as_started(group, request)
        found = self._view.unstartable(group, request) or _placed(self._view, self._table, started, request)
        if isinstance(found, PlacementRefusal):
            self._fall_short(pending, found, result)
            return False
        self._table.take(started.spec, found.node, found.ports)
        self._decisions.add(
            request.kind,
            pending.rule,
            group,
            need,
            request.reason,
            instance=request.id,
            request=request,
            placement=found,
        )
        return True

    @property
    def _table(self) -> NodeTable:
        """Made when the first start needs a node: most passes start nothing."""
        if self._made_table is None:
            self._made_table = _table(self._view)
        return self._made_table

    def _fall_short(self, pending: _Pending, refused: PlacementRefusal, result: GroupResult) -> None:
        """Record why there are fewer instances than wanted: once a pass, by the first refusal."""
        group, need = pending.group, pending.need.after_starts(result.started)
        if need.moves and result.move_refusal is None:
            result.move_refusal = refused
        if result.reason or pending.rule is Rule.DRAIN_MOVE:
            return
        result.refusal = refused
        kind, rule, result.reason = self._short_of(refused, result)
        if result.reason != group.reason:  # else it was decided before
            lacks = need.refill_reason if pending.request.warm else need.start_reason
            if need.batches and not pending.request.warm:
                lacks = pending.request.reason
            text = f"{lacks}; {result.reason}"
            self._decisions.add(kind, rule, group, need, text, refusal=refused, wake_at=result.wake_at)

    def _short_of(self, refused: PlacementRefusal, result: GroupResult) -> tuple[DecisionKind, Rule, str]:
        """Whether a start waits or is refused, by which rule, and why, for people."""
        if returning := refused.returning():
            until = max(
                view.reconnect_until
                for view in self._view.nodes()
                if view.id in returning and view.reconnect_until is not None
            )
            result.wake(until)
            text = f"waits for {listed_nodes(returning)} to reconnect, until {until:%H:%M:%S} UTC"
            return DecisionKind.SKIP, Rule.RECONNECT_WAIT, text
        text = f"{refused.code.name}: {refused.summary}"
        if held_by := refused.emptied():
            return (
                DecisionKind.SKIP,
                Rule.DRAIN_WAIT,
                f"held until {listed_nodes(held_by)} is open again; {text}",
            )
        if any(each.waits_for_report for each in refused.refusals):
            result.wake(self._view.now + REPORT)
        return DecisionKind.REFUSE, Rule.PLACE_REFUSE, text

    def _record_drain_wait(self, name: str, result: GroupResult) -> None:
        """Record why an instance cannot leave a node that is emptied, unless that was done before."""
        group = self._view.group(name)
        refused, need = result.move_refusal, result.need.after_starts(result.started)
        if group is None:
            return
        kind = DecisionKind.SKIP
        if refused is not None and need.moves:
            first = need.moves[0]
            kind, _, text = self._short_of(refused, result)
            result.drain_wait = DrainWait(
                instance=first.id,
                reason=f"'{first.id}' stays on node '{first.node}': no replacement is started, {text}",
                room=True,
            )
        waits = result.drain_wait
        if waits is not None and waits != group.drain_wait:
            self._decisions.add(
                kind,
                Rule.DRAIN_WAIT,
                group,
                need,
                waits.reason,
                refusal=refused if waits.room else None,
                wake_at=result.wake_at,
            )
