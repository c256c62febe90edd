"""The instances of a group as a deployment sees them: those of the revision that it brings, those of others, and how
healthy each is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import (
    InstanceRecord,
    is_draining,
    is_lost,
    is_present,
    is_starting,
    live,
    stays,
)
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.health import Health, health_of
from corral.domain.planning.node_drains import replacements
from corral.domain.planning.plan_view import PlanView


class Member(NamedTuple):
    """An instance that serves."""

    record: InstanceRecord
    health: Health


class RolloutMembers(msgspec.Struct, frozen=True, kw_only=True):
    """The live instances of a group. *Incoming* are those of the revision that the deployment brings: its target, or the
    stable one on the way back. *Outgoing* are all others. Those that take no more players are in neither list."""

    incoming: tuple[Member, ...] = ()
    outgoing: tuple[Member, ...] = ()
    returning: tuple[InstanceRecord, ...] = ()
    """Incoming ones that take no more players, and can serve again."""
    leaving: tuple[InstanceRecord, ...] = ()
    """Outgoing ones that take no more players, and are there until they have none."""
    stopping: tuple[InstanceRecord, ...] = ()
    """Outgoing ones that are about to end."""
    warm: tuple[InstanceRecord, ...] = ()
    """Warm ones of the revision."""
    warm_outgoing: tuple[InstanceRecord, ...] = ()
    lost: tuple[InstanceRecord, ...] = ()
    """Outgoing ones in whose places others are started: their node is away for longer than the group waits."""
    beside: int = 0
    """Instances in the place of others that still serve on nodes that are emptied: they are in no list until these go."""

    @property
    def serving(self) -> int:
        return len(self.incoming) + len(self.outgoing)

    @property
    def healthy(self) -> int:
        return count_healthy(self.incoming) + count_healthy(self.outgoing)

    @property
    def away(self) -> Sequence[InstanceRecord]:
        """Those whose node is away, and is waited for."""
        serving = [each.record for each in (*self.incoming, *self.outgoing) if each.health is Health.AWAY]
        others = (*self.leaving, *self.returning, *self.stopping, *self.warm_outgoing)
        return (*serving, *[each for each in others if each.state is InstanceState.OFFLINE])

    @property
    def left(self) -> Sequence[InstanceRecord]:
        """Outgoing ones that are not lost: while there are some, a deployment is not over."""
        return (*(each.record for each in self.outgoing), *self.leaving, *self.stopping, *self.warm_outgoing)


def count_healthy(members: Iterable[Member]) -> int:
    return sum(each.health is Health.HEALTHY for each in members)


def is_incoming(deployment: DeploymentRecord, record: InstanceRecord) -> bool:
    """Is it of the revision that the deployment brings? After its end all are but stragglers: others may have been started
    by a later document since."""
    if deployment.settled:
        return deployment.stragglers.get(record.id) != record.revision
    return deployment.is_stable(record) if deployment.going_back else deployment.is_target(record)


def rollout_members(view: PlanView, deployment: DeploymentRecord, spec: GroupSpec) -> RolloutMembers:
    """The live instances of the deployment's group, in the order of their starts. `spec`: with its own `update`."""
    found: dict[str, list[InstanceRecord]] = {}
    instances = view.instances_of(deployment.group)
    beside = {each.id for each in replacements(instances, view.emptied).values()} if view.emptied else ()
    for record in sorted(instances, key=lambda each: each.incarnation):
        if live(record.state) and record.id not in beside:
            found.setdefault(_place_of(view, deployment, spec, record), []).append(record)

    def members(name: str) -> tuple[Member, ...]:
        return tuple(Member(each, _health_of(view, spec, each)) for each in found.get(name, ()))

    others = ("returning", "leaving", "stopping", "warm", "warm_outgoing", "lost")
    return RolloutMembers(
        incoming=members("incoming"),
        outgoing=members("outgoing"),
        beside=len(beside),
        **{name: tuple(found.get(name, ())) for name in others},
    )


def _health_of(view: PlanView, spec: GroupSpec, record: InstanceRecord) -> Health:
    """One that is about to be restarted is not healthy."""
    health = health_of(view, spec, record)
    return health if record.wanted is Wanted.RUN or health is Health.AWAY else Health.UNHEALTHY


def is_given_up(view: PlanView, spec: GroupSpec, record: InstanceRecord) -> bool:
    """Is its node away for longer than its group waits? In the place of a static one nothing is started all the same."""
    if record.state is not InstanceState.OFFLINE or view.is_online(record.node):
        return False
    left = view.grace_left(spec, record.node)
    return is_lost(record) or (not stays(record) and left is not None and left <= 0)


def keeps_place(spec: GroupSpec, record: InstanceRecord) -> bool:
    """Has it a place in its group? A static one has, wherever its node is: its directory is there."""
    return is_present(record) or (spec.static and stays(record))


def _place_of(view: PlanView, deployment: DeploymentRecord, spec: GroupSpec, record: InstanceRecord) -> str:
    """The name of the list that an instance belongs to; incoming ones that end or are out of reach belong to none."""
    incoming = is_incoming(deployment, record)
    if not spec.static and is_given_up(view, spec, record):
        return "" if incoming else "lost"
    if record.warm and keeps_place(spec, record):
        return "warm" if incoming else "warm_outgoing"
    if keeps_place(spec, record):
        return "incoming" if incoming else "outgoing"
    if is_draining(record):
        return "returning" if incoming else "leaving"
    return "" if incoming else "stopping"


class WaitingInstance(msgspec.Struct, frozen=True, kw_only=True):
    """A retired instance whose players are waited for."""

    id: str
    players: int | None
    """None: not known."""


class DeploymentProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a deployment is, computed from the instances that are there."""

    wanted: int
    goal: int
    """How many are to run by the revision in the present state."""
    updated: int
    """Healthy ones of the revision."""
    healthy: int
    """Healthy ones of any revision."""
    starting: int
    """Those of the revision that do not run yet, or are not healthy yet."""
    outdated: int
    """Those of other revisions that serve."""
    draining: int
    """Those of other revisions that take no more players."""
    waiting_players: tuple[WaitingInstance, ...] = ()
    canaries: int = 0
    lost: int = 0
    unhealthy: int = 0
    """Those of the revision that run, and are not ready."""


def progress_of_members(
    view: PlanView, deployment: DeploymentRecord, members: RolloutMembers, *, wanted: int, goal: int
) -> DeploymentProgress:
    incoming = members.incoming
    healthy = count_healthy(incoming)
    sick = [each for each in incoming if each.health is Health.UNHEALTHY and not is_starting(each.record)]
    return DeploymentProgress(
        wanted=wanted,
        goal=goal,
        updated=healthy,
        healthy=members.healthy,
        starting=sum(each.health is not Health.AWAY for each in incoming) - healthy - len(sick),
        outdated=len(members.outgoing),
        draining=len(members.leaving),
        waiting_players=tuple(
            WaitingInstance(id=each.id, players=view.players(each.id)) for each in members.leaving
        ),
        canaries=deployment.options.canaries(wanted),
        lost=len(members.lost),
        unhealthy=len(sick),
    )
