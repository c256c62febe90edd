"""The planner: a snapshot of groups, instances and nodes in, decisions out.

It reads no clock, draws no lots, logs and changes nothing: the same snapshot gives the same decisions. The reconciler
carries them out; dry runs and `why` only show them.
"""

from __future__ import annotations

import datetime as dt
import heapq
import itertools
from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from corral.domain.decisions import DecisionKind, Numbers, Rule
from corral.domain.groups.instance_records import GroupRecord, is_ready, stays
from corral.domain.instance_states import Wanted
from corral.domain.planning.group_plans import GroupNeed, failed_lately, group_need
from corral.domain.planning.holds import stopped_by_hold
from corral.domain.planning.node_table import NodeTable
from corral.domain.planning.placement import Placement, PlacementRequest, place
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.refusals import PlacementRefusal, listed_nodes
from corral.domain.planning.start_requests import StartRequest
from corral.domain.planning.tiers import DependencyTiers
from corral.errors import counted

_REPORT: Final = dt.timedelta(seconds=5)
"""How often a node reports its load, and its instances their players."""
_PASSED_OVER: Final = 10_000
"""How many starts of static groups are passed over in one pass because their home has no place."""


class PassLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one pass does; the rest is left for the next."""

    starts: int = 50
    starts_of_group: int = 10
    searches: int = 500
    """How often a node is looked for, found or not."""


DEFAULT_LIMITS: Final = PassLimits()


class PlannedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, or a reason for doing nothing."""

    kind: DecisionKind
    rule: Rule
    group: str
    instance: str = ""
    reason: str
    inputs: Numbers = {}
    request: StartRequest | None = None
    placement: Placement | None = None
    refusal: PlacementRefusal | None = None
    wake_at: dt.datetime | None = None


class GroupResult(msgspec.Struct, kw_only=True):
    """What a pass found out about one group."""

    need: GroupNeed
    reason: str = ""
    """Why it has fewer instances than wanted; empty: it has not, or is about to get them."""
    refusal: PlacementRefusal | None = None
    """Why no node takes the next instance."""
    wake_at: dt.datetime | None = None
    error: Exception | None = None
    """It could not be planned; nothing is done for it."""
    started: int = 0


class PlanResult(msgspec.Struct, frozen=True, kw_only=True):
    decisions: tuple[PlannedDecision, ...]
    groups: dict[str, GroupResult]
    """Every group that was looked at."""
    unfinished: tuple[str, ...] = ()
    """Groups for which more is to do at once."""

    @property
    def wake_at(self) -> dt.datetime | None:
        return min((each.wake_at for each in self.groups.values() if each.wake_at), default=None)


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
    return view.unstartable(group, request) or _placed(view, _table(view), group, request)


def _table(view: PlanView) -> NodeTable:
    return NodeTable(view.nodes(), view.runs_by_node, cpu_overcommit=view.cpu_overcommit)


def _placed(
    view: PlanView, table: NodeTable, group: GroupRecord, request: StartRequest
) -> Placement | PlacementRefusal:
    home = view.home_of(group, request)
    placing = PlacementRequest(
        instance=request.id,
        only=home or view.chosen_node(request),
        at_home=bool(home),
        avoid=request.avoid,
        prefer=request.prefer,
        last_ports=request.last_ports if group.spec.static else (),
        failed_on=failed_lately(group, view.now),
    )
    found = place(table, group.spec, placing)
    return found.at_home(request.id, home) if isinstance(found, PlacementRefusal) and home else found


