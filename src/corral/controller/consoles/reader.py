"""A reader that follows an instance's console, from run to run, wherever the bytes are.

It has a position and nothing else that could grow: one that is slow falls out of the ring and reads
on from the node. Frames are encoded once for all readers that are at the same place.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from typing import Any, Final

import msgspec

from corral.controller.cluster_state import ClusterState
from corral.controller.consoles.echoes import Echo
from corral.controller.consoles.pages import ConsoleGapShape, ConsolePage, page_of, texts_of
from corral.controller.consoles.service import Consoles, has_ended, never_ran
from corral.controller.consoles.stretch import Stretch
from corral.domain.ids import MAX_COUNTER, Incarnation, InstanceId
from corral.domain.instance_records import ExitRecord, InstanceRecord
from corral.errors import Code, CorralError, Rejected

_CHUNK_BYTES: Final = 64 * 1024
_LINES: Final = 4096
_SHARED: Final = 16
_BUSY: Final = frozenset({Code.RATE_LIMITED, Code.TIMEOUT})
_ATTEMPTS: Final = 3
_PAUSE_SECONDS: Final = 0.5
_encode: Final = msgspec.json.Encoder().encode
_PLACE: Final = re.compile(r"(?:(0|[1-9][0-9]{0,18})-)?(0|[1-9][0-9]{0,18})")


class Place(msgspec.Struct, frozen=True):
    """Where a reader is; as text `INCARNATION-OFFSET`."""

    incarnation: Incarnation
    offset: int

    def __str__(self) -> str:
        return f"{self.incarnation}-{self.offset}"


class Message(msgspec.Struct, frozen=True):
    """Something to tell a reader: its name, its encoded JSON, and where the reader then is."""

    name: str
    data: bytes
    place: Place


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch as it is told, and where it leads; the same for all readers at the same place."""

    messages: tuple[Message, ...]
    place: Place
    tail: str = ""


class RunShape(msgspec.Struct, frozen=True, kw_only=True):
    """Another run of the instance begins."""

    incarnation: int
    node: str


class EndShape(msgspec.Struct, frozen=True, kw_only=True):
    """The run has ended and everything it wrote was told."""

    incarnation: int
    state: str
    ended_at: dt.datetime | None
    exit: ExitRecord | None


def parse_place(text: str | None) -> tuple[Incarnation | None, int] | None:
    """A `Last-Event-ID`: `INCARNATION-OFFSET`, or an offset alone."""
    if not text:
        return None
    match = _PLACE.fullmatch(text)
    if match is None or int(match[2]) > MAX_COUNTER or int(match[1] or 0) > MAX_COUNTER:
        raise Rejected(
            Code.INVALID_CURSOR, "this Last-Event-ID is no place in a console", field="Last-Event-ID"
        )
    return (Incarnation(int(match[1])) if match[1] else None), int(match[2])


