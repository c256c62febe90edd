"""One look at a deployment: what it starts, whom it retires, and the phase it comes to.

Instances of the revision are started while fewer than the goal are there and fewer than wanted and the surge serve; others
are retired while more are there than the goal leaves room for, and enough stay healthy. One that takes no more players is
in neither sum, so that players block nothing. Going back is the same, with the stable revision in place of the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from corral.domain.decisions import DecisionKind, Rule
from corral.domain.groups.deployments import DeploymentRecord, DeploymentState
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord, is_ready
from corral.domain.groups.update_spec import Promotion
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning import rollout_phases as phases
from corral.domain.planning.existing_instances import choose_promoted, choose_returning
from corral.domain.planning.group_plans import GroupNeed, StartBatch, held_places, pause_text, resting_text
from corral.domain.planning.health import Health, settles_in
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_clocks import after_progress, only_waits, run_clock
from corral.domain.planning.rollout_failures import failure_of, unplannable
from corral.domain.planning.rollout_members import (
    Member,
    count_healthy,
    progress_of_members,
    rollout_members,
)
from corral.domain.planning.rollout_phases import NextPhase
from corral.domain.planning.rollout_results import RolloutResult, RolloutStep
from corral.domain.planning.rollout_sums import least_healthy, sick_at_once, starts_of, to_retire
from corral.domain.planning.stops import goes_at_once, is_left_by_all, left_text, stop_text

REPORT: Final = 5.0
"""Seconds between two reports of players and metrics."""
_HEALS: Final = frozenset({DeploymentState.PAUSED, DeploymentState.FAILED})


def look_at_rollout(
    view: PlanView, group: GroupRecord, deployment: DeploymentRecord, need: GroupNeed
) -> RolloutResult:
    """Decide what an active deployment does, or one that has ended and left instances of two revisions. `need`: of the
    group without it."""
    return _RolloutLook(view, group, deployment, need).run()


class _RolloutLook:
    def __init__(
        self, view: PlanView, group: GroupRecord, deployment: DeploymentRecord, need: GroupNeed
    ) -> None:
        self._view = view
        self._group = group
        self._spec = msgspec.structs.replace(group.spec, update=deployment.options)
        self._record = deployment
        self._options = deployment.options
        self._need = need
        held = held_places(group, view.tally(group.spec.name), need.wanted)
        beside = bool(held) and need.present > need.wanted  # one that is stopped is not started again
        self._held_up = resting_text(held) if beside or len(held) >= need.wanted > 0 else ""
        """The instances that an operator keeps stopped, where nothing goes on until they are started."""
        proves = deployment.active and not deployment.going_back
        self._wanted = max(need.wanted - len(held), min(need.wanted, 1) if proves else 0)
        self._members = rollout_members(view, deployment, self._spec)
        self._goal = phases.goal_of(deployment, self._wanted)
        static = group.spec.static
        surges = deployment.active and not static
        self._surge = self._options.surge(self._wanted, static) if surges else 0
        self._floor = least_healthy(view, self._spec, need, wanted=self._wanted)
        self._clock = view.rollout_clock(deployment)
        self._unbased = 0
        """How many are not started for want of a stable revision."""
        progress = progress_of_members(view, deployment, self._members, wanted=need.wanted, goal=self._goal)
        self._result = RolloutResult(record=deployment, need=need, progress=progress)

    def run(self) -> RolloutResult:
        state = self._record.state
        if state is DeploymentState.PENDING:
            self._step(phases.begun(self._record, self._wanted, self._view.now))
            return self._result
        if state in _HEALS:
            self._heal()
        elif self._record.settled:
            self._retire_stragglers()
        else:
            self._go_on()
        return self._result

    def _go_on(self) -> None:
        broken = self._gate().broken if self._record.state is DeploymentState.GATE else ""
        why = failure_of(self._record, self._clock, broken=broken)
        if why:
            records = [each.record for each in (*self._members.incoming, *self._members.outgoing)]
            self._step(
                phases.failed(
                    self._record,
                    why,
                    unplannable=unplannable(self._view, self._group, self._record),
                    of_target=sum(map(self._record.is_target, records)),
                    of_stable=sum(map(self._record.is_stable, records)),
                    now=self._view.now,
                )
            )
            return
        self._result.outgoing = frozenset(each.record.id for each in self._members.outgoing)
        started = self._start()
        retired = self._retire()
        self._part_with_left()
        self._replace_warm()
        self._result.record = after_progress(
            self._result.record,
            healthy=count_healthy(self._members.incoming),
            retired=retired,
            now=self._view.now,
        )
        brought = self._record.stable if self._record.going_back else self._record.target
        comes = any(each.revision == brought for each in self._result.need.batches)
        if comes or self._result.steps or not self._next_phase():
            self._run_clock()
            self._wait(started)

    def _heal(self) -> None:
        """Keep as many of each revision as there were."""
        self._start()
        surge = self._surge if self._record.active else 0
        self._change_need(surplus=max(0, self._members.serving - self._wanted - surge))
        self._say(phases.healing_text(self._record))

    def _retire_stragglers(self) -> None:
        """Part with instances of another revision that were lost when the deployment ended. Static ones are never given up:
        those that a controller of an earlier version has left stay as they are, and are shown as outdated."""
        left = self._members.left
        if self._spec.static or not (left or self._members.lost):
            self._result.group = {"unsettled": ""}
        if self._spec.static:
            self._change_need(start=0, refill=0)  # the next pass plans them as without a deployment
            return
        self._change_need(surplus=max(0, len(self._members.incoming) - self._wanted))
        if any(each.state is not InstanceState.OFFLINE for each in left):
            self._result.outgoing = frozenset(each.record.id for each in self._members.outgoing)
            self._stand_in()
            self._retire()
            self._part_with_left()
            self._replace_warm()
        self._wake(REPORT if left else None)

    def _stand_in(self) -> None:
        """Ask for instances in the places that stragglers still have."""
        incoming, wanted = len(self._members.incoming), self._wanted
        room = wanted + self._options.surge(wanted, False) - self._members.serving
        more = min(wanted - incoming, room) - self._need.start
        if more > 0 and self._members.outgoing and not self._is_paused():
            reason = f"in the place of '{self._members.outgoing[0].record.id}', which was out of reach"
            batch = StartBatch(count=more, rule=Rule.DEPLOY_START, reason=reason)
            self._change_need(start=self._need.start + more, batches=(batch,))

    # starts

    def _start(self) -> int:
        """Ask for instances of both revisions; how many."""
        members, need = self._members, self._need
        incoming, outgoing, serving = len(members.incoming), len(members.outgoing), members.serving
        room = self._wanted + self._surge - serving - members.beside
        if self._spec.static:
            leaving = (*members.leaving, *members.returning)
            there = sum(each.node not in self._view.emptied for each in leaving)
            room = need.wanted - need.present - there  # those on emptied nodes are among the present
        new, former = starts_of(
            wanted=self._wanted, goal=self._goal, incoming=incoming, outgoing=outgoing, room=room
        )
        stable = [each for each in members.leaving if self._record.is_stable(each)]
        returns = max(0, self._goal - incoming) if self._spec.static else new  # they still have their places
        new = max(0, new - self._take_back(members.returning, returns))
        former -= self._take_back(stable, former)
        new -= self._promote(members.warm, new)
        former -= self._promote(members.warm_outgoing, former)
        held_back = max(0, need.missing - need.start)
        former, held_back = max(0, former - held_back), max(0, held_back - former)
        new = max(0, new - held_back)
        if self._is_paused():
            new = former = 0
        brought, kept = self._record.target, self._record.stable
        if self._record.going_back:
            brought, kept = kept, brought
        if not kept and self._record.active:
            self._unbased, former = former, 0  # the present document is the target
        batches = (
            StartBatch(count=new, revision=brought, rule=self._rule(), reason=self._start_reason(brought)),
            StartBatch(count=former, revision=kept, rule=need.start_rule, reason=need.start_reason),
        )
        asked = new + former
        text = self._pause_text() if self._is_paused() and need.missing else need.reason
        rest = self._goal < self._wanted
        without = not kept and rest and self._record.active
        self._change_need(
            start=asked,
            batches=tuple(each for each in batches if each.count),
            refill=0 if self._is_paused() or without else need.refill,
            refill_revision=kept if rest else brought,
            surplus=max(0, incoming - self._wanted),
            reason="" if asked and need.rule is None else text or self._unbased_text(),
        )
        return asked

    def _unbased_text(self) -> str:
        return phases.unbased_text(self._record, self._unbased) if self._unbased else ""

    def _rule(self) -> Rule:
        if self._record.state is DeploymentState.ROLLING_BACK:
            return Rule.DEPLOY_ROLLBACK
        return self._need.start_rule if self._record.state in _HEALS else Rule.DEPLOY_START

    def _start_reason(self, revision: int) -> str:
        if self._record.state in _HEALS:
            return self._need.start_reason
        count = len(self._members.incoming)
        return f"deployment '{self._record.id}' brings revision {revision}: {count} of {self._goal} are there"

    def _is_paused(self) -> bool:
        return self._group.paused is not None and not self._view.pause_over(self._spec.name)

    def _pause_text(self) -> str:
        paused = self._group.paused
        return f"the group is {pause_text(paused)}" if paused is not None else ""

    def _take_back(self, leaving: Sequence[InstanceRecord], count: int) -> int:
        """Let instances serve again that still have players, in the place of new ones."""
        able = (each for each in leaving if not self._view.is_closed(each.node))
        chosen = choose_returning(self._view, able, count)
        for each in chosen:
            reason = f"{self._need.start_reason}: it serves again"
            self._add(DecisionKind.UNDRAIN, each, reason, rule=Rule.MIN_RESTORE)
        return len(chosen)

    def _promote(self, warm: Sequence[InstanceRecord], count: int) -> int:
        chosen = choose_promoted(self._view, warm, count)
        for each in chosen:
            reason = f"{self._need.start_reason}: it was kept warm for this"
            self._add(DecisionKind.PROMOTE, each, reason, rule=Rule.WARM_PROMOTE)
        return len(chosen)

    # stops

    def _retire(self) -> int:
        """Part with instances of other revisions; how many."""
        most = max(1, self._surge, self._wanted - self._floor)
        chosen = to_retire(
            self._view,
            self._spec,
            self._members,
            goal=self._goal,
            wanted=self._wanted,
            floor=self._floor,
            sick=sick_at_once(self._members, most=most, going_back=self._record.going_back),
        )
        for each in chosen:
            self._part_with(each)
        return len(chosen)

    def _part_with(self, member: Member) -> None:
        record = member.record
        back = self._record.going_back
        brought = self._record.stable if back else self._record.target
        why = "it is not ready, and" if member.health is Health.UNHEALTHY else "enough are healthy;"
        reason = f"{why} its group comes to revision {brought} by deployment '{self._record.id}'"
        if goes_at_once(self._view, self._spec, record):
            self._add(DecisionKind.STOP, record, stop_text(self._view, record, reason))
        else:
            self._add(DecisionKind.DRAIN, record, f"{reason}; it is stopped when it has no players")

    def _part_with_left(self) -> None:
        """Stop instances that this deployment or an earlier one has retired, and that have no players left or were waited for
        long enough."""
        seconds = self._options.drain_seconds
        for each in self._members.leaving:
            if not each.retired_by:
                continue
            self._wake(REPORT)
            if is_left_by_all(self._view, self._spec, each):
                self._add(DecisionKind.STOP, each, left_text(self._view, each))
            elif seconds is not None and each.state is not InstanceState.OFFLINE:
                left = seconds - self._view.draining_seconds(each.id)
                if left <= 0:
                    self._add(DecisionKind.STOP, each, f"its players were waited for {seconds} s")
                else:
                    self._wake(left)

    def _replace_warm(self) -> None:
        """Part with warm instances of other revisions, one after the other."""
        members = self._members
        if self._goal < self._wanted or any(not is_ready(each) for each in members.warm):
            return
        for each in members.warm_outgoing[:1]:
            if each.wanted is Wanted.RUN and each.state is not InstanceState.OFFLINE:
                self._add(DecisionKind.STOP, each, f"deployment '{self._record.id}' replaces warm ones, too")

    # phases

    def _gate(self) -> phases.GateVerdict:
        return phases.gate_verdict(self._view, self._record, self._members.incoming, self._goal)

    def _next_phase(self) -> bool:
        """Go to the next phase if the present one is over."""
        record, now = self._result.record, self._view.now
        healthy = count_healthy(self._members.incoming)
        if record.state is DeploymentState.CANARY:
            if healthy >= self._goal:
                self._step(phases.watched(record, healthy, now))
                return True
            return False
        if record.state is DeploymentState.GATE:
            return self._watch()
        if record.going_back:  # one of the stable revision has nothing to prove
            healthy += sum(each.health is Health.AWAY for each in self._members.incoming)
        if self._members.left or healthy < self._wanted:
            return False
        self._step(phases.finished(record, self._members, now))
        return True

    def _watch(self) -> bool:
        """Open the gate after long enough; has it?"""
        self._wake(REPORT)
        record, options, now = self._result.record, self._options, self._view.now
        if self._gate().unknown:
            self._result.record = msgspec.structs.replace(record, watched_since=None)
            return False
        if record.watched_since is None:
            self._result.record = msgspec.structs.replace(record, watched_since=now)
            return False
        left = options.canary_seconds - self._clock.watched
        if options.promote is Promotion.MANUAL or left > 0:
            self._wake(left if left > 0 else None)
            return False
        text = f"the canaries were healthy for {options.canary_seconds} s"
        text += ", and all metrics in their bounds" if options.gate else ""
        self._step(phases.promoted(record, now, text))
        return True

    def _run_clock(self) -> None:
        """Let the time without progress count, except while a gate is watched, or nothing of the revision is waited for."""
        watching = self._record.state is DeploymentState.GATE and not self._gate().unknown
        stops = bool(watching or self._held_up) or only_waits(
            self._view, self._members, static=self._spec.static, goal=self._goal, missing=self._need.missing
        )
        self._result.record, used = run_clock(
            self._result.record, self._record, self._clock, stops=stops, now=self._view.now
        )
        if not stops:
            self._wake(max(0.0, self._options.progress_seconds - used))
        for each in (*self._members.incoming, *self._members.outgoing):
            if each.health is Health.UNSETTLED:
                self._wake(settles_in(self._view, self._spec, each.record))

    def _wait(self, started: int) -> None:
        """Say what is waited for."""
        record = self._result.record
        if self._spec.disconnect.replace_after_seconds is None:
            self._result.awaits = phases.away_text(self._members)
        if self._is_paused() and len(self._members.incoming) < self._goal:
            text = self._pause_text()
        elif started:
            text = f"{started} are being started"
        elif record.state is DeploymentState.GATE:
            text = self._gate().unknown or phases.gate_text(record)
        elif self._held_up:
            text = self._held_up
        elif self._need.rule is not None and len(self._members.incoming) < self._goal:
            text = self._need.reason
        else:
            text = phases.waiting_text(self._members, goal=self._goal, floor=max(self._floor, 0))
        self._say(text)

    def _say(self, text: str) -> None:
        waiting = "; ".join(each for each in (text, self._unbased_text()) if each)
        self._result.record = msgspec.structs.replace(self._result.record, waiting=waiting)

    # the result

    def _step(self, found: NextPhase) -> None:
        result = self._result
        result.record, result.changes = found.record, found.changes
        result.group, result.ends_pause = dict(found.group), found.ends_pause
        if not result.need.batches:
            self._change_need(start=0, refill=0, surplus=0)

    def _add(
        self, kind: DecisionKind, record: InstanceRecord, reason: str, *, rule: Rule = Rule.DEPLOY_RETIRE
    ) -> None:
        self._result.steps.append(RolloutStep(kind=kind, instance=record.id, reason=reason, rule=rule))

    def _change_need(self, **fields: Any) -> None:
        self._result.need = msgspec.structs.replace(self._result.need, **fields)

    def _wake(self, seconds: float | None) -> None:
        known = self._result.wake_after
        if seconds is not None:
            self._result.wake_after = seconds if known is None else min(known, seconds)
