"""Figures of a run, by group: what was started and stopped, what was short, and what was there for nothing."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.domain.events import Event, EventType
from corral.simulation.virtual_time import TICKS

FLAP_SECONDS: Final = 600
"""A change of the number because of load is a flap where the change before it was in the other direction, and not longer
ago."""
COLUMNS: Final = 120
"""Parts of a run that its chart tells apart."""
_MINUTE: Final = 60 * TICKS


class GroupFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run was like for one group."""

    starts: int
    """Instances that were started, restarts by their nodes not counted."""
    stops: int
    """Instances that were stopped, or ended without a fault."""
    crashes: int
    """Runs that ended in a crash, also where their nodes restarted them."""
    flaps: int
    """Changes of the number because of load that took back the one before within ten minutes."""
    short_minutes: float
    """How long fewer instances were ready than were wanted."""
    full_minutes: float
    """How long players found no place."""
    unused_slots: float
    """Places on ready instances without a player, on average."""
    refused_players: int
    """Players who found no place when they came, each once."""
    cut_players: int
    """Players whose instance ended while they were on it."""
    most_instances: int
    """The most that were to serve at once."""


class ChartColumn(msgspec.Struct, kw_only=True):
    """One part of a run: the most players and wanted instances, and the fewest ready ones."""

    players: int = 0
    wanted: int = 0
    ready: int = 0


class GroupMeasure:
    """The figures of a group while time goes on."""

    def __init__(self, *, ticks: int) -> None:
        """`ticks`: how long the run is."""
        self._ticks = max(1, ticks)
        self._at = 0
        self.wanted = self.ready = self.players = self.waiting = self.unused = 0
        self._starts = self._stops = self._crashes = self._flaps = self._most = 0
        self._short = self._full = self._unused = 0
        self._last_scale: tuple[int, bool] | None = None
        self._started: dict[str, object] = {}
        self.columns = [ChartColumn() for _ in range(COLUMNS)]
        self._column = -1

    def advance(self, tick: int) -> None:
        """Count what was the case until now."""
        passed = tick - self._at
        if passed <= 0:
            return
        self._draw(tick)
        self._at = tick
        self._unused += passed * self.unused
        if self.ready < self.wanted:
            self._short += passed
        if self.waiting:
            self._full += passed

    def _draw(self, tick: int) -> None:
        """Note the present values in the columns of the time that passed."""
        last = min(COLUMNS - 1, (tick - 1) * COLUMNS // self._ticks)
        for number in range(min(COLUMNS - 1, self._at * COLUMNS // self._ticks), last + 1):
            column = self.columns[number]
            new, self._column = number > self._column, max(number, self._column)
            column.players = max(column.players, self.players)
            column.wanted = max(column.wanted, self.wanted)
            column.ready = self.ready if new else min(column.ready, self.ready)

    def set(self, *, wanted: int, ready: int, players: int, waiting: int, unused: int) -> None:
        """What is the case from now on; `unused`: free places on ready instances."""
        self.wanted, self.ready, self.players = wanted, ready, players
        self.waiting, self.unused = waiting, unused
        self._most = max(self._most, wanted)

    def note(self, event: Event, tick: int) -> None:
        match event.type:
            case EventType.INSTANCE_SCHEDULED:
                self._note_start(event)
            case EventType.INSTANCE_STOPPED:
                self._stops += 1
            case EventType.INSTANCE_CRASHED:
                self._crashes += 1
            case EventType.GROUP_SCALED:
                self._note_scale(tick, up=int(str(event.data["to"])) > int(str(event.data["from"])))
            case _:
                pass

    def _note_start(self, event: Event) -> None:
        """An order that is sent again is no other start."""
        number = event.data.get("incarnation")
        self._starts += self._started.get(event.subject) != number
        self._started[event.subject] = number

    def _note_scale(self, tick: int, *, up: bool) -> None:
        last, self._last_scale = self._last_scale, (tick, up)
        if last is not None and last[1] is not up and tick - last[0] < FLAP_SECONDS * TICKS:
            self._flaps += 1

    def figures(self, *, refused: int, cut: int) -> GroupFigures:
        return GroupFigures(
            starts=self._starts,
            stops=self._stops,
            crashes=self._crashes,
            flaps=self._flaps,
            short_minutes=round(self._short / _MINUTE, 2),
            full_minutes=round(self._full / _MINUTE, 2),
            unused_slots=round(self._unused / max(1, self._at), 2),
            refused_players=refused,
            cut_players=cut,
            most_instances=self._most,
        )
