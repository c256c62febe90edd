"""Instances whose node is away: when they are lost, which of them have no replacement, and which copy goes when a lost one
is back.

A lost instance may be running. So its replacement has another id, it keeps its reservation, and when its node is back
there may be two where one is to be. Then one of them goes: the replacement while it is not ready, else the one without
players; where both have some, the younger takes no more of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from corral.domain.groups.disconnect_spec import DisconnectSpec
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import InstanceRecord, is_lost, is_present, is_ready, stays
from corral.domain.instance_states import InstanceState
from corral.domain.planning.plan_view import PlanView
from corral.domain.planning.stops import UNKNOWN_IS_EMPTY_SECONDS, is_left_by_all

ATTEMPTS: Final = 3
"""So often a node can try to connect, by its longest pause, before its instances are lost."""
_NAMED: Final = 3


def grace_seconds(disconnect: DisconnectSpec, reconnect_max_seconds: float) -> float | None:
    """How long a node may be away before its instances are lost; None: for ever."""
    if disconnect.replace_after_seconds is None:
        return None
    return max(float(disconnect.replace_after_seconds), ATTEMPTS * reconnect_max_seconds)


class Losses(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of a group whose nodes are away."""

    lost: tuple[InstanceRecord, ...] = ()
    """Those that have been away for too long since the last look."""
    next_in: float | None = None
    """Seconds until the next one has been; None: none is about to."""


def losses(view: PlanView, spec: GroupSpec, instances: Iterable[InstanceRecord]) -> Losses:
    lost: list[InstanceRecord] = []
    next_in: float | None = None
    for each in instances:
        if each.state is not InstanceState.OFFLINE or each.lost or not stays(each):
            continue
        left = view.grace_left(spec, each.node)
        if left is None:
            continue
        if left <= 0:
            lost.append(each)
        else:
            next_in = left if next_in is None else min(next_in, left)
    return Losses(lost=tuple(lost), next_in=next_in)


def away_text(record: InstanceRecord) -> str:
    """Since when the node of an instance is away."""
    since = f" since {record.lost_at:%Y-%m-%d %H:%M:%S} UTC" if record.lost_at is not None else ""
    return f"its node '{record.node}' is away{since}"


def unreplaced(instances: Sequence[InstanceRecord]) -> list[InstanceRecord]:
    """The lost instances in whose place none was started that is still there or lost itself; the first to be lost first."""
    lost = [each for each in instances if is_lost(each) and stays(each) and not each.warm]
    if not lost:
        return []
    by_id: dict[str, InstanceRecord] = {each.id: each for each in instances}
    replaced = {former.id for each in instances if stays(each) for former in _predecessors(each, by_id)}
    found = [each for each in lost if each.id not in replaced]
    return sorted(
        found, key=lambda each: (each.lost_at is not None, each.lost_at or each.created_at, each.id)
    )


def held_text(spec: GroupSpec, instances: Iterable[InstanceRecord]) -> str:
    """Why nothing is started in the place of instances whose nodes are waited for as long as it takes."""
    endless = spec.disconnect.replace_after_seconds is None
    away = [each for each in instances if is_lost(each) or (endless and each.state is InstanceState.OFFLINE)]
    named = "; ".join(
        f"'{each.id}' is {'lost' if each.lost else 'OFFLINE'}: {away_text(each)}" for each in away[:_NAMED]
    )
    more = f"; and {len(away) - _NAMED} more" if len(away) > _NAMED else ""
    why = "a static instance runs only where its directory is"
    if not spec.static:
        why = "'disconnect.replace_after_seconds' is null"
    return f"{named}{more}; {why}, so its node is waited for" if away else ""


def _predecessors(record: InstanceRecord, by_id: Mapping[str, InstanceRecord]) -> Iterator[InstanceRecord]:
    """The instance that this one replaces; where that is not there either, also the one which that replaces, and so on."""
    seen = {record.id}
    former = by_id.get(record.replaces)
    while former is not None and former.id not in seen and former.incarnation < record.incarnation:
        yield former
        if is_present(former):
            return
        seen.add(former.id)
        former = by_id.get(former.replaces)


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """A lost instance that is back, and the one that was started in its place."""

    original: InstanceRecord
    replacement: InstanceRecord


