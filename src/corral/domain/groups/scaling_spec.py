"""The fields of a group's document that decide how many instances it has: the mode, the load, schedules, maintenance."""

from __future__ import annotations

import enum
import functools
import importlib.resources
from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from corral.domain.control_characters import refuse_control, spelled
from corral.domain.cron import TEXT_MAX, parse_cron
from corral.domain.ids import checked_name
from corral.domain.spec import Count, Seconds, Spec, invalid
from corral.errors import Rejected, nearest

_MESSAGE: Final = 1000
_BYPASS: Final = 1000
_ALL_BYPASS: Final = 2000
"""The most names of one document, those of its schedules included."""
SCHEDULES: Final = 64
"""The most schedules of one group."""


MaintenanceMessage = Annotated[str, msgspec.Meta(max_length=_MESSAGE)]
BypassList = Annotated[
    tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=64)], ...],
    msgspec.Meta(max_length=_BYPASS),
]


class ScalingMode(enum.StrEnum):
    """What decides about the number of instances."""

    MANUAL = "MANUAL"
    """`min`, or the number of the last `scale`, whichever is higher."""
    DYNAMIC = "DYNAMIC"
    """The players, between `min` and `max`."""
    STATIC = "STATIC"
    """`min` alone."""


class ScalingSpec(Spec, frozen=True, kw_only=True):
    mode: ScalingMode = ScalingMode.MANUAL
    up_threshold: Annotated[float, msgspec.Meta(ge=0.01, le=1)] = 0.8
    """The highest mean share of `max_players` that is in use before one more instance is started."""
    free_slots: Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] = 0
    """Places for players that are kept free over all instances."""
    idle_seconds: Seconds = 300
    """An instance is stopped after so long without a player."""
    window_seconds: Seconds = 300
    """The highest need within this time counts when instances are stopped."""
    cooldown_seconds: Seconds = 60
    """After a change of the number, none is stopped for so long; after a stop, none is started beyond the number it left."""
    max_step: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 5
    """The most instances that start at once because of load."""


class MaintenanceSpec(Spec, frozen=True, kw_only=True):
    """A group that is closed to players: its instances are kept, and their number does not follow the load."""

    enabled: bool = False
    message: MaintenanceMessage = ""
    """What players are told."""
    bypass: BypassList = ()
    """Players, by name or id, who may join all the same."""


class ScheduleSpec(Spec, frozen=True, kw_only=True):
    """Values that take the place of the group's own for some time, again and again."""

    name: Annotated[str, msgspec.Meta(max_length=63)]
    cron: Annotated[str, msgspec.Meta(max_length=TEXT_MAX)]
    """When it begins: five fields, in `time_zone`."""
    time_zone: Annotated[str, msgspec.Meta(max_length=64)] = "UTC"
    """A name of the IANA database, such as `Europe/Berlin`."""
    duration_seconds: Annotated[int, msgspec.Meta(ge=60, le=604_800)]
    """How long it lasts, in elapsed time."""
    min: Count | None = None
    max: Count | None = None
    warm: Count | None = None
    mode: ScalingMode | None = None
    maintenance: MaintenanceSpec | None = None


OVERLAID: Final = ("min", "max", "warm", "mode", "maintenance")
"""The fields that a schedule can set."""


def check_scaling(
    scaling: ScalingSpec, schedules: Sequence[ScheduleSpec], *, max_players: int, static: bool
) -> None:
    """Refuse a mode that cannot work, and schedules that never begin or change nothing, with the field."""
    if scaling.mode is ScalingMode.DYNAMIC and not max_players:
        raise _without_players("scaling/mode")
    names: set[str] = set()
    for position, each in enumerate(schedules):
        field = f"schedules/{position}"
        checked_name(each.name, kind="schedule", field=f"{field}/name")
        if each.name in names:
            raise invalid(
                f"{field}/name", f"'{each.name}' is the name of two schedules", "rename one of them"
            )
        names.add(each.name)
        _check_cron(each.cron, field=f"{field}/cron")
        check_zone(each.time_zone, field=f"{field}/time_zone")
        if all(getattr(each, name) is None for name in OVERLAID):
            raise invalid(field, "it changes nothing", f"set one of {', '.join(OVERLAID)}")
        if each.mode is ScalingMode.DYNAMIC and not max_players:
            raise _without_players(f"{field}/mode")
        if each.maintenance is not None:
            check_maintenance(each.maintenance, field=f"{field}/maintenance")
        if each.warm and static:
            raise invalid(f"{field}/warm", "a static group has no warm instances", "leave it out")


def check_maintenance(maintenance: MaintenanceSpec, *, field: str = "maintenance") -> None:
    """Refuse texts that would steer a terminal or hide what they say; a message may have several lines."""
    refuse_control(maintenance.message.replace("\n", ""), f"{field}/message")
    for position, each in enumerate(maintenance.bypass):
        refuse_control(each, f"{field}/bypass/{position}")


def check_bypass(maintenance: MaintenanceSpec, schedules: Sequence[ScheduleSpec]) -> None:
    """Refuse more names of players than are kept with one document: it is read, sent and stored as a whole."""
    lists = [maintenance.bypass, *(each.maintenance.bypass for each in schedules if each.maintenance)]
    names = sum(map(len, lists))
    if names > _ALL_BYPASS:
        raise invalid(
            "maintenance/bypass",
            f"this list and those of the schedules have {names} names",
            f"keep them at {_ALL_BYPASS} in all: have the proxy decide who may join where there are more",
        )


def _check_cron(text: str, *, field: str) -> None:
    try:
        parse_cron(text, field=field)
    except Rejected as error:
        raise invalid(field, error.message, error.hint or "") from None


@functools.cache
def known_zones() -> frozenset[str]:
    """The names of the IANA database, without what else lies beside its files on a host."""
    listed = importlib.resources.files("tzdata").joinpath("zones").read_text(encoding="utf-8")
    return frozenset(listed.split()) - {"Factory"}  # the clock of a machine that was given none


def check_zone(name: str, *, field: str) -> None:
    """Refuse a name that is not of the IANA database."""
    if name not in known_zones():
        guess = nearest(name, sorted(known_zones()))
        hint = f"did you mean '{guess}'?" if guess else "use a name such as Europe/Berlin, or UTC"
        raise invalid(field, f"'{spelled(name[:64])}' is not a time zone", hint)


def _without_players(field: str) -> Rejected:
    return invalid(
        field, "DYNAMIC counts players, and 'max_players' is 0", "set max_players to what one instance takes"
    )
