"""The end of a run: its ports and memory are released in the same transaction that records the end."""

from __future__ import annotations

import msgspec

from corral.controller.instances.crash_loops import count_failure
from corral.controller.instances.deployment_failures import note_failure
from corral.controller.instances.deployment_revisions import start_revision
from corral.controller.instances.report_values import UNSTARTED
from corral.controller.instances.starts import release, settled_home, start_run
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind, Rule
from corral.domain.events import EventType
from corral.domain.groups.group import RestartOn
from corral.domain.groups.instance_records import (
    AfterStop,
    ExitRecord,
    GroupRecord,
    InstanceRecord,
    Readiness,
    StartFailure,
    next_state,
)
from corral.domain.instance_states import ENDED, FOUND_IN, InstanceState, Wanted
from corral.domain.planning.holds import hold_text
from corral.domain.planning.refusals import PlacementRefusal
from corral.domain.planning.start_requests import StartRequest

NOT_THE_WORKLOADS_FAULT = frozenset({"host_rebooted", "unknown", "never_started"})
"""Outcomes that do not count against the group."""


def end_run(
    ws: Workspace,
    record: InstanceRecord,
    state: InstanceState,
    exit: ExitRecord | None,
    *,
    reason: str,
    failure: StartFailure | None = None,
    crash: str = "",
) -> InstanceRecord:
    """Record the end of a run that has not ended before. Counts a failure, and starts the next run where a
    restart is requested. `crash`: the id of the crash that ended it."""
    ended = msgspec.structs.replace(
        record,
        state=next_state(record, FOUND_IN[state]),
        exit=exit,
        ended_at=exit.ended_at if exit else ws.now,
        end_received_at=ws.steady,
        pid=0,
        readiness=Readiness.FAILED if state is InstanceState.CRASHED else record.readiness,
        reason=reason,
        start_failure=failure or record.start_failure,
        state_before_offline=None,
        lost_at=None,
        lost=False,
        # The end may be the first report about a run; the run has left its directory all the same.
        home=settled_home(ws, record) if exit is not None and exit.known else record.home,
    )
    release(ws, record)
    ws.put_instance(ended)
    crashed = state is InstanceState.CRASHED
    ws.event(
        EventType.INSTANCE_CRASHED if crashed else EventType.INSTANCE_STOPPED,
        record.id,
        group=record.group,
        node=record.node,
        incarnation=record.incarnation,
        reason=reason,
        exit=msgspec.to_builtins(exit) if exit else None,
        **({"crash": crash} if crash else {}),
        **({"decision": record.decision} if record.wanted is Wanted.STOP and record.decision else {}),
    )
    blameless = exit is not None and exit.outcome in NOT_THE_WORKLOADS_FAULT
    if crashed and record.wanted is Wanted.RUN and not blameless:
        note_failure(ws, ended, exit, reason=reason, crash=crash, failure=failure)
        count_failure(ws, record, reason=reason, crash=crash)
    if record.after_stop is AfterStop.RESTART:
        return restart_run(ws, ended)
    if exit is not None and record.wanted is Wanted.RUN and not record.lost:  # else another has its place
        if exit.outcome == ENDED:
            return _after_clean_end(ws, ended)
        if crashed and not blameless and exit.outcome not in UNSTARTED:
            return _after_crash(ws, ended)
    return ended


def _after_clean_end(ws: Workspace, ended: InstanceRecord) -> InstanceRecord:
    """After a clean exit that its node does not restart. Where the group always restarts, the node had no
    number left for another run of this start; otherwise the instance stays ended, and the desired number
    drops by one: `min` is kept by another instance."""
    group = ws.group(ended.group)
    if group is None or group.deleting:
        return ended
    if group.spec.restart.on is RestartOn.ALWAYS:
        return restart_run(ws, ended)
    return _lower_target(ws, group, ended)


def _after_crash(ws: Workspace, ended: InstanceRecord) -> InstanceRecord:
    """After a crash that is not restarted the desired number drops by one, as after a clean exit."""
    group = ws.group(ended.group)
    if group is not None and not group.deleting and group.spec.restart.on is RestartOn.NEVER:
        return _lower_target(ws, group, ended)
    return ended


def _lower_target(ws: Workspace, group: GroupRecord, ended: InstanceRecord) -> InstanceRecord:
    if group.target > 0 and not ended.warm:
        ws.put_group(msgspec.structs.replace(group, target=group.target - 1, updated_at=ws.now))
        ended = msgspec.structs.replace(ended, gave_up_place=True)
        ws.put_instance(ended)
    return ended


def take_place_again(ws: Workspace, ended: InstanceRecord) -> None:
    """Its node restarted the run after all: restore the desired number from before its end, however often
    that happens."""
    group = ws.group(ended.group)
    if not ended.gave_up_place or group is None or group.deleting:
        return
    desired = group.target + 1
    target = desired if group.spec.max is None else min(desired, max(group.target, group.spec.max))
    ws.put_group(msgspec.structs.replace(group, target=target, updated_at=ws.now))


def run_again(ws: Workspace, group: GroupRecord, ended: InstanceRecord) -> InstanceRecord | PlacementRefusal:
    """Start a new run under the id of an ended one, on the same node if that can take it. The plan is made
    anew, by the revision that its group starts by now."""
    stopped_for_it = ended.after_stop is AfterStop.RESTART
    request = StartRequest.after(
        ended,
        kind=DecisionKind.RESTART,
        reason="restarted after its stop" if stopped_for_it else "started again",
        prefer=ended.node,
        revision=start_revision(ws, group, ended),
        carries_on=ended.request if stopped_for_it else "",
        follows=ended.decision if stopped_for_it or not ws.request else "",
    )
    return start_run(ws, group, request)


def restart_run(ws: Workspace, ended: InstanceRecord) -> InstanceRecord:
    """As `run_again`; when refused, the ended record stays and stores the reason."""
    group = ws.group(ended.group)
    if group is None or group.deleting:
        return ended
    if group.hold is not None:
        kept = msgspec.structs.replace(
            ended, after_stop=AfterStop.END, reason=f"not restarted: {hold_text(group.hold, ended.group)}"
        )
        ws.put_instance(kept)
        return kept
    started = run_again(ws, group, ended)
    if isinstance(started, PlacementRefusal):
        kept = msgspec.structs.replace(
            ended, after_stop=AfterStop.END, reason=f"could not be restarted: {started.summary}"
        )
        ws.decide(
            DecisionKind.REFUSE,
            rule=Rule.PLACE_REFUSE,
            group=ended.group,
            instance=ended.id,
            reason=f"no restart: {started.summary}",
            causes=(ended.decision,),
        )
        ws.put_instance(kept)
        return kept
    return started
