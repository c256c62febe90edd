"""What a plan depends on beside the records: whether pauses are over and players are known, by the monotonic clock.

The reconciler, dry runs and `why` ask the same object, so that they plan the same.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Final

from corral.controller.instances.crash_loops import pause_left
from corral.controller.instances.plan_view import WorkspaceView
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.instance_records import BootMoment
from corral.domain.planning.holds import Players
from corral.system.clock import Clock, boot_id

_PLAYERS_SECONDS: Final = 300.0
"""After so long a workload that has reported no players to this leader counts as one without any."""
_SAME: Final = dt.timedelta(seconds=1)


class PlanSignals:
    """The signals of one term."""

    def __init__(self, state: ClusterState, *, clock: Clock, players: Players = lambda _: None) -> None:
        """`players`: the number of players of an instance, where it is known."""
        self._state = state
        self._clock = clock
        self._boot = boot_id()
        self._began = clock.monotonic()
        self._pauses: dict[str, tuple[dt.datetime, float]] = {}
        self.players = players
        self.observing = False
        """The leader waits for the reports of nodes, and starts nothing until then."""

    @property
    def players_settled(self) -> bool:
        """Have workloads had the time to report their players to this leader?"""
        return self._clock.monotonic() >= self._began + _PLAYERS_SECONDS

    def note_pause(self, name: str) -> None:
        """Note when a group's pause ends, by the monotonic clock: the wall clock may be set meanwhile."""
        stored = self._state.groups.find(name)
        paused = stored.record.paused if stored is not None else None
        if stored is None or paused is None:
            self._pauses.pop(name, None)
        elif name not in self._pauses or self._pauses[name][0] != paused.until:
            boot = BootMoment(boot=self._boot, seconds=self._clock.boottime())
            left = pause_left(stored.record, now=self._clock.now(), boot=boot)
            self._pauses[name] = paused.until, self._clock.monotonic() + left

    def pause_deadlines(self) -> Mapping[str, float]:
        """By paused group, the end of its pause on the monotonic clock."""
        return {name: deadline for name, (_, deadline) in self._pauses.items()}

    def pause_over(self, name: str) -> bool:
        self.note_pause(name)
        pause = self._pauses.get(name)
        return pause is None or self._clock.monotonic() >= pause[1]

    def pause_until(self, name: str) -> dt.datetime | None:
        """When the pause ends, as the wall clock is now set; None: the group is not paused."""
        self.note_pause(name)
        pause = self._pauses.get(name)
        if pause is None:
            return None
        until, deadline = pause
        ends = self._clock.now() + dt.timedelta(seconds=max(0.0, deadline - self._clock.monotonic()))
        return until if abs(ends - until) < _SAME else ends

    def view(self, ws: Workspace) -> WorkspaceView:
        """The transaction as the planner sees it at this moment."""
        return WorkspaceView(
            ws, pause_over=self.pause_over, players=self.players, players_settled=self.players_settled
        )