class _Pass:
    """One pass over some groups."""

    def __init__(self, view: PlanView, limits: PassLimits) -> None:
        self._view = view
        self._limits = limits
        self._made_table: NodeTable | None = None
        self._decisions: list[PlannedDecision] = []
        self._groups: dict[str, GroupResult] = {}
        self._unfinished: dict[str, None] = {}
        self._pending: dict[str, Iterator[_Pending]] = {}
        """By group, its starts in their order; made as they are needed, for there may be thousands."""
        self._passes = _PASSED_OVER
        self._tiers = DependencyTiers(view.group)
        self._without_place: set[tuple[str, str]] = set()
        """Group and home, which is empty for most, of which no further instance finds a place in this pass."""

    def run(self, scope: Collection[str]) -> PlanResult:
        for name in sorted(scope):
            try:
                self._look_at(name)
            except Exception as error:  # one broken group delays no other
                self._groups[name] = GroupResult(need=GroupNeed(), error=error)
        self._place_all()
        return PlanResult(
            decisions=tuple(self._decisions), groups=self._groups, unfinished=tuple(self._unfinished)
        )

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
                if not pending.group.spec.static or not self._passes:
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

    def _place_of(self, pending: _Pending) -> tuple[str, str]:
        return pending.group.spec.name, self._view.home_of(pending.group, pending.request)

    def _look_at(self, name: str) -> None:
        group = self._view.group(name)
        if group is None:
            return
        need = group_need(
            group, self._view.tally(name), pause_over=self._view.pause_over(name), now=self._view.now
        )
        if group.hold is None:
            need = self._promoted(group, need)
            need = self._depending(group, need)
        result = self._groups[name] = GroupResult(need=need, reason=need.reason, wake_at=need.wake_at)
        if need.rule is not None and need.reason != group.reason:
            self._decide(DecisionKind.SKIP, need.rule, group, need, need.reason, wake_at=need.wake_at)
        if group.hold is not None:
            self._stop_held(group, need, result)
        elif need.warm_surplus:
            self._stop_warm(group, need)
        if need.start or need.refill:
            self._ask_for_starts(group, need, result)

    def _promoted(self, group: GroupRecord, need: GroupNeed) -> GroupNeed:
        """Let warm instances serve where some are missing: the oldest that is ready comes first."""
        if not need.missing or not need.warm:
            return need
        warm = [each for each in self._view.instances_of(group.spec.name) if each.warm and stays(each)]
        ready = [each for each in warm if is_ready(each) and each.wanted is Wanted.RUN]
        chosen = sorted(ready, key=lambda each: (each.created_at, each.id))[: need.missing]
        for each in chosen:
            reason = f"{counted(need.wanted, 'is', 'are')} wanted, {counted(need.present, 'is', 'are')} there: it was kept warm for this"
            self._decide(DecisionKind.PROMOTE, Rule.WARM_PROMOTE, group, need, reason, instance=each.id)
        return need.with_promoted(len(chosen), group)

    def _depending(self, group: GroupRecord, need: GroupNeed) -> GroupNeed:
        """Start nothing before the groups that it depends on have ready instances."""
        if not need.start and not need.refill:
            return need
        for each in group.spec.depends_on:
            ready = self._view.tally(each.group).ready
            if ready < each.ready:
                text = f"waits for '{each.group}': {ready} of {each.ready} ready"
                return need.waiting(Rule.DEPENDS_WAIT, text)
        return need

    def _stop_held(self, group: GroupRecord, need: GroupNeed, result: GroupResult) -> None:
        """Stop what runs though the group is held. Instances with players are looked at again until they have none."""
        instances = self._view.instances_of(group.spec.name)
        stopped = stopped_by_hold(
            group, instances, self._view.players, unknown_is_empty=self._view.players_settled
        )
        for each in stopped:
            self._decide(DecisionKind.STOP, Rule.HOLD_STOP, group, need, need.reason, instance=each.id)
        if len(stopped) < sum(stays(each) for each in instances):
            result.wake_at = self._view.now + _REPORT

    def _stop_warm(self, group: GroupRecord, need: GroupNeed) -> None:
        """Stop warm instances that are too many, the youngest first."""
        warm = [each for each in self._view.instances_of(group.spec.name) if each.warm and stays(each)]
        youngest = sorted(warm, key=lambda each: (each.created_at, each.id), reverse=True)
        promoted = {each.instance for each in self._decisions if each.kind is DecisionKind.PROMOTE}
        for each in [each for each in youngest if each.id not in promoted][: need.warm_surplus]:
            reason = f"{counted(group.spec.warm, 'warm one is', 'warm ones are')} wanted, there are more"
            self._decide(DecisionKind.STOP, Rule.SURPLUS_STOP, group, need, reason, instance=each.id)

    def _ask_for_starts(self, group: GroupRecord, need: GroupNeed, result: GroupResult) -> None:
        name = group.spec.name
        unreadable = self._view.unreadable_of(name)
        start = max(0, need.start - len(unreadable))
        if need.start and unreadable and not start:
            result.reason = f"the record of {unreadable[0]} cannot be read; it counts as running"
            return
        self._pending[name] = self._starts(group, need, start)

    def _starts(self, group: GroupRecord, need: GroupNeed, start: int) -> Iterator[_Pending]:
        """The starts of a group in their order: those that serve, then the warm ones."""
        name = group.spec.name
        requests = self._view.start_requests(group, reason=need.start_reason)
        for number, request in enumerate(itertools.islice(requests, start + need.refill)):
            warm = number >= start
            if warm:
                request = msgspec.structs.replace(request, warm=True, reason=need.refill_reason(group))
            order = (
                int(warm),
                self._tiers.tier(name),
                -group.spec.priority,
                -group.spec.memory_mb,
                (need.present + number) // self._limits.starts_of_group,  # in turns, those with few first
                name,
                number,
            )
            rule = Rule.WARM_REFILL if warm else Rule.MIN_RESTORE
            yield _Pending(order=order, group=group, need=need, request=request, rule=rule)

    def _place(self, pending: _Pending, result: GroupResult) -> bool:
        """Find a node for a start; is there one?"""
        group, need, request = pending.group, pending.need, pending.request
        found = self._view.unstartable(group, request) or _placed(self._view, self._table, group, request)
        if isinstance(found, PlacementRefusal):
            self._fall_short(pending, found, result)
            return False
        self._table.take(group.spec, found.node, found.ports)
        self._decide(
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
        if result.reason:
            return
        result.refusal = refused
        group, need = pending.group, pending.need.after_starts(result.started)
        returning = refused.returning()
        if returning:
            until = max(
                view.reconnect_until
                for view in self._view.nodes()
                if view.id in returning and view.reconnect_until is not None
            )
            result.reason = f"waits for {listed_nodes(returning)} to reconnect, until {until:%H:%M:%S} UTC"
            result.wake_at = min(result.wake_at or until, until)
            kind, rule = DecisionKind.SKIP, Rule.RECONNECT_WAIT
        else:
            result.reason = f"{refused.code.name}: {refused.summary}"
            kind, rule = DecisionKind.REFUSE, Rule.PLACE_REFUSE
            if any(each.waits_for_report for each in refused.refusals):
                result.wake_at = self._view.now + _REPORT
        if result.reason != group.reason:  # else it was decided before
            lacks = need.refill_reason(group) if pending.request.warm else need.start_reason
            text = f"{lacks}; {result.reason}"
            self._decide(kind, rule, group, need, text, refusal=refused, wake_at=result.wake_at)

    def _decide(
        self,
        kind: DecisionKind,
        rule: Rule,
        group: GroupRecord,
        need: GroupNeed,
        reason: str,
        *,
        instance: str = "",
        request: StartRequest | None = None,
        placement: Placement | None = None,
        refusal: PlacementRefusal | None = None,
        wake_at: dt.datetime | None = None,
    ) -> None:
        self._decisions.append(
            PlannedDecision(
                kind=kind,
                rule=rule,
                group=group.spec.name,
                instance=instance,
                reason=reason,
                inputs={"wanted": need.wanted, "present": need.present},
                request=request,
                placement=placement,
                refusal=refusal,
                wake_at=wake_at,
            )
        )
