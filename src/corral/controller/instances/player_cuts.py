"""Whose players a deployment cuts off: with `drain_seconds`, instances that it retires, or that an earlier one has retired,
are stopped after so long, players or not. An operator who begins it confirms that for players who are known to be there."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from corral.controller.instances.confirmations import require_confirmation
from corral.controller.instances.workspace import Workspace
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.rollout_members import rollout_members
from corral.errors import counted, short_list

_SHOWN: Final = 10


class Leaver(NamedTuple):
    """An instance that would leave with a deployment."""

    record: InstanceRecord
    retired: bool
    """Does it take no more players already?"""
    cut_after: int | None
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
        f"'{each.record.id}' ({counted(count, 'player')}) {cut_text(each.cut_after)}"
        for each in leavers(view, deployment)
        if each.cut_after is not None and (count := view.players(each.record.id))
    ]
    if cut:
        seconds = deployment.options.drain_seconds
        require_confirmation(
            deployment.group,
            confirm,
            f"with drain_seconds {seconds} players who have not left by then would be cut off: {short_list(cut, _SHOWN)}",
        )
    return deployment
