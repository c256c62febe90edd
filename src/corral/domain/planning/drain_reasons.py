"""Why instances are still on nodes that are emptied, for people."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping

import msgspec

from corral.domain.groups.instance_records import AfterStop, InstanceRecord
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.drain_progress import DrainProgress
from corral.domain.planning.plan_results import GroupResult
from corral.domain.records import NodeDrain
from corral.errors import counted


class StayReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why an instance is still on a node that is emptied."""

    instance: str
    group: str
    node: str
    reason: str
    awaits: str = ""
    """What would let it go; empty: it goes."""


def stay_reason(
    record: InstanceRecord, found: GroupResult | None, players: Callable[[str], int | None]
) -> StayReason:
    """Why a live instance is there; `found`: what the planner makes of its group now."""
    reason, awaits = _reason(record, found, players(record.id))
    return StayReason(instance=record.id, group=record.group, node=record.node, reason=reason, awaits=awaits)


def _reason(record: InstanceRecord, found: GroupResult | None, players: int | None) -> tuple[str, str]:
    if record.state is InstanceState.OFFLINE:
        return f"its node '{record.node}' is away, and waited for", f"{record.node} reconnects"
    if record.wanted is Wanted.STOP:
        again = ", and is started elsewhere then" if record.after_stop is AfterStop.RESTART else ""
        return f"it is stopping{again}", ""
    if record.wanted is Wanted.DRAIN:
        known = counted(players, "player is", "players are") if players is not None else "players are"
        unknown = "" if players is not None else ", of which it is not known how many it has"
        return f"{known} waited for{unknown}", f"the players of '{record.id}' leave"
    return _planned(record, found) or ("it is about to leave", "")


def _planned(record: InstanceRecord, found: GroupResult | None) -> tuple[str, str] | None:
    drain = found.drain if found is not None else None
    if found is None or drain is None:
        return None
    if found.drain_wait is not None and found.drain_wait.instance == record.id:
        return found.drain_wait.reason, ""
    by_id: Mapping[str, str] = {each.instance: each.reason for each in drain.waiting}
    if record.id in by_id:
        return by_id[record.id], ""
    for each in drain.departures:
        if each.record.id == record.id:
            return each.reason, ""
    if any(each.id == record.id for each in drain.replace):
        return "an instance is started in its place", ""
    return None


def drain_summary(drain: NodeDrain, progress: DrainProgress) -> str:
    """How far the emptying of a node is, in one sentence."""
    parts = [f"{progress.moved} of {progress.total} have left"]
    waits = (
        (progress.waiting_players, "waits for its players", "wait for their players"),
        (progress.waiting_room, "waits for room elsewhere", "wait for room elsewhere"),
        (progress.waiting_turn, "waits for its turn", "wait for their turn"),
        (progress.stopping, "is stopping", "are stopping"),
        (progress.unreachable, "is out of reach", "are out of reach"),
    )
    parts += [counted(count, one, many) for count, one, many in waits if count]
    text = f"emptied by {drain.by} since {_time(drain.started_at)}: {', '.join(parts)}"
    if drain.drained_at is not None:
        return f"{text}; drained at {_time(drain.drained_at)}"
    if drain.deadline_at is not None:
        text += f"; what is left at {_time(drain.deadline_at)} is stopped"
    return text


def _time(at: dt.datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
