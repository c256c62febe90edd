"""The players of instances over time: how many a group has, its peak within a window, and since when one has none.

Times are seconds of one monotonic clock, given by the caller. Nothing of it is stored: who begins anew knows less, and
waits longer.
"""

from __future__ import annotations

import collections
from typing import Final

import msgspec

from corral.domain.ids import start_number
from corral.domain.planning.scaling import NEVER, GroupLoad

QUIET_SECONDS: Final = 300.0
"""A start that was followed for so long and has reported no players reports none."""
MOST_PEAKS: Final = 1000
"""Former values that are kept of a group: who reports one player less again and again must not fill the memory."""


class InstancePlayers(msgspec.Struct, frozen=True, kw_only=True):
    """The players of one run, as far as they are known."""

    group: str
    run: int
    serves: bool
    """It counts among the instances of its group that serve."""
    retired: bool = False
    """A deployment has retired it: its players are about to join others."""
    watched: bool
    """Its node is connected: what is not reported now is not known."""
    runs: bool = True
    """Players can be on it: before that it is empty, and not idle."""
    players: int | None
    counted: bool = False
    """Its present start has reported a number."""
    silent: bool = False
    """It is known that its present start has never reported a number: it was followed from its beginning, or for long
    enough."""
    since: float = 0.0
    """Since when it is empty, or not known; 0 with players."""

    @property
    def kind(self) -> tuple[int, bool, bool, bool | None]:
        """What has to last: the same run, watched, running, and empty, occupied or unknown."""
        return self.run, self.watched, self.runs, None if self.players is None else self.players == 0


class _GroupPlayers:
    """The sums of one group, and the peaks that count within its window."""

    __slots__ = (
        "above",
        "capacity",
        "known",
        "now_full",
        "past",
        "players",
        "retired",
        "retired_places",
        "unknown",
        "watched_since",
        "window",
    )

    def __init__(self, *, at: float) -> None:
        self.players: dict[str, int | None] = {}
        """As reported, by the instance that serves: what leaves the sums is what has come into them."""
        self.known = 0
        """Of one instance at most its places: one that reports more than it takes, by mistake or on purpose, decides
        about no more instances than a full one."""
        self.above = 0
        """What was reported on top of that."""
        self.unknown = 0
        self.retired: dict[str, int | None] = {}
        """The same of those that a deployment has retired."""
        self.retired_places = 0
        """The places that their players need elsewhere, unknown ones being full."""
        self.capacity = 0
        self.window = 0.0
        self.watched_since = at
        self.now_full = 0
        """The players if every unknown instance is full."""
        self.past: collections.deque[tuple[float, int]] = collections.deque()
        """Former values with the time at which each was replaced; the later the smaller."""

    def set_capacity(self, places: int) -> None:
        """So many places an instance: what was counted by another number is counted anew."""
        if places == self.capacity:
            return
        self.capacity, found = places, self.players
        self.known = self.above = self.unknown = 0
        for each in found.values():
            self._add(each, 1)
        self.retired_places = sum(map(self._places, self.retired.values()))

    def set_retired(self, id: str, players: int | None) -> None:
        """A deployment has retired an instance that has so many players; None: it is not known."""
        self.drop(id)
        self.retired[id] = players
        self.retired_places += self._places(players)

    def _places(self, players: int | None) -> int:
        return self.capacity if players is None else min(players, self.capacity)

    def set_players(self, id: str, players: int | None) -> None:
        """An instance serves, with so many players; None: it is not known."""
        self.drop(id)
        self.players[id] = players
        self._add(players, 1)

    def drop(self, id: str) -> None:
        """An instance does not serve, or not in this group."""
        if id in self.retired:
            self.retired_places -= self._places(self.retired.pop(id))
        if id in self.players:
            self._add(self.players.pop(id), -1)

    def _add(self, players: int | None, by: int) -> None:
        if players is None:
            self.unknown += by
            return
        counts = min(players, self.capacity)
        self.known += by * counts
        self.above += by * (players - counts)

    def note(self, at: float) -> None:
        """The sums or the capacity have changed."""
        full = self.known + self.unknown * self.capacity
        if full == self.now_full:
            return
        while self.past and self.past[-1][1] <= self.now_full:
            self.past.pop()
        if len(self.past) < MOST_PEAKS:
            self.past.append((at, self.now_full))
        else:  # the smallest stands for this one, too: the peak is too high rather than too low
            self.past[-1] = at, self.past[-1][1]
        self.now_full = full
        self.forget(at)

    def forget(self, at: float) -> None:
        while self.past and self.past[0][0] <= at - self.window:
            self.past.popleft()

    def load(self, at: float) -> GroupLoad:
        self.forget(at)
        left = self.watched_since + self.window - at
        peak: int | None = self.now_full
        until = NEVER
        if left > 0:
            peak, until = None, left
        elif self.past and self.past[0][1] > self.now_full:
            peak, until = self.past[0][1], self.past[0][0] + self.window - at
        return GroupLoad(
            players=self.known,
            above=self.above,
            unknown=self.unknown,
            peak=peak,
            peak_for=until,
            retired=self.retired_places,
        )


