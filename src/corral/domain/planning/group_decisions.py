"""What a group needs and gives up, before nodes are looked at: holds, surplus, load, warm instances, dependencies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

import msgspec

from corral.domain.decisions import DecisionKind, Numbers, Rule
from corral.domain.groups.instance_records import (
    GroupRecord,
    InstanceRecord,
    is_draining,
    is_present,
    stays,
)
from corral.domain.planning import node_drains
from corral.domain.planning.existing_instances import choose_promoted, choose_returning
from corral.domain.planning.group_plans import GroupNeed, group_need
from corral.domain.planning.group_waits import wait_for_away, wait_for_groups, wait_for_nodes, wait_for_stops
from corral.domain.planning.holds import stopped_by_hold
from corral.domain.planning.node_loss import (
    away_text,
    choose_copy,
    losses,
    returned_copies,
    waiting_copies,
)
from corral.domain.planning.plan_results import DecisionList, GroupResult
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_results import RolloutResult, held_rollout
from corral.domain.planning.rollouts import look_at_rollout
from corral.domain.planning.scaling import NEVER, ScalingVerdict, load_verdict, wanted_count
from corral.domain.planning.schedules import scheduled
from corral.domain.planning.stops import (
    Surplus,
    choose_idle,
    choose_surplus,
    choose_warm,
    drained,
    idle_left,
    left_text,
    stop_text,
)
from corral.errors import counted

REPORT: Final = dt.timedelta(seconds=5)
"""How often a node reports its load, and its instances their players."""
_BY_LOAD: Final = frozenset({Rule.LOAD_UP, Rule.SLOTS_UP})


def look_at_group(view: PlanView, group: GroupRecord, decisions: DecisionList) -> GroupResult:
    """Decide about everything that needs no node; the result says what is to be started."""
    return _GroupLook(view, group, decisions).run()


class _GroupLook:
    """One look at one group."""

    def __init__(self, view: PlanView, group: GroupRecord, decisions: DecisionList) -> None:
        self._view = view
        self._group = group
        self._spec = group.spec
        self._decisions = decisions
        self._values = scheduled(group.spec, view.now)
        deployment = group.deployment or group.unsettled
        self._deployment = view.deployment(deployment) if deployment else None
        self._rollout: RolloutResult | None = None
        self._copies: set[str] = set()
        """Instances of which one goes because it is there twice."""
        self._under_way: Mapping[str, InstanceRecord] = {}
        """Replacements that do not count yet, by the instances on emptied nodes in whose place they are."""

    def run(self) -> GroupResult:
        group, view = self._group, self._view
        tally = view.tally(self._spec.name)
        draining = tally.draining
        emptying = bool(view.emptied) and self._is_on_emptied(draining)
        if emptying:
            self._under_way = node_drains.replacements(self._instances(), view.emptied)
            tally = node_drains.drained_tally(
                tally, self._instances(), view.emptied, under_way=len(self._under_way)
            )
        verdict = load_verdict(group, self._values, view, serving=tally.serving, starting=tally.starting)
        need = group_need(
            group,
            tally,
            values=self._values,
            verdict=verdict,
            pause_over=view.pause_over(self._spec.name),
            now=view.now,
            steady=view.steady,
        )
        if group.hold is None:
            self._scale_up(need, verdict)
            need = self._deployed(need)
            need = wait_for_groups(view, self._spec, need)
            need = wait_for_nodes(self._spec, need, self._instances, lost=tally.lost, away=tally.away)
            need = wait_for_stops(self._spec, need, self._instances, serving=tally.serving)
        elif self._deployment is not None:
            self._rollout = held_rollout(self._deployment, need, now=view.now)
        result = GroupResult(
            need=need, reason=need.reason, scaling=verdict, rollout=self._rollout, wake_at=need.wake_at
        )
        if need.rule is not None and need.reason != group.reason:
            self._add(DecisionKind.SKIP, need.rule, need, need.reason, wake_at=need.wake_at)
        if group.deleting:
            return result
        if group.hold is not None:
            self._stop_held(need, result)
            return result
        self._wake_by_time(result)
        if tally.away > tally.lost:
            self._lose(need, result)
        need = self._without_copies(need, result, serving=tally.serving, verdict=verdict)
        if need.warm_surplus:
            self._stop_warm(need)
        if need.surplus:
            self._part_with_surplus(need)
        if draining:
            self._stop_drained(need, result)
        if emptying:
            self._empty_nodes(need, result, serving=tally.serving)
        if verdict is not None:
            self._follow_load(need, verdict, result)
        return result

    def _deployed(self, need: GroupNeed) -> GroupNeed:
        """What a deployment makes of the need; without one, those that are there serve before others are started."""
        if self._deployment is None:
            need = self._promoted(self._taken_back(need))
            return wait_for_away(self._spec, need, self._instances)
        self._rollout = found = look_at_rollout(self._view, self._group, self._deployment, need)
        for each in found.steps:
            self._add(each.kind, each.rule, found.need, each.reason, instance=each.instance)
        return found.need

    def _leaves_to_deployment(self, *records: InstanceRecord) -> bool:
        """Does the deployment alone decide about one of these?"""
        return self._rollout is not None and any(each.id in self._rollout.outgoing for each in records)

    def _wake_by_time(self, result: GroupResult) -> None:
        """Look again when a schedule begins or ends, when an operator's floor ends, and when a deployment is to go on."""
        result.wake(self._values.changes_at)
        if self._rollout is not None and self._rollout.wake_after is not None:
            result.wake(self._view.now + dt.timedelta(seconds=self._rollout.wake_after))
        if self._view.floor(self._group) and (left := self._view.floor_left(self._group)) != NEVER:
            result.wake(self._view.now + dt.timedelta(seconds=left))

    def _lose(self, need: GroupNeed, result: GroupResult) -> None:
        """Count instances no more whose nodes are away for too long. The next look replaces them."""
        found = losses(self._view, self._spec, self._instances())
        inputs: Numbers = {"replace_after_seconds": self._spec.disconnect.replace_after_seconds or 0}
        for each in found.lost:
            reason = f"{away_text(each)}, longer than its group waits: it is lost"
            self._add(DecisionKind.PHASE, Rule.LOST_REPLACE, need, reason, instance=each.id, inputs=inputs)
        if found.next_in is not None:
            result.wake(self._view.now + dt.timedelta(seconds=found.next_in))

    def _without_copies(
        self, need: GroupNeed, result: GroupResult, *, serving: int, verdict: ScalingVerdict | None
    ) -> GroupNeed:
        """Part with one of two where a lost instance is back and its replacement is there, too, unless both are needed."""
        spare = serving - (need.wanted if verdict is None else verdict.need)
        if spare <= 0:
            return need
        found_copies = returned_copies(self._instances())
        copies = [
            each for each in found_copies if not self._leaves_to_deployment(each.original, each.replacement)
        ][:spare]
        for each in copies:
            self._copies |= {each.original.id, each.replacement.id}
            found = choose_copy(self._view, self._spec, each)
            if found.goes is None:
                result.wake(self._view.now + REPORT)
                result.copies += (waiting_copies(self._view, each, found),)
                continue
            inputs: Numbers = {
                "original": each.original.id,
                "replacement": each.replacement.id,
                **self._known_players(each.original, each.replacement),
            }
            kind = DecisionKind.DRAIN if found.drains else DecisionKind.STOP
            self._add(kind, Rule.DUPLICATE_STOP, need, found.reason, instance=found.goes.id, inputs=inputs)
        return msgspec.structs.replace(need, surplus=max(0, need.surplus - len(copies)))

    def _known_players(self, *records: InstanceRecord) -> Numbers:
        counts = ((each.id, self._view.players(each.id)) for each in records)
        return {f"players of {id}": count for id, count in counts if count is not None}

    def _is_on_emptied(self, draining: int) -> bool:
        there = self._view.runs_by_node(self._spec.name)
        return bool(draining) or any(there.get(node) for node in self._view.emptied)

    def _empty_nodes(self, need: GroupNeed, result: GroupResult, *, serving: int) -> None:
        """Let instances leave nodes that are emptied, and have others started in their places."""
        own = {each.instance for each in self._decisions.made if each.group == self._spec.name}
        instances = self._instances()
        found = node_drains.drain_verdict(
            self._view,
            self._group,
            instances,
            numbers=node_drains.GroupNumbers(wanted=need.wanted, serving=serving, starting=need.start),
            under_way=self._under_way,
            apart=own | {each.id for each in instances if self._is_rolled_out(each)},
            parted=any(each.id in own for each in instances),
        )
        for each in found.departures:
            self._add(
                each.kind, Rule.DRAIN_MOVE, need, each.reason, instance=each.record.id, inputs=each.inputs
            )
        if found.look_after is not None:
            result.wake(self._view.now + dt.timedelta(seconds=found.look_after))
        result.drain, result.drain_wait = found, found.waits
        result.need = msgspec.structs.replace(need, moves=found.replace)

    def _is_rolled_out(self, record: InstanceRecord) -> bool:
        """Does its deployment part with it anyway, and have others started in its place? One that waits for a node without
        end does not."""
        progress = None
        if self._rollout is not None and not self._rollout.awaits:
            progress = self._rollout.progress
        whole = progress is not None and progress.goal >= progress.wanted
        return whole and record.id not in self._under_way and self._leaves_to_deployment(record)

    def _taken_back(self, need: GroupNeed) -> GroupNeed:
        """Let instances serve again that were to go and still have players, where some are missing."""
        if not need.missing:
            return need
        leaving = (each for each in self._instances() if is_draining(each) and not each.warm)
        staying = (each for each in leaving if each.node not in self._view.emptied)
        chosen = choose_returning(self._view, staying, need.missing)
        for each in chosen:
            reason = f"{need.start_reason}: it serves again"
            self._add(DecisionKind.UNDRAIN, Rule.MIN_RESTORE, need, reason, instance=each.id)
        return need.with_more(len(chosen))

    def _promoted(self, need: GroupNeed) -> GroupNeed:
        """Let warm instances serve where some are missing: the oldest that is ready comes first."""
        if not need.missing or not need.warm:
            return need
        warm = (each for each in self._instances() if each.warm and is_present(each))
        chosen = choose_promoted(self._view, warm, need.missing)
        for each in chosen:
            reason = f"{need.start_reason}: it was kept warm for this"
            self._add(DecisionKind.PROMOTE, Rule.WARM_PROMOTE, need, reason, instance=each.id)
        return need.with_promoted(len(chosen), self._values.warm)

    def _stop_held(self, need: GroupNeed, result: GroupResult) -> None:
        """Stop what runs though the group is held. Instances with players are looked at again until they have none."""
        instances = self._instances()
        stopped = stopped_by_hold(
            self._group, instances, self._view.players, unknown_is_empty=self._view.players_settled
        )
        for each in stopped:
            reason = stop_text(self._view, each, need.reason)
            self._add(DecisionKind.STOP, Rule.HOLD_STOP, need, reason, instance=each.id)
        if len(stopped) < sum(stays(each) or is_draining(each) for each in instances):
            result.wake_at = self._view.now + REPORT

    def _stop_warm(self, need: GroupNeed) -> None:
        """Part with warm instances that are too many."""
        promoted = {each.instance for each in self._decisions.made if each.kind is DecisionKind.PROMOTE}
        there = (each for each in self._instances() if each.warm and is_present(each))
        warm = [each for each in there if each.id not in promoted]
        text = f"{counted(self._values.warm, 'warm one is', 'warm ones are')} wanted, there are more"
        self._part_with(choose_warm(self._view, self._spec, warm, need.warm_surplus), need, text)

    def _part_with_surplus(self, need: GroupNeed) -> None:
        """Stop what is too many; an instance with players takes no more of them until it has none."""
        apart = self._copies | self._replacement_ids
        there = [
            each
            for each in self._instances()
            if each.id not in apart and not self._leaves_to_deployment(each)
        ]
        found = choose_surplus(self._view, self._spec, there, need.surplus)
        wanted = self._values.bounded(need.wanted)
        self._part_with(found, need, msgspec.structs.replace(need, wanted=wanted).start_reason)

    def _part_with(self, found: Surplus, need: GroupNeed, text: str) -> None:
        for each in found.stop:
            reason = stop_text(self._view, each, text)
            self._add(DecisionKind.STOP, Rule.SURPLUS_STOP, need, reason, instance=each.id)
        for each in found.drain:
            reason = f"{text}; it is stopped when it has no players"
            self._add(DecisionKind.DRAIN, Rule.SURPLUS_STOP, need, reason, instance=each.id)

    def _stop_drained(self, need: GroupNeed, result: GroupResult) -> None:
        """Stop those that take no more players and have none left, unless a deployment has just decided that, or that they
        serve again."""
        decided = {each.instance for each in self._decisions.made}
        leaving = [each for each in self._instances() if is_draining(each) and each.id not in decided]
        gone = drained(self._view, self._spec, leaving)
        for each in gone:
            rule = Rule(each.drain.by) if each.drain is not None else Rule.SURPLUS_STOP
            self._add(DecisionKind.STOP, rule, need, left_text(self._view, each), instance=each.id)
        if len(gone) < len(leaving):
            result.wake(self._view.now + REPORT)

    def _scale_up(self, need: GroupNeed, verdict: ScalingVerdict | None) -> None:
        """Record that more are wanted because of load: those that drain, those that are warm, and new ones serve then. While
        the group is deployed also where so many are there: some of them are on top of the number only for a while."""
        if verdict is None:
            return
        if self._group.deployment:
            kept = wanted_count(self._group, self._values)
            if verdict.wanted > kept:
                rule = verdict.rule if verdict.rule in _BY_LOAD else Rule.LOAD_UP
                self._scale(need, verdict, rule, kept, verdict.wanted)
            return
        last = self._group.last_scale
        if not need.missing or verdict.rule not in _BY_LOAD:
            return
        if last is None or last.need != verdict.wanted:
            self._scale(need, verdict, verdict.rule, verdict.serving, verdict.wanted)

    def _follow_load(self, need: GroupNeed, verdict: ScalingVerdict, result: GroupResult) -> None:
        """Stop an instance that is not needed any more. What is too many whatever the load is goes first."""
        if verdict.look_after != NEVER:
            result.wake(self._view.now + dt.timedelta(seconds=verdict.look_after))
        if verdict.may_stop and not self._copies and not need.surplus:
            self._stop_idle(need, verdict, result)

    def _stop_idle(self, need: GroupNeed, verdict: ScalingVerdict, result: GroupResult) -> None:
        apart = self._replacement_ids | {each.instance for each in self._decisions.made}
        instances = [each for each in self._instances() if each.id not in apart]
        chosen = choose_idle(self._view, self._spec, instances)
        if chosen is not None:
            self._scale(need, verdict, Rule.IDLE_DOWN, verdict.serving, verdict.serving - 1)
            seconds = self._spec.scaling.idle_seconds
            reason = f"it had no players for {seconds} s, and {counted(verdict.need, 'is', 'are')} needed"
            self._add(DecisionKind.STOP, Rule.IDLE_DOWN, need, reason, instance=chosen.id)
            return
        left = idle_left(self._view, self._spec, instances)
        if left is not None:
            result.wake(self._view.now + dt.timedelta(seconds=left))
            text = f"the longest idle one is stopped in {left:.0f} s"
        else:
            text = "each has players, or it is not known"
        ends = f"an instance has had no players for {self._spec.scaling.idle_seconds} s"
        result.scaling = msgspec.structs.replace(verdict, waits_for=text, wait_ends=ends)

    def _scale(self, need: GroupNeed, verdict: ScalingVerdict, rule: Rule, serving: int, to: int) -> None:
        load = self._view.load(self._group)
        inputs: Numbers = {
            "from": serving,
            "to": to,
            "need": verdict.need,
            "players": load.players,
            "unknown": load.unknown,
        }
        reason = f"{counted(load.players, 'player needs', 'players need')} {verdict.need}, {counted(serving, 'is', 'are')} there"
        self._add(DecisionKind.SCALE, rule, need, reason, inputs=inputs)

    @property
    def _replacement_ids(self) -> set[str]:
        return {each.id for each in self._under_way.values()}

    def _instances(self) -> list[InstanceRecord]:
        return list(self._view.instances_of(self._spec.name))

    def _add(
        self,
        kind: DecisionKind,
        rule: Rule,
        need: GroupNeed,
        reason: str,
        *,
        instance: str = "",
        inputs: Numbers | None = None,
        wake_at: dt.datetime | None = None,
    ) -> None:
        self._decisions.add(
            kind, rule, self._group, need, reason, instance=instance, inputs=inputs, wake_at=wake_at
        )