class ConsoleReader:
    """`following`: goes on with the next run of the instance when this one has ended."""

    def __init__(
        self,
        *,
        consoles: Consoles,
        state: ClusterState,
        id: InstanceId,
        place: Place,
        following: bool,
        blocks: bool,
    ) -> None:
        self._consoles = consoles
        self._state = state
        self._id = id
        self._following = following
        self._blocks = blocks
        self._echoed = consoles.echoes.last
        self._told_end = False
        self._told_tail = ""
        self._asked: Place | None = None
        self.place = place
        self.gone = False
        """The instance's record was removed: nothing comes any more."""

    async def take(self) -> list[Message]:
        """What there is to tell now; empty when the reader is up to date."""
        messages = self._echoes()
        stored = self._state.instances.find(self._id)
        if stored is None:
            self.gone = True
            return messages
        record = stored.record
        messages += await self._read(record)
        if not messages:
            messages += await self._turn_over(record)
        return messages

    def _echoes(self) -> list[Message]:
        echoes = self._consoles.echoes
        if echoes.last == self._echoed:
            return []
        fresh: list[Echo] = echoes.after(self._id, self._echoed)
        self._echoed = echoes.last
        return [self._message("command", echo) for echo in fresh]

    async def _read(self, record: InstanceRecord) -> list[Message]:
        ring = self._consoles.ring((self._id, self.place.incarnation))
        if ring is None:
            return await self._without_ring(record)
        if self.place.offset >= ring.end:
            return []
        if not ring.reaches(self.place.offset):
            return await self._from_node(record, floor=ring.begin)
        final = has_ended(record, self.place.incarnation) and self._is_whole(record)
        key = (self.place, self._blocks, final)
        told = ring.shared.get(key)
        if told is None:
            told = self._encoded(ring.stretch(self.place.offset, max_bytes=_CHUNK_BYTES), final=final)
            if len(ring.shared) < _SHARED:
                ring.shared[key] = told
        return self._tell(told)

    async def _without_ring(self, record: InstanceRecord) -> list[Message]:
        """Nothing came from the node since we lead, or it was dropped: what is there, once."""
        if self._asked == self.place or never_ran(record, self.place.incarnation):
            return []
        self._asked = self.place
        try:
            stretch = await self._consoles.from_node(
                record, self.place.incarnation, self.place.offset, max_bytes=_CHUNK_BYTES
            )
        except CorralError:
            return []  # what comes will tell
        return self._tell(self._encoded(stretch, final=False))

    async def _from_node(self, record: InstanceRecord, *, floor: int) -> list[Message]:
        """Older than the ring: page from the node, or say that it is not to be had and go on."""
        try:
            stretch = await self._asked_again(record)
        except CorralError as error:
            return [self._lost(floor, error.message)]
        if not stretch.pieces or stretch.pieces[0].offset > floor:  # the ring has what the node gave up
            return [self._lost(floor, "not kept any more")]
        told = self._tell(self._encoded(stretch, final=False))
        return told or [self._lost(floor, "the node has no more of this line")]

    async def _asked_again(self, record: InstanceRecord) -> Stretch:
        """What the node has from here on. One that is busy is asked again: it delays, and loses nothing."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._consoles.stretch(
                    record, self.place.incarnation, self.place.offset, max_bytes=_CHUNK_BYTES
                )
            except CorralError as error:
                if error.code not in _BUSY:
                    raise
                await asyncio.sleep(error.retry_after or _PAUSE_SECONDS)
        return await self._consoles.stretch(
            record, self.place.incarnation, self.place.offset, max_bytes=_CHUNK_BYTES
        )

    def _is_whole(self, record: InstanceRecord) -> bool:
        """Whether the ring has all that an ended run wrote."""
        ring = self._consoles.ring((self._id, self.place.incarnation))
        reached = ring.end if ring else 0
        return record.incarnation == self.place.incarnation and reached >= record.console_end > 0

    async def _turn_over(self, record: InstanceRecord) -> list[Message]:
        """When a run has ended: its last bytes, then the end, then the next run."""
        if not has_ended(record, self.place.incarnation):
            return []
        if not self._told_end:
            rest, more = ([], False) if self._is_whole(record) else await self._rest(record)
            if more:
                return rest
            self._told_end = True
            if record.incarnation == self.place.incarnation or not self._following:
                return [*rest, self._message("end", _end(record, self.place.incarnation))]
            if rest:
                return rest
        if not self._following or record.incarnation <= self.place.incarnation:
            return []
        self.place = Place(record.incarnation, 0)
        self._told_end = False
        return [self._message("run", RunShape(incarnation=record.incarnation, node=record.node))]

    async def _rest(self, record: InstanceRecord) -> tuple[list[Message], bool]:
        """What the node still has of an ended run, a piece of it, and whether there is more. When it
        cannot be asked, what is known to be missing is told."""
        try:
            stretch = await self._consoles.from_node(
                record, self.place.incarnation, self.place.offset, max_bytes=_CHUNK_BYTES
            )
        except CorralError as error:
            known = record.console_end if record.incarnation == self.place.incarnation else 0
            return ([self._lost(known, error.message)] if known > self.place.offset else []), False
        if not stretch.pieces:
            return [], False
        last = stretch.next_offset >= stretch.end_offset
        fresh = self._tell(self._encoded(stretch, final=last))
        return fresh, bool(fresh) and not last

    def _tell(self, told: Told) -> list[Message]:
        """Move to where a stretch has led; a tail that was told already is not told again."""
        if told.place == self.place and told.tail == self._told_tail:
            return []
        self._told_tail = told.tail
        self.place = told.place
        return list(told.messages)

    def _encoded(self, stretch: Stretch, *, final: bool) -> Told:
        return self._texts(stretch, final) if self._blocks else self._page(stretch, final)

    def _texts(self, stretch: Stretch, final: bool) -> Told:
        texts = texts_of(stretch, after=self.place.offset, final=final)
        places = [Place(self.place.incarnation, text.next_offset) for text in texts]
        messages = [Message("text", _encode(text), place) for text, place in zip(texts, places, strict=True)]
        return Told(messages=tuple(messages), place=places[-1] if places else self.place)

    def _page(self, stretch: Stretch, final: bool) -> Told:
        page = page_of(
            stretch,
            incarnation=self.place.incarnation,
            after=self.place.offset,
            limit=_LINES,
            final=final,
        )
        place = Place(self.place.incarnation, page.next_offset)
        message = Message("page", _encode(page), place)
        return Told(messages=(message,), place=place, tail=page.tail.line if page.tail else "")

    def _lost(self, to: int, reason: str) -> Message:
        gap = ConsoleGapShape(from_offset=self.place.offset, to_offset=to, reason=reason)
        self.place = Place(self.place.incarnation, to)
        page = ConsolePage(
            incarnation=self.place.incarnation,
            items=[],
            next_offset=to,
            gap=True,
            gaps=[gap],
            first_offset=to,
            end_offset=to,
            tail=None,
        )
        return self._message("gap", page)

    def _message(self, name: str, shape: Any) -> Message:
        return Message(name, _encode(shape), self.place)


def _end(record: InstanceRecord, incarnation: Incarnation) -> EndShape:
    if record.incarnation != incarnation:  # an earlier run: how it ended is in its crash, if it had one
        return EndShape(incarnation=incarnation, state="ENDED", ended_at=None, exit=None)
    return EndShape(
        incarnation=incarnation, state=record.state.value, ended_at=record.ended_at, exit=record.exit
    )
