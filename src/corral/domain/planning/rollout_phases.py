"""The phases of a deployment: how it begins, what its gate says, when it has failed, and what it waits for."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from corral.domain.decisions import Rule
from corral.domain.groups.deployments import (
    TRIGGER_TO,
    DeploymentRecord,
    DeploymentState,
    DeploymentTrigger,
)
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.groups.update_spec import Promotion, UpdateStrategy
from corral.domain.planning.health import Health
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.refusals import listed_nodes
from corral.domain.planning.rollout_members import Member, RolloutMembers
from corral.errors import counted, short_list

PLAYERS: Final = "players"
"""The name under which a gate bounds the number of players."""
_NAMED: Final = 3
_GOES_ON: Final = frozenset(
    {
        DeploymentState.CANARY,
        DeploymentState.GATE,
        DeploymentState.ROLLING,
        DeploymentState.ROLLING_BACK,
    }
)


class PhaseChange(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a deployment as a whole, to be recorded as a decision."""

    rule: Rule
    reason: str


class NextPhase(msgspec.Struct, frozen=True, kw_only=True):
    """A deployment after a step, and what the step changes of its group."""

    record: DeploymentRecord
    changes: tuple[PhaseChange, ...]
    group: dict[str, Any] = {}
    """Fields of the group's record."""
    ends_pause: bool = False
    """The crash pause of the group is over: its cause is taken back."""


def goal_of(deployment: DeploymentRecord, wanted: int) -> int:
    """How many instances are to be of the revision that the deployment brings, in its present state."""
    state = deployment.state
    if state in (DeploymentState.PAUSED, DeploymentState.FAILED):
        return min(deployment.goal, wanted)
    if state in (DeploymentState.CANARY, DeploymentState.GATE):
        return deployment.options.canaries(wanted)
    return wanted


def begun(deployment: DeploymentRecord, wanted: int, now: dt.datetime) -> NextPhase:
    """The first phase, or the one that a hold has interrupted."""
    canary = deployment.options.strategy is UpdateStrategy.CANARY and wanted > 0
    first = DeploymentState.CANARY if canary else DeploymentState.ROLLING
    state = deployment.resumes or first
    reason = f"{state}: {_aim(deployment, state)}"
    return NextPhase(
        record=deployment.stepped(TRIGGER_TO[state], now),
        changes=(PhaseChange(rule=Rule.DEPLOY_START, reason=reason),),
    )


def _aim(deployment: DeploymentRecord, state: DeploymentState) -> str:
    back = state is DeploymentState.ROLLING_BACK
    return f"its instances come to revision {deployment.stable if back else deployment.target}"


def held(deployment: DeploymentRecord, now: dt.datetime, text: str) -> NextPhase:
    """The deployment while its group is held."""
    if deployment.state not in _GOES_ON:
        waits = deployment.state is DeploymentState.PENDING
        return NextPhase(
            record=msgspec.structs.replace(deployment, waiting=text) if waits else deployment, changes=()
        )
    record = deployment.stepped(DeploymentTrigger.HOLD, now, waiting=text)
    return NextPhase(
        record=msgspec.structs.replace(record, resumes=deployment.state),
        changes=(PhaseChange(rule=Rule.HOLD_STOP, reason=f"PENDING: {text}"),),
    )


class GateVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the canaries at one moment."""

    broken: str = ""
    """The metric that is out of its bounds; the deployment fails."""
    unknown: str = ""
    """What is not known, or not healthy: that time does not count."""


def gate_verdict(
    view: PlanView, deployment: DeploymentRecord, canaries: Iterable[Member], goal: int
) -> GateVerdict:
    unknown = ""
    healthy = 0
    for each in canaries:
        id = each.record.id
        if each.health is not Health.HEALTHY:
            away = f"node '{each.record.node}' of '{id}' is away" if each.health is Health.AWAY else ""
            unknown = unknown or away or f"'{id}' is not healthy"
            continue
        healthy += 1
        for name, bounds in sorted(deployment.options.gate.items()):
            value = view.players(id) if name == PLAYERS else view.metric(id, name)
            if value is None:
                unknown = unknown or f"'{id}' has not reported '{name}' lately"
            elif bounds.min is not None and value < bounds.min:
                return GateVerdict(broken=f"'{name}' of '{id}' is {value:g}, less than {bounds.min:g}")
            elif bounds.max is not None and value > bounds.max:
                return GateVerdict(broken=f"'{name}' of '{id}' is {value:g}, more than {bounds.max:g}")
    if healthy < goal and not unknown:
        unknown = f"{healthy} of {goal} canaries are healthy"
    return GateVerdict(unknown=unknown)


def watched(deployment: DeploymentRecord, canaries: int, now: dt.datetime) -> NextPhase:
    """The canaries are healthy: they are watched from now on."""
    reason = f"GATE: {counted(canaries, 'canary is', 'canaries are')} healthy"
    return NextPhase(
        record=deployment.stepped(DeploymentTrigger.WATCH, now),
        changes=(PhaseChange(rule=Rule.DEPLOY_GATE, reason=reason),),
    )


def promoted(deployment: DeploymentRecord, now: dt.datetime, reason: str) -> NextPhase:
    """The gate is open."""
    record = deployment.stepped(DeploymentTrigger.ROLL, now)
    return NextPhase(
        record=msgspec.structs.replace(record, last_progress_at=now, clock_used=0.0),
        changes=(PhaseChange(rule=Rule.DEPLOY_GATE, reason=f"ROLLING: {reason}"),),
    )


def gate_text(deployment: DeploymentRecord) -> str:
    """What the gate waits for while everything is in its bounds."""
    if deployment.options.promote is Promotion.MANUAL:
        return f"the canaries are healthy; 'corral deployment promote {deployment.id}' goes on"
    since = deployment.watched_since
    seconds = deployment.options.canary_seconds
    text = f"the canaries are watched for {seconds} s"
    return f"{text}, since {since:%H:%M:%S} UTC" if since is not None else text


def finished(deployment: DeploymentRecord, members: RolloutMembers, now: dt.datetime) -> NextPhase:
    """Every instance within reach runs by the revision that the deployment brings."""
    stragglers = [*members.lost, *members.left]
    unsettled = deployment.id if stragglers else ""
    named = {each.id: each.revision for each in stragglers}
    more = f", beside {counted(len(stragglers), 'one', 'ones')} out of reach" if stragglers else ""
    if deployment.state is DeploymentState.ROLLING_BACK:
        text = f"every instance runs by revision {deployment.stable} again{more}"
        record = deployment.stepped(DeploymentTrigger.RESTORE, now)
        undone = f"{text}; the group is pinned to it until the next deployment"
        return NextPhase(
            record=msgspec.structs.replace(record, undone=undone, stragglers=named),
            changes=(PhaseChange(rule=Rule.DEPLOY_ROLLBACK, reason=f"ROLLED_BACK: {text}"),),
            group={"deployment": "", "unsettled": unsettled},
        )
    text = f"COMPLETED: every instance runs by revision {deployment.target}{more}"
    return NextPhase(
        record=msgspec.structs.replace(deployment.stepped(DeploymentTrigger.COMPLETE, now), stragglers=named),
        changes=(PhaseChange(rule=Rule.DEPLOY_START, reason=text),),
        group={"deployment": "", "unsettled": unsettled, "stable_revision": deployment.target},
    )


def failed(
    deployment: DeploymentRecord,
    why: str,
    *,
    unplannable: str = "",
    of_target: int,
    of_stable: int = 0,
    now: dt.datetime,
) -> NextPhase:
    """The deployment has failed: it goes back where that is wanted and possible. `unplannable`: why nothing can be started by
    the stable revision; empty: it can. `of_target`, `of_stable`: how many instances of these serve."""
    refusal = no_way_back(deployment, unplannable)
    if not refusal and not deployment.options.auto_rollback:
        refusal = "update.auto_rollback is false"
    if not refusal:
        return gone_back(deployment, why, now, rule=Rule.DEPLOY_FAIL)
    record = deployment.stepped(DeploymentTrigger.FAIL, now)
    group: dict[str, Any] = {"deployment": "", "unsettled": deployment.id}
    undone = f"nothing was undone: {refusal}"
    if deployment.going_back:
        runs = counted(of_stable, "instance runs", "instances run")
        left = counted(of_target, "instance", "instances")
        undone = f"not everything was undone: {runs} by revision {deployment.stable} again, and {left} by revision "
        undone += f"{deployment.target}; the group is " + (
            f"not pinned: {unplannable}" if unplannable else f"pinned to revision {deployment.stable}"
        )
    if unplannable:
        record = msgspec.structs.replace(record, stable=0, stable_basis="")
        group |= {"pinned_revision": 0} if deployment.going_back else {}
    if not record.stable:
        undone += "; new instances are started by the present document"
    return NextPhase(
        record=msgspec.structs.replace(record, outcome=why, undone=undone, goal=of_target),
        changes=(PhaseChange(rule=Rule.DEPLOY_FAIL, reason=f"FAILED: {why}; {undone}"),),
        group=group,
    )


def gone_back(deployment: DeploymentRecord, why: str, now: dt.datetime, *, rule: Rule) -> NextPhase:
    """The instances come back to the stable revision, and new ones are started by it."""
    record = deployment.stepped(DeploymentTrigger.ROLL_BACK, now)
    stable = deployment.stable
    undone = f"the instances go back to revision {stable}"
    steps = (PhaseChange(rule=rule, reason=why),) if rule is Rule.DEPLOY_FAIL else ()
    text = f"ROLLING_BACK: {why}; {undone}"
    return NextPhase(
        record=msgspec.structs.replace(
            record, outcome=why, undone=undone, best_healthy=0, clock_used=0.0, last_progress_at=now
        ),
        changes=(*steps, PhaseChange(rule=Rule.DEPLOY_ROLLBACK, reason=text)),
        group={"pinned_revision": stable},
        ends_pause=True,
    )


def no_way_back(deployment: DeploymentRecord, unplannable: str = "") -> str:
    """Why the instances cannot go back to a stable revision; empty: they can. `unplannable`: why nothing can be started by
    it."""
    if deployment.going_back:
        return "it was going back already"
    if not deployment.stable:
        return "there is no stable revision"
    same = deployment.stable == deployment.target
    basis = deployment.stable_basis
    if same or (basis and basis == deployment.target_basis):
        return f"the stable revision {deployment.stable} is the same"
    return unplannable


def healing_text(deployment: DeploymentRecord) -> str:
    """What a deployment waits for that only heals."""
    if deployment.state is DeploymentState.PAUSED:
        return f"it is paused; 'corral deployment resume {deployment.id}' goes on"
    return ""


def unbased_text(deployment: DeploymentRecord, count: int) -> str:
    """What keeps instances from being started in the place of those that ran before, when no revision is known of these."""
    waits = counted(count, "instance is not started", "instances are not started")
    return f"{waits} before all come to revision {deployment.target}: there is no stable revision"


def away_text(members: RolloutMembers) -> str:
    """The nodes that are waited for; empty: none is."""
    nodes = {each.node for each in members.away}
    return f"waits for {listed_nodes(nodes)} to reconnect" if nodes else ""


def waiting_text(members: RolloutMembers, *, goal: int, floor: int) -> str:
    """What a deployment waits for whose gate and starts are not in the way."""
    settled = (Health.HEALTHY, Health.AWAY)
    unready = [each.record for each in members.incoming if each.health not in settled]
    if unready:
        return f"waits for {_ids(unready)} to be healthy"
    if members.away:
        return away_text(members)
    if members.leaving:
        return f"waits for the players of {_ids(members.leaving)} to leave"
    if members.stopping:
        return f"waits for {_ids(members.stopping)} to stop"
    unsettled = [each.record for each in members.outgoing if each.health is not Health.HEALTHY]
    if unsettled and members.healthy <= floor:
        return f"waits for {_ids(unsettled)}: {members.healthy} are healthy, and {floor} are to stay so"
    if members.outgoing and members.healthy <= floor:
        return f"{counted(members.healthy, 'is', 'are')} healthy, and {floor} are to stay so"
    return f"{len(members.incoming)} of {goal} are updated"


def _ids(records: Iterable[InstanceRecord]) -> str:
    return short_list((f"'{each.id}'" for each in records), _NAMED)