def _reports(before: InstancePlayers | None, seen: InstancePlayers, at: float) -> tuple[bool, bool]:
    """Whether the present start has reported a number of players, and whether it is known that it has not."""
    if seen.counted:
        return True, False
    if before is None or start_number(before.run) != start_number(seen.run):
        return False, seen.silent
    quiet = before.watched and before.players is None and at - before.since >= QUIET_SECONDS
    return before.counted, not before.counted and (before.silent or quiet)


class PlayerLoads:
    """The players of all instances, by instance and by group."""

    def __init__(self) -> None:
        self._instances: dict[str, InstancePlayers] = {}
        self._groups: dict[str, _GroupPlayers] = {}

    def set_group(self, name: str, *, capacity: int, window: float, at: float) -> None:
        """A group exists, with so many places an instance. What happened before a longer window began is not known."""
        found = self._groups.setdefault(name, _GroupPlayers(at=at))
        if window > found.window:
            found.watched_since = at
        found.window = window
        found.set_capacity(capacity)
        found.note(at)

    def forget_group(self, name: str) -> None:
        self._groups.pop(name, None)

    def set_instance(self, id: str, seen: InstancePlayers | None, *, at: float) -> bool:
        """What is known of an instance now; None: it is gone. Whether it has become empty, occupied or unknown."""
        before = self._instances.get(id)
        if seen is None:
            self._instances.pop(id, None)
        else:
            lasts = before is not None and before.kind == seen.kind
            since = before.since if before is not None and lasts else at
            counted, silent = _reports(before, seen, at)
            self._instances[id] = msgspec.structs.replace(seen, since=since, counted=counted, silent=silent)
        if before is not None and (sums := self._groups.get(before.group)) is not None:
            sums.drop(id)
        if seen is not None and seen.serves:
            self._groups.setdefault(seen.group, _GroupPlayers(at=at)).set_players(id, seen.players)
        elif seen is not None and seen.retired:
            self._groups.setdefault(seen.group, _GroupPlayers(at=at)).set_retired(id, seen.players)
        for name in {each.group for each in (before, seen) if each is not None}:
            if name in self._groups:
                self._groups[name].note(at)
        return (before.kind if before else None) != (seen.kind if seen else None)

    def load(self, group: str, *, at: float) -> GroupLoad:
        found = self._groups.get(group)
        return found.load(at) if found is not None else GroupLoad()

    def players(self, id: str) -> int | None:
        found = self._instances.get(id)
        return found.players if found is not None else None

    def idle_seconds(self, id: str, *, at: float) -> float | None:
        """For how long it is known to have had no players; None: it has some, or it is not known."""
        found = self._instances.get(id)
        if found is None or found.players != 0 or not found.watched or not found.runs:
            return None
        return at - found.since

    def is_silent(self, id: str, *, at: float) -> bool:
        """Is it known that its present start has never reported players?"""
        found = self._instances.get(id)
        if found is None:
            return True
        quiet = found.watched and found.players is None and at - found.since >= QUIET_SECONDS
        return not found.counted and (found.silent or quiet)

    def unknown_seconds(self, id: str, *, at: float) -> float:
        """For how long the number of its players is not known; 0: it is, or the instance is not."""
        found = self._instances.get(id)
        return at - found.since if found is not None and found.players is None and found.watched else 0.0
