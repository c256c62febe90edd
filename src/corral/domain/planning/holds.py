"""Groups that an operator holds: which of their instances are stopped because of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, Hold, InstanceRecord, is_draining, stays
from corral.domain.groups.probes import ProbeKind
from corral.domain.instance_states import InstanceState
from corral.errors import Code, Rejected

Players = Callable[[str], int | None]
"""The number of players of an instance; None: it was not reported in this run."""


def stopped_by_hold(
    group: GroupRecord,
    instances: Iterable[InstanceRecord],
    players: Players,
    *,
    unknown_is_empty: bool = True,
) -> list[InstanceRecord]:
    """The instances to stop now because the group is held: all, or those without players if the hold waits for that.
    `unknown_is_empty`: workloads have had the time to report players, so that one that did not has none. The players of
    an instance that is out of reach are not known."""
    if group.hold is None:
        return []
    staying = [each for each in instances if stays(each) or is_draining(each)]
    if group.hold.when_empty:
        known = {each.id: players(each.id) for each in staying}
        return [
            each
            for each in staying
            if each.state is not InstanceState.OFFLINE
            and (unknown_is_empty or known[each.id] is not None)
            and is_empty(group.spec, known[each.id])
        ]
    return staying


def is_empty(spec: GroupSpec, players: int | None) -> bool:
    """Has it no players? If none were ever reported, only where nothing counts them."""
    if players is None:
        return not any(probe.kind is ProbeKind.MINECRAFT for probe in spec.probes)
    return players == 0


def hold_text(hold: Hold, name: str) -> str:
    """Who holds a group, why, since when, and what ends it."""
    return (
        f"held by {hold.by} since {hold.since:%Y-%m-%d %H:%M:%S} UTC: {hold.reason}; "
        f"'corral group release {name}' ends it"
    )


def refuse_held(group: GroupRecord) -> None:
    """GROUP_HELD for a start by hand."""
    hold, name = group.hold, group.spec.name
    if hold is not None:
        raise Rejected(
            Code.GROUP_HELD,
            f"group '{name}' is held by {hold.by} since {hold.since:%Y-%m-%d %H:%M:%S} UTC: {hold.reason}",
            hint=f"corral group release {name}",
        )