def returned_copies(instances: Sequence[InstanceRecord]) -> list[Copies]:
    """The returned instances whose replacements are there, too; in the order of their ids."""
    replacing = [each for each in instances if each.replaces and _is_seen(each)]
    if not replacing:
        return []
    by_id: dict[str, InstanceRecord] = {each.id: each for each in instances}
    found: dict[str, Copies] = {}
    for each in sorted(replacing, key=lambda record: record.incarnation, reverse=True):
        for former in _predecessors(each, by_id):
            if _is_seen(former) and former.id not in found:
                found[former.id] = Copies(original=former, replacement=each)
                break
    return [found[id] for id in sorted(found)]


def _is_seen(record: InstanceRecord) -> bool:
    """Is it to stay, and does its node report on it?"""
    return is_present(record) and not record.warm and record.state is not InstanceState.OFFLINE


class CopyVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """Which of two copies goes."""

    goes: InstanceRecord | None = None
    """None: it is not known yet which of them has players."""
    drains: bool = False
    """It has players, and goes when they have left."""
    unknown: InstanceRecord | None = None
    """The one whose players are not known."""
    reason: str


def choose_copy(view: PlanView, spec: GroupSpec, copies: Copies) -> CopyVerdict:
    original, replacement = copies.original, copies.replacement
    back = f"'{original.id}' is back on node '{original.node}'"
    if not view.inventory_complete(original.node):
        return CopyVerdict(reason=f"{back}; its node has not reported everything yet")
    occupied = {each.id: (view.players(each.id) or 0) > 0 for each in (original, replacement)}
    if not is_ready(replacement) and not occupied[replacement.id]:
        return CopyVerdict(
            goes=replacement, reason=f"{back} before '{replacement.id}', which replaced it, was ready"
        )
    if not occupied[original.id]:
        if is_left_by_all(view, spec, original):
            return CopyVerdict(
                goes=original,
                reason=f"{back} without players, and '{replacement.id}', which replaced it, is ready",
            )
        return CopyVerdict(unknown=original, reason=f"{back}; the number of its players is not known yet")
    if not occupied[replacement.id]:
        if is_left_by_all(view, spec, replacement):
            return CopyVerdict(
                goes=replacement,
                reason=f"{back} with players, and '{replacement.id}', which replaced it, has none",
            )
        return CopyVerdict(
            unknown=replacement,
            reason=f"{back}; the number of players of '{replacement.id}', which replaced it, is not known yet",
        )
    younger = max(original, replacement, key=lambda each: each.incarnation)
    return CopyVerdict(
        goes=younger,
        drains=True,
        reason=f"{back}, and it and '{replacement.id}', which replaced it, have players",
    )


class WaitingCopies(msgspec.Struct, frozen=True, kw_only=True):
    """Two of which one is to go, and what is waited for before it is chosen."""

    copies: Copies
    reason: str
    awaits: str
    """What ends the wait."""
    until: dt.datetime | None = None
    """When it ends at the latest, if that is known."""

    @property
    def effect(self) -> str:
        return f"'{self.copies.original.id}' or '{self.copies.replacement.id}' goes"

    def concerns(self, id: str) -> bool:
        return id in (self.copies.original.id, self.copies.replacement.id)


def waiting_copies(view: PlanView, copies: Copies, verdict: CopyVerdict) -> WaitingCopies:
    """Why both copies stay for now, `verdict` having chosen none."""
    awaits, until = f"{copies.original.node} has reported everything", None
    reason = verdict.reason
    if verdict.unknown is not None:
        left = max(0.0, UNKNOWN_IS_EMPTY_SECONDS - view.unknown_seconds(verdict.unknown.id))
        awaits, until = (
            f"the players of '{verdict.unknown.id}' are reported",
            view.now + dt.timedelta(seconds=left),
        )
        reason += f": it is waited for, at most until {until:%Y-%m-%d %H:%M:%S} UTC"
    found = WaitingCopies(copies=copies, reason=reason, awaits=awaits, until=until)
    return msgspec.structs.replace(found, reason=f"{reason}; then {found.effect}")
