"""Events on their way to one session of a node: what it asked for, in order, each once.

A forwarder has names and places in the log, and nothing that could grow: while the node does not read, it
does not read either. What a name missed is caught up first; the rest waits so long, so that places told to
the node only grow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable
from typing import Final

import structlog

from corral.controller.events.follower import EventLog
from corral.controller.events.hub import EventHub
from corral.controller.events.wakeup import Wakeup
from corral.controller.modules_on_nodes.bridge_frames import (
    EventFrames,
    missed_frame,
    position_frame,
)
from corral.controller.modules_on_nodes.log_reader import LogReader, Missed
from corral.controller.modules_on_nodes.outbox_room import has_room, room
from corral.controller.modules_on_nodes.ports import ModuleLink
from corral.controller.modules_on_nodes.wanted_names import WantedNames
from corral.domain.events import Cursor, Event, EventType
from corral.errors import CorralError
from corral.system.clock import Clock
from corral.wire import features
from corral.wire.v1.link_pb2 import ControllerMessage

MAX_TYPES: Final = 500
"""Names that one session may want."""
POSITION_EVENTS: Final = 1000
POSITION_SECONDS: Final = 30.0
"""So far, or so long, a place that was told may lag behind events which the node does not want."""
_RETRY_SECONDS: Final = 1.0
_ATTEMPTS: Final = 3
"""At what cannot be read for a reason of ours, before the node is told that it missed it."""
_FAILED_SECONDS: Final = 0.2
_log = structlog.get_logger("corral.controller.bridge")


class _Replay:
    """Names that are wanted from an earlier place on, until they have caught up with the others."""

    def __init__(self, names: WantedNames, reader: LogReader) -> None:
        self.names = names
        self.reader = reader


class EventForwarder:
    """The events of one session. Its task runs only while something is wanted; `end`, then `ended`."""

    def __init__(
        self, link: ModuleLink, *, hub: EventHub, log: EventLog, clock: Clock, frames: EventFrames
    ) -> None:
        self._link = link
        self._hub = hub
        self._log = log
        self._clock = clock
        self._frames = frames
        self._wakeup = Wakeup()
        self._main = self._reader(hub.head)
        self._wanted = WantedNames()
        self._replays: deque[_Replay] = deque()
        self._positions = features.MODULES in link.facts.features
        self._place_due = False
        self._idle = False
        self._failures = 0
        self._told = hub.head
        self._told_at = clock.monotonic()
        self._task: asyncio.Task[None] | None = None

    def _reader(self, cursor: Cursor, *, believed: bool = True) -> LogReader:
        return LogReader(hub=self._hub, log=self._log, cursor=cursor, believed=believed)

    # what is wanted

    def __len__(self) -> int:
        return len(self._wanted) + sum(len(replay.names) for replay in self._replays)

    def __contains__(self, name: str) -> bool:
        return name in self._wanted or any(name in replay.names for replay in self._replays)

    def names(self) -> list[str]:
        """Everything that is wanted."""
        return [name for held in (self._wanted, *(replay.names for replay in self._replays)) for name in held]

    def want(self, names: Iterable[str], *, after: Cursor | None) -> None:
        """From now on, or from what comes after a place. What is wanted already stays as it is."""
        new = [name for name in names if name not in self]
        self._place_due = True
        if not len(self):
            self._main = self._reader(self._hub.head)
        if after is None:
            self._wanted.add(new, since=self._hub.head.sequence)
        elif new:
            resumed = WantedNames()
            resumed.add(new, since=after.sequence)
            reader = self._reader(after, believed=False)
            self._replays.append(_Replay(resumed, reader))
        self._work()

    def unwant(self, names: Iterable[str]) -> None:
        gone = list(names)
        for held in (self._wanted, *(replay.names for replay in self._replays)):
            held.drop(gone)
        self._wake()

    # the task

    def published(self, types: Collection[EventType] | None, head: Cursor) -> None:
        """Events of these types came up to `head`, or any (None). One that waits for others is not woken: with
        a thousand nodes that would be most of what a commit costs."""
        if not self._idle or types is None or not self._wanted.of_none(types):
            self._wake()
            return
        self._main.cursor = head
        if self._lags(head):
            self._wake()

    def _wake(self) -> None:
        """From here on only the task moves the cursor: it has yet to read what it is woken for, and several
        commits may be published before it runs."""
        self._idle = False
        self._wakeup.wake()

    def _work(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name=f"bridge/events/{self._link.facts.node_id}")
        else:
            self._wake()

    def end(self) -> asyncio.Task[None] | None:
        """Nothing is sent any more; the task, if there is one, is on its way out."""
        if self._task is not None:
            self._task.cancel()
        return self._task

    async def _run(self) -> None:
        while len(self) and not self._hub.closed and not self._link.over.is_set():
            await self._turn()

    async def _turn(self) -> None:
        turn = self._wakeup.turn
        try:
            await room(self._link)
            moved = await self._step()
        except CorralError as error:  # the store
            _log.warning("bridge.events_delayed", node=self._link.facts.node_id, reason=str(error))
            await asyncio.sleep(error.retry_after or _RETRY_SECONDS)
        except Exception:
            _log.exception("bridge.events_failed", node=self._link.facts.node_id)
            self._failures += 1
            if self._failures >= _ATTEMPTS:
                self._pass_over()
            await asyncio.sleep(_FAILED_SECONDS)
        else:
            self._failures = 0
            if moved:
                await asyncio.sleep(0)  # the others' turn
            else:
                await self._rest(turn)

    async def _rest(self, turn: int) -> None:
        self._idle = turn == self._wakeup.turn
        try:
            await self._wakeup.wait(timeout=POSITION_SECONDS, since=turn)
        finally:
            self._idle = False

    async def _step(self) -> bool:
        """Send the next events, if there are any; False when the end of the log is reached."""
        if self._replays:
            await self._catch_up(self._replays[0])
            return True
        if self._main.cursor.sequence < self._hub.head.sequence:
            reader = self._main
            try:
                await self._forward(reader, self._wanted, until=None)
            except Missed as missed:
                if reader is self._main:
                    self._main = self._reader(missed.until or self._hub.head)
                    self._tell_missed(reader.cursor, self._main.cursor)
        self._tell_place()
        return self._main.cursor.sequence < self._hub.head.sequence

    async def _catch_up(self, replay: _Replay) -> None:
        """Up to where the others are: they stay there as long as anybody catches up."""
        done, until = not len(replay.names), self._main.cursor
        try:
            done = done or await self._forward(replay.reader, replay.names, until=until)
        except Missed as missed:
            behind = missed.until if missed.until and missed.until.sequence < until.sequence else until
            self._tell_missed(replay.reader.cursor, behind)
            replay.reader.cursor = behind
            done = behind == until
        if done:
            self._caught_up(until)

    def _caught_up(self, until: Cursor) -> None:
        replay = self._replays.popleft()
        self._wanted.add(replay.names, since=until.sequence)

    def _pass_over(self) -> None:
        """Go on after what cannot be read, with a word to the node, instead of trying it for ever."""
        self._failures = 0
        if self._replays:
            self._tell_missed(self._replays[0].reader.cursor, self._main.cursor)
            self._caught_up(self._main.cursor)
        else:
            lost, self._main = self._main.cursor, self._reader(self._hub.head)
            self._tell_missed(lost, self._main.cursor)

    async def _forward(self, reader: LogReader, wanted: WantedNames, *, until: Cursor | None) -> bool:
        """One stretch of the log, as far as there is room for it; whether `until` is reached. Names may come
        and go while the store is read."""
        events, looked = await reader.ahead(wanted.coarse)
        for event in events:
            if until is not None and event.cursor.sequence > until.sequence:
                break
            if not has_room(self._link):
                return False
            if wanted.accepts(event):
                self._link.send(self._frame(event, after=reader.cursor))
                self._note_told(event.cursor)
            reader.cursor = event.cursor
        reader.cursor = looked
        return until is not None and looked.sequence >= until.sequence

    def _frame(self, event: Event, *, after: Cursor) -> ControllerMessage:
        """One that cannot be told is missed, and says so; the others go on."""
        try:
            return self._frames.of(event)
        except Exception:
            _log.exception("bridge.event_unreadable", node=self._link.facts.node_id, cursor=str(event.cursor))
            return missed_frame(lost=after, until=event.cursor, at=self._clock.now())

    # places

    def _tell_missed(self, lost: Cursor, until: Cursor) -> None:
        node = self._link.facts.node_id
        _log.warning("bridge.events_missed", node=node, after=str(lost), until=str(until))
        self._link.send(missed_frame(lost=lost, until=until, at=self._clock.now()))
        self._note_told(until)

    def _lags(self, place: Cursor) -> bool:
        if place.sequence - self._told.sequence >= POSITION_EVENTS:
            return True
        return place != self._told and self._clock.monotonic() - self._told_at >= POSITION_SECONDS

    def _note_told(self, cursor: Cursor) -> None:
        self._told = cursor
        self._told_at = self._clock.monotonic()

    def _tell_place(self) -> None:
        """A node that subscribed has to know where it stands before anything happens, and one that wants
        little must not have to go back far."""
        place = self._main.cursor
        asked = self._place_due and place.sequence >= self._hub.head.sequence
        if not asked and not self._lags(place):
            return
        if self._positions:
            self._link.send(position_frame(place))
        self._place_due = self._place_due and not asked
        self._note_told(place)
