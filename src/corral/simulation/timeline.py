"""The timeline of a run: the decisions of the controller with their reasons, and the faults between them."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.state.collections import EVERY_DECISION, GROUP_DECISIONS_PREFIX
from corral.simulation.virtual_time import TICKS, VirtualClock
from corral.store.port import Append

MOST_ENTRIES: Final = 20_000


class TimelineEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that was decided, or failed."""

    seconds: float
    """Since the start."""
    at: dt.datetime
    kind: str
    """That of the decision, or `fault`."""
    rule: str = ""
    group: str = ""
    instance: str = ""
    node: str = ""
    reason: str


class Timeline:
    """Entries in their order; those after the first `MOST_ENTRIES` are only counted."""

    def __init__(self, clock: VirtualClock, *, kept: bool) -> None:
        self._clock = clock
        self._most = MOST_ENTRIES if kept else 0
        self.entries: list[TimelineEntry] = []
        self.left_out = 0

    def decided(self, entries: tuple[Append, ...]) -> None:
        """Journal entries of a commit: each decision about a group is in the journal of that group once."""
        for each in entries:
            if not each.journal.startswith(GROUP_DECISIONS_PREFIX):
                continue
            if len(self.entries) >= self._most:
                self.left_out += 1
                continue
            made = EVERY_DECISION.decode(each.body)
            group = each.journal.removeprefix(GROUP_DECISIONS_PREFIX)
            about = made.subject != group
            self._add(
                kind=made.kind.value,
                rule=made.rule,
                group=group,
                instance=made.subject if about else "",
                node=made.node or "",
                reason=made.reason,
            )

    def failed(self, what: str, *, node: str = "", kind: str = "fault") -> None:
        """A fault of the scenario; `kind`: or what an operator orders."""
        if len(self.entries) < self._most:
            self._add(kind=kind, node=node, reason=what)
        else:
            self.left_out += 1

    def _add(self, **facts: str) -> None:
        tick = self._clock.tick
        self.entries.append(TimelineEntry(seconds=tick / TICKS, at=self._clock.now(), **facts))
