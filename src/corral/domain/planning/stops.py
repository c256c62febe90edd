"""Which instances of a group are stopped when it has more than it is to have, and when: never while players are known to
be on them, unless an operator ordered it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import (
    NOT_YET_RUNNING,
    InstanceRecord,
    is_draining,
    is_lost,
    is_present,
    live,
    stays,
)
from corral.domain.ids import instance_number
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.planning.holds import is_empty
from corral.domain.planning.plan_view import PlanView
from corral.errors import short_list

UNKNOWN_IS_EMPTY_SECONDS: Final = 300.0
"""After so long without a report of players an instance that is to go counts as empty."""
_NAMED: Final = 5


class Surplus(msgspec.Struct, frozen=True, kw_only=True):
    """Instances that a group has too many."""

    stop: tuple[InstanceRecord, ...] = ()
    """Those without players: they are stopped now."""
    drain: tuple[InstanceRecord, ...] = ()
    """The others: they take no more players, and are stopped when they have none."""


def choose_surplus(
    view: PlanView, spec: GroupSpec, instances: Iterable[InstanceRecord], count: int
) -> Surplus:
    """The instances to part with. Those that have not begun to serve come first, then those without players, then those
    with the fewest. Those whose node is away are waited for: they are back, or lost, before long."""
    serving = [each for each in instances if is_present(each) and not each.warm]
    here = [each for each in serving if each.state is not InstanceState.OFFLINE]
    count = max(0, count - (len(serving) - len(here)))
    chosen = sorted(here, key=lambda each: _parting_order(view, spec, each))[:count]
    return _parted(view, spec, chosen)


def choose_warm(view: PlanView, spec: GroupSpec, warm: Iterable[InstanceRecord], count: int) -> Surplus:
    """The warm instances to part with, the youngest first. Those whose node is away are waited for."""
    there = sorted(warm, key=lambda each: each.incarnation, reverse=True)
    here = [each for each in there if each.state is not InstanceState.OFFLINE]
    return _parted(view, spec, here[: max(0, count - (len(there) - len(here)))])


def _parted(view: PlanView, spec: GroupSpec, chosen: Sequence[InstanceRecord]) -> Surplus:
    """Stop those of them that have no players, and those that stop anyway."""
    free = {each.id for each in chosen if goes_at_once(view, spec, each)}
    return Surplus(
        stop=tuple(each for each in chosen if each.id in free),
        drain=tuple(each for each in chosen if each.id not in free),
    )


def _is_free(record: InstanceRecord) -> bool:
    """Can it go whatever players it has? It has none yet, or an operator has ordered its restart."""
    return record.state in NOT_YET_RUNNING or record.wanted is Wanted.STOP


def goes_at_once(view: PlanView, spec: GroupSpec, record: InstanceRecord) -> bool:
    """Can an instance that is to go be stopped now? Else it takes no more players, and is stopped when it has none."""
    return _is_free(record) or _seems_empty(view, spec, record)


def choose_idle(
    view: PlanView, spec: GroupSpec, instances: Iterable[InstanceRecord]
) -> InstanceRecord | None:
    """The instance to stop because of low load: one that has had no players for `idle_seconds` without a break."""
    idle = [
        each
        for each in instances
        if _may_idle(each)
        and (seconds := view.idle_seconds(each.id)) is not None
        and seconds >= spec.scaling.idle_seconds
    ]
    return min(idle, key=lambda each: _parting_order(view, spec, each), default=None)


def idle_left(view: PlanView, spec: GroupSpec, instances: Iterable[InstanceRecord]) -> float | None:
    """Seconds until one has been idle for long enough; None: none is idle."""
    idle = [
        seconds
        for each in instances
        if _may_idle(each) and (seconds := view.idle_seconds(each.id)) is not None
    ]
    return max(0.0, spec.scaling.idle_seconds - max(idle)) if idle else None


def drained(view: PlanView, spec: GroupSpec, instances: Iterable[InstanceRecord]) -> list[InstanceRecord]:
    """Instances that take no more players, and have none left."""
    leaving = (each for each in instances if each.wanted is Wanted.DRAIN and live(each.state))
    return [each for each in leaving if is_left_by_all(view, spec, each)]


def is_left_by_all(view: PlanView, spec: GroupSpec, record: InstanceRecord) -> bool:
    """Can an instance that is to go be stopped? Also where the number of its players has not been known for a long time."""
    if record.state is InstanceState.OFFLINE:
        return False
    if record.state in NOT_YET_RUNNING:
        return True
    return _seems_empty(view, spec, record) or view.unknown_seconds(record.id) >= UNKNOWN_IS_EMPTY_SECONDS


def left_text(view: PlanView, record: InstanceRecord) -> str:
    """Why an instance that is to go is stopped now, in words that claim no more about its players than is known."""
    if _may_have_uncounted(view, record):
        return "players unknown: nothing reports how many it has"
    return "it has no players left"


def stop_text(view: PlanView, record: InstanceRecord, why: str) -> str:
    """The reason of a stop that waits for no players, and that they are unknown where nothing reports them."""
    return f"{why}; players unknown" if _may_have_uncounted(view, record) else why


def _may_have_uncounted(view: PlanView, record: InstanceRecord) -> bool:
    return view.players(record.id) is None and record.state not in NOT_YET_RUNNING


def _seems_empty(view: PlanView, spec: GroupSpec, record: InstanceRecord) -> bool:
    """Has it no players? One that is out of reach is not known to be empty, nor one that may have reported some to an
    earlier leader."""
    if record.state is InstanceState.OFFLINE:
        return False
    players = view.players(record.id)
    return is_empty(spec, players) and (players is not None or view.is_silent(record.id))


def leaving_text(instances: Iterable[InstanceRecord]) -> str:
    """Which instances of a static group stop, or wait for their players to leave, and why: the same ones are started next."""
    leaving = (each for each in instances if live(each.state) and not stays(each) and not is_lost(each))
    return short_list((f"'{each.id}' {_going(each)}" for each in leaving), _NAMED)


def _going(record: InstanceRecord) -> str:
    text = "takes no more players" if is_draining(record) else "is stopping"
    return f"{text}: {record.reason}" if record.reason else text


def _may_idle(record: InstanceRecord) -> bool:
    return record.state is InstanceState.RUNNING and record.wanted is Wanted.RUN and not record.warm


def _parting_order(
    view: PlanView, spec: GroupSpec, record: InstanceRecord
) -> tuple[int, int, int, int, float, int, str]:
    players = view.players(record.id)
    if _is_free(record):
        occupied, count = 0, 0
    elif _seems_empty(view, spec, record):
        occupied, count = 1, 0
    else:
        occupied, count = 2, players if players is not None else 1_000_000
    return (
        occupied,
        count,
        -int(view.outdated(record)),
        -int(view.is_closed(record.node)),
        -(view.idle_seconds(record.id) or 0.0),
        -instance_number(record.id)[1],
        record.id,
    )
