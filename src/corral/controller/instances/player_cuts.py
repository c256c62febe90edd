"""Whose players a deployment cuts off: with `drain_seconds`, instances that it retires, or that an earlier one has retired,
are stopped after so long, players or not. An operator who begins it confirms that for players who are known to be there,
and so does one who restarts a whole group at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from corral.controller.instances.confirmations import require_confirmation
from corral.controller.instances.workspace import Workspace
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_members import rollout_members
from corral.errors import counted, short_list

_SHOWN: Final = 10


class Leaver(NamedTuple):
    """An instance that would leave with a deployment."""

    record: InstanceRecord
    retired: bool
    """Does it take no more players already?"""
    stop_after: int | None
    """Its players are cut off so many seconds after it is retired, or from now on if it is; None: never."""


def leavers(view: PlanView, deployment: DeploymentRecord) -> list[Leaver]:
    """The instances that would leave, in the order of their ids: those that serve, and those that an earlier deployment has
    retired, whose players are waited for."""
    group = view.group(deployment.group)
    if group is None:
        return []
    spec = msgspec.structs.replace(group.spec, update=deployment.options)
    members = rollout_members(view, deployment, spec)
    seconds = deployment.options.drain_seconds
    found = [Leaver(each.record, False, seconds) for each in members.outgoing]
    found += [Leaver(each, False, None) for each in members.warm_outgoing]
    for each in members.leaving:
        if each.retired_by:
            left = None if seconds is None else max(0, round(seconds - view.draining_seconds(each.id)))
            found.append(Leaver(each, True, left))
    return sorted(found, key=lambda each: each.record.id)


def cut_text(seconds: int) -> str:
    return f"after {seconds} s" if seconds else "at once"


def before_players_are_cut(
    ws: Workspace, view: PlanView, deployment: DeploymentRecord, confirm: str
) -> DeploymentRecord:
    """CONFIRMATION_REQUIRED, unless confirmed with the group's name: players who are known would be cut off. A deployment
    that is under way as it is was confirmed before."""
    known = ws.state.deployments.find(deployment.id)
    if known is not None and known.record is deployment:
        return deployment
    cut = [
        f"'{each.record.id}' ({counted(count, 'player')}) {cut_text(each.stop_after)}"
        for each in leavers(view, deployment)
        if each.stop_after is not None and (count := view.players(each.record.id))
    ]
    if cut:
        seconds = deployment.options.drain_seconds
        require_confirmation(
            deployment.group,
            confirm,
            f"with drain_seconds {seconds} players who have not left by then would be cut off: {short_list(cut, _SHOWN)}",
        )
    return deployment


def before_all_restart(
    view: PlanView, group: GroupRecord, records: Sequence[InstanceRecord], confirm: str
) -> None:
    """CONFIRMATION_REQUIRED, unless confirmed: all instances of a group end at the same time, and known players with them."""
    known = [
        f"'{each.id}' ({counted(count, 'player')})" for each in records if (count := view.players(each.id))
    ]
    if not known:
        return
    effects = f"players would be cut off at once: {short_list(known, _SHOWN)}"
    worlds = world_names(group, records)
    if worlds:
        effects += f"; worlds that are stopped and used again: {worlds}"
    require_confirmation(group.spec.name, confirm, effects)


def world_names(group: GroupRecord, records: Sequence[InstanceRecord]) -> str:
    """The instances that keep worlds, of those given; empty: none does."""
    kept = records if group.spec.static else ()
    return short_list((f"'{each.id}' on node '{each.home or each.node}'" for each in kept), _SHOWN)
