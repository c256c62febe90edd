"""Event forwarder: sends the events of one session's subscriptions to its node, in order, each once.

A forwarder holds names and cursors, and nothing that could grow: while the node does not read, the forwarder
does not read the log. A name subscribed from an earlier cursor is replayed first, and the other names wait
meanwhile, so that the cursors sent to the node only grow.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Final

import structlog

from corral.controller.events.hub import EventHub
from corral.controller.events.reader import RETRY_SECONDS, EventReader
from corral.controller.events.ring import EventSelection
from corral.controller.events.wakeup import Wakeup
from corral.controller.modules_on_nodes.event_frames import EventFrames, missed_frame, position_frame
from corral.controller.modules_on_nodes.outbox_room import has_room, room
from corral.controller.sessions.node_links import ModuleLink
from corral.domain.events import Cursor, Event, EventType, MissedEvents
from corral.errors import CorralError
from corral.modules.services.event_rules import EventFilter, name_of
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock


class SubscribedNames:
    """Subscribed names, each from a cursor on: types of the log, and `MODULE/TYPE` for events of modules.
    Looked up for each event, changed seldom."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}
        self._coarse: EventSelection | None = None

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, name: str) -> bool:
        return name in self._since

    def __iter__(self) -> Iterator[str]:
        return iter(self._since)

    def add(self, names: Iterable[str], *, since: int) -> None:
        """Subscribe to events after the one with that number."""
        self._since |= dict.fromkeys(names, since)
        self._coarse = None

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._since.pop(name, None)
        self._coarse = None

    @property
    def coarse(self) -> EventSelection:
        """Selection by types alone, for reading the log."""
        if self._coarse is None:
            types = EventFilter(types=frozenset(self._since)).log_types if self._since else frozenset()
            self._coarse = EventSelection(types=types)
        return self._coarse

    def of_none(self, types: Collection[EventType]) -> bool:
        """Can no event of these types be subscribed?"""
        return (self.coarse.types or frozenset()).isdisjoint(types)

    def accepts(self, event: Event) -> bool:
        """Is the event subscribed, by its type or, if a module published it, by its own name, and after its
        start?"""
        sequence = event.cursor.sequence
        if self._since.get(event.type, sequence) < sequence:
            return True
        own = event.type is EventType.MODULE_EVENT
        return own and self._since.get(name_of(event), sequence) < sequence


MAX_TYPES: Final = 500
"""Most names that one session may subscribe to."""
POSITION_EVENTS: Final = 1000
POSITION_SECONDS: Final = 30.0
"""Limits, in events and seconds, by which the cursor sent to the node may lag behind events it did not
subscribe to."""
_AT_ONCE: Final = 128
"""Most events read in one turn."""
_STORE_SECONDS: Final = 1.0
"""Pause when the store is unavailable and gives no retry delay."""
_log = structlog.get_logger("corral.controller.modules_on_nodes")


class _Replay:
    """Names subscribed from an earlier cursor, until they have caught up with the others."""

    def __init__(self, names: SubscribedNames, reader: EventReader) -> None:
        self.names = names
        self.reader = reader


class EventForwarder:
    """The events of one session. Its task, one of `tasks`, runs only while something is subscribed."""

    def __init__(
        self, link: ModuleLink, *, hub: EventHub, clock: Clock, frames: EventFrames, tasks: Tasks
    ) -> None:
        self._link = link
        self._hub = hub
        self._clock = clock
        self._encode = frames.of if link.facts.supports.event_names else frames.of_former
        self._wakeup = Wakeup()
        self._main = self._reader()
        self._names = SubscribedNames()
        self._replays: deque[_Replay] = deque()
        self._positions = link.facts.supports.modules
        self._place_due = False
        self._idle = False
        self._sent_cursor = hub.head
        self._sent_at = clock.monotonic()
        self._tasks = tasks
        self._task: asyncio.Task[None] | None = None

    def _reader(self, *, after: Cursor | None = None) -> EventReader:
        return self._hub.reader(f"node/{self._link.facts.node_id}", after=after)

    # subscriptions

    def __len__(self) -> int:
        return len(self._names) + sum(len(replay.names) for replay in self._replays)

    def __contains__(self, name: str) -> bool:
        return name in self._names or any(name in replay.names for replay in self._replays)

    def names(self) -> list[str]:
        """All subscribed names."""
        return [name for held in (self._names, *(replay.names for replay in self._replays)) for name in held]

    def subscribe(self, names: Iterable[str], *, after: Cursor | None) -> None:
        """Subscribe from now on, or after a cursor. A name that is subscribed already stays as it is."""
        new = [name for name in names if name not in self]
        self._place_due = True
        if not len(self):
            self._main = self._reader()
        if after is None:
            self._names.add(new, since=self._hub.head.sequence)
        elif new:
            resumed = SubscribedNames()
            resumed.add(new, since=after.sequence)
            self._replays.append(_Replay(resumed, self._reader(after=after)))
        self._work()

    def unsubscribe(self, names: Iterable[str]) -> None:
        gone = list(names)
        for held in (self._names, *(replay.names for replay in self._replays)):
            held.drop(gone)
        self._wake()

    # the task

    def published(self, types: Collection[EventType] | None, head: Cursor) -> None:
        """Events of these types, or of any (None), were published up to `head`. A forwarder that has
        subscribed to none of them is not woken: with a thousand nodes that would be most of the cost of a
        commit."""
        if not self._idle or types is None or not self._names.of_none(types):
            self._wake()
            return
        self._main.advance(head)
        if self._lags(head):
            self._wake()

    def _wake(self) -> None:
        """Wake the task. From here on only the task moves the cursor: it has yet to read the events it is
        woken for, and several commits may be published before it runs."""
        self._idle = False
        self._wakeup.wake()

    def _work(self) -> None:
        if self._task is None or self._task.done():
            name = f"bridge/events/{self._link.facts.node_id}"
            self._task = self._tasks.spawn(self._run(), name=name)
        else:
            self._wake()

    def end(self) -> None:
        """End the forwarder: nothing more is sent; the task, if there is one, is being cancelled."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while len(self) and not self._hub.closed and not self._link.over.is_set():
            await self._turn()

    async def _turn(self) -> None:
        turn = self._wakeup.turn
        try:
            await room(self._link)
            moved = await self._step()
        except CorralError as error:  # the store
            _log.warning("bridge_events.retried", node=self._link.facts.node_id, reason=str(error))
            await asyncio.sleep(error.retry_after or _STORE_SECONDS)
        except Exception:
            _log.exception("bridge_events.failed", node=self._link.facts.node_id)
            self._pass_over()
            await asyncio.sleep(RETRY_SECONDS)
        else:
            if moved:
                await asyncio.sleep(0)  # yield to the other forwarders
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
        if not self._main.at_head:
            await self._forward(self._main, self._names, until=None)
        self._send_position()
        return not self._main.at_head

    async def _catch_up(self, replay: _Replay) -> None:
        """Replay up to the cursor of the other names: they wait there while any name is replayed."""
        until = self._main.cursor
        if not len(replay.names) or await self._forward(replay.reader, replay.names, until=until):
            self._caught_up()

    def _caught_up(self) -> None:
        replay = self._replays.popleft()
        since = max(self._main.cursor.sequence, replay.reader.cursor.sequence)
        self._names.add(replay.names, since=since)

    def _pass_over(self) -> None:
        """Continue after an event that cannot be read or sent, and report that to the node, instead of
        retrying for ever."""
        if not self._replays:
            missed = self._main.passed_over()
            if missed is not None:
                self._send_missed(missed)
                self._main.advance(missed.until)
            return
        reader = self._replays[0].reader
        missed = reader.passed_over(until=self._main.cursor)
        if missed is not None:
            self._send_missed(missed)
            reader.advance(missed.until)
            self._caught_up()

    async def _forward(self, reader: EventReader, names: SubscribedNames, *, until: Cursor | None) -> bool:
        """Forward one span of the log, as far as the outbox has room; returns whether `until` is reached.
        Names may be added and removed while the store is read."""
        read = await reader.read(names.coarse, limit=_AT_ONCE)
        if until is None and reader is not self._main:
            return False  # nothing was subscribed meanwhile: no subscription misses these
        for item in read.items:
            if not has_room(self._link):
                return False
            place = item.cursor if isinstance(item, Event) else item.until
            if until is not None and place.sequence > until.sequence:
                if isinstance(item, MissedEvents):
                    self._send_missed(MissedEvents(after=item.after, until=until))
                reader.advance(until)
                return True
            self._send(reader, item, names)
            reader.advance(place)
        reader.advance(read.until)
        return until is not None and read.until.sequence >= until.sequence

    def _send(self, reader: EventReader, item: Event | MissedEvents, names: SubscribedNames) -> None:
        if isinstance(item, Event):
            if not names.accepts(item):
                return
            frame = reader.encoded(item, self._encode)
            if not isinstance(frame, MissedEvents):
                self._link.send(frame)
                self._note_sent(item.cursor)
                return
            item = frame
        self._send_missed(item)

    # cursors

    def _send_missed(self, missed: MissedEvents) -> None:
        node = self._link.facts.node_id
        _log.warning("bridge_events.lost", node=node, after=str(missed.after), until=str(missed.until))
        self._link.send(missed_frame(missed, at=self._clock.now()))
        self._note_sent(missed.until)

    def _lags(self, place: Cursor) -> bool:
        if place.sequence - self._sent_cursor.sequence >= POSITION_EVENTS:
            return True
        return place != self._sent_cursor and self._clock.monotonic() - self._sent_at >= POSITION_SECONDS

    def _note_sent(self, cursor: Cursor) -> None:
        self._sent_cursor = cursor
        self._sent_at = self._clock.monotonic()

    def _send_position(self) -> None:
        """Send the cursor: a node that subscribed must know its cursor before the first event, and one that
        receives few events must not have to replay much."""
        place = self._main.cursor
        asked = self._place_due and place.sequence >= self._hub.head.sequence
        if not asked and not self._lags(place):
            return
        if self._positions:
            self._link.send(position_frame(place))
        self._place_due = self._place_due and not asked
        self._note_sent(place)
