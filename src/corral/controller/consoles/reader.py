"""A reader that follows an instance's console, from run to run, from the ring or the node.

It keeps a position and little else that could grow: a slow reader falls out of the ring and continues from
the node. Messages are encoded once for all readers at the same position. It waits a while for a disconnected
node; then it continues without that part, reports the gap, and remembers it: the part is sent as soon as the
node reconnects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from corral.controller.consoles.lookup import has_ended, never_ran
from corral.controller.consoles.pages import LINE_BYTES
from corral.controller.consoles.run_list import NextRun, known_end
from corral.controller.consoles.service import Consoles
from corral.controller.consoles.span import ConsoleSpan
from corral.controller.consoles.stream_messages import (
    LINES,
    ConsoleMessage,
    ConsolePlace,
    EncodedSpan,
    RunShape,
    encoded_page,
    encoded_texts,
    end_shape,
    gap_message,
    message,
)
from corral.controller.consoles.watchers import InputLine
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import Incarnation, InstanceId
from corral.errors import CorralError, Retryable

_CHUNK_BYTES: Final = 64 * 1024
_LEAST_CHUNK: Final = 4 * 1024
_SHARED: Final = 16
_LOOK_SECONDS: Final = 0.5
_LATE_PARTS: Final = 8


def _as_it_is(shape: Any) -> Any:
    return shape


class LatePart(msgspec.Struct, kw_only=True):
    """A part that was skipped because its node was disconnected: from one position up to another."""

    begin: ConsolePlace
    until: ConsolePlace
    reader: ConsoleReader | None = None


class ConsoleReader:
    """`following`: continues with the next run of the instance when this one has ended. `until`: stops there,
    and waits for its nodes without limit. `shown`: input lines and ends as this reader may see them. `room`: bytes that its
    client has room for, None for any number: messages are made small enough to fit into some of it."""

    def __init__(
        self,
        *,
        consoles: Consoles,
        state: ClusterState,
        id: InstanceId,
        place: ConsolePlace,
        following: bool,
        blocks: bool,
        until: ConsolePlace | None = None,
        shown: Callable[[Any], Any] = _as_it_is,
        room: Callable[[], int | None] | None = None,
    ) -> None:
        self._consoles = consoles
        self._shown = shown
        self._room = room
        self._bounded = room is not None or until is not None
        self._state = state
        self._id = id
        self._following = following
        self._blocks = blocks
        self._until = until
        self._echoed = consoles.input_lines.last
        self._end_sent = False
        self._tail_sent = ""
        self._asked: ConsolePlace | None = None
        self._listed_end: int | None = None
        self._waiting_since: float | None = None
        self._failed_at = 0.0
        self._late: list[LatePart] = []
        self._live = False
        self.place = place
        self.gone = False
        """The instance's record was removed: nothing follows."""

    @property
    def look_again_seconds(self) -> float | None:
        """When to check again without an event; None: not needed."""
        return _LOOK_SECONDS if self._waiting_since is not None or self._late else None

    @property
    def finished(self) -> bool:
        return self._until is not None and self.place >= self._until

    @property
    def up_to_date(self) -> bool:
        """Whether the last `take` left nothing: the run goes on, and all of it that is here was taken."""
        ring = self._consoles.ring((self._id, self.place.incarnation))
        return ring is not None and self._live and not self._late and self.place.offset == ring.end

    async def take(self) -> list[ConsoleMessage]:
        """The messages available now; empty when the reader is up to date."""
        messages = self._input_lines()
        stored = self._state.instances.find(self._id)
        if stored is None:
            self.gone = True
            return messages
        if self.finished:
            return messages
        record = stored.record
        self._live = not has_ended(record, self.place.incarnation)
        messages += await self._read(record)
        if not messages:
            messages += await self._turn_over(record)
        if not messages:
            messages += await self._late_part()
        return messages

    def _input_lines(self) -> list[ConsoleMessage]:
        lines = self._consoles.input_lines
        if lines.last == self._echoed or self._until is not None:
            return []
        fresh: list[InputLine] = lines.after(self._id, self._echoed)
        self._echoed = lines.last
        return [message("command", self._shown(line), self.place) for line in fresh]

    # within a run

    async def _read(self, record: InstanceRecord) -> list[ConsoleMessage]:
        ring = self._consoles.ring((self._id, self.place.incarnation))
        if ring is None or (self._until is not None and not ring.reaches(self.place.offset)):
            return await self._without_ring(record)
        if self.place.offset >= ring.end:
            return []
        if not ring.reaches(self.place.offset):
            return await self._from_node(record, floor=ring.begin)
        limit = self._limit() if self._bounded else _CHUNK_BYTES
        final = self._ends_within(limit) or (not self._live and self._is_whole(record))
        lines = LINES if self._room is None else self._lines()
        key = (self.place, self._blocks, final, limit, lines)
        encoded = ring.shared.get(key)
        if encoded is None:
            encoded = self._encoded(ring.span(self.place.offset, max_bytes=limit), final=final, lines=lines)
            if len(ring.shared) < _SHARED:
                ring.shared[key] = encoded
        return self._advance(encoded)

    def _limit(self) -> int:
        """The number of bytes to read at once: not beyond the end of a late part."""
        until, chunk = self._until, _CHUNK_BYTES
        if self._room is not None and (room := self._room()) is not None:
            # Sizes that readers share; in JSON a byte takes up to six, and lines of a page take some more.
            least = (
                _LEAST_CHUNK if self._blocks else LINE_BYTES + 1
            )  # fewer would not show where a long line is cut
            chunk = min(chunk, max(least, 1 << (room // 8).bit_length() >> 1))
        if until is None or until.incarnation != self.place.incarnation:
            return chunk
        return max(1, min(chunk, until.offset - self.place.offset))

    def _lines(self) -> int:
        """The number of lines of a page at most. A line takes more room than its text."""
        room = self._room() if self._room is not None and not self._blocks else None
        return LINES if room is None else min(LINES, max(1, 1 << (room // 1024).bit_length() >> 1))

    def _ends_within(self, limit: int) -> bool:
        """Whether these bytes are the last of a late part, also where they end within a line."""
        return (
            self._until is not None
            and ConsolePlace(self.place.incarnation, self.place.offset + limit) >= self._until
        )

    async def _without_ring(self, record: InstanceRecord) -> list[ConsoleMessage]:
        """The present content when there is no ring: nothing was received from the node in this term, or the
        ring was dropped."""
        if self._until is not None and self._until.incarnation == self.place.incarnation:
            return await self._from_node(record, floor=self._until.offset)
        if has_ended(record, self.place.incarnation):
            return []  # read to its end when the reader moves to the next run
        if self._asked == self.place or never_ran(record, self.place.incarnation):
            return []
        self._asked = self.place
        try:
            span = await self._ask(record)
        except CorralError:
            return []  # coming blocks wake the reader
        return self._advance(self._encoded(span, final=False))

    async def _from_node(self, record: InstanceRecord, *, floor: int) -> list[ConsoleMessage]:
        """Read what is older than the ring: page from the node, wait for it, or report a gap and continue."""
        try:
            span = await self._ask(record)
        except CorralError as error:
            return [] if self._waits(error) else [self._pass_over(floor, error)]
        if not span.pieces or span.pieces[0].offset > floor:  # dropped by the node
            return [self._lost(floor, "not kept any more")]
        final = self._until is not None and span.next_offset >= floor
        sent = self._advance(self._encoded(span, final=final))
        return sent or [self._lost(floor, "the node has no more of this line")]

    async def _ask(self, record: InstanceRecord) -> ConsoleSpan:
        """Query the node for the bytes from this position on."""
        span = await self._consoles.lookup.from_node(
            record, self.place.incarnation, self.place.offset, max_bytes=self._limit()
        )
        self._waiting_since = None
        return span

    # disconnected nodes

    def _waits(self, error: CorralError) -> bool:
        """Whether to query again later: for retryable errors, until the waiting time is used up. It counts
        once for all parts that one disconnect affects."""
        if not isinstance(error, Retryable):
            self._waiting_since = None
            return False
        now, patience = self._consoles.monotonic(), self._consoles.patience_seconds
        if self._waiting_since is None or now - self._failed_at > patience + _LOOK_SECONDS:
            self._waiting_since = now
        self._failed_at = now
        return self._until is not None or now - self._waiting_since < patience

    def _pass_over(self, to: int | None, error: CorralError) -> ConsoleMessage:
        """Continue behind the part that the node did not provide; `to` None is the end of the run. The part
        is late if the node may still provide it."""
        run = self.place.incarnation
        until = ConsolePlace(run, to) if to is not None else ConsolePlace(Incarnation(run + 1), 0)
        late = isinstance(error, Retryable) and self._remember_late(until)
        return self._lost(self.place.offset if to is None else to, error.message, late=late)

    def _remember_late(self, until: ConsolePlace) -> bool:
        """Remember the skipped part up to `until`; False when too many are remembered already."""
        last = self._late[-1] if self._late else None
        if last is not None and last.reader is None and self.place <= last.until:
            last.until = max(last.until, until)
            return True
        if len(self._late) >= _LATE_PARTS:
            return False
        self._late.append(LatePart(begin=self.place, until=until))
        return True

    async def _late_part(self) -> list[ConsoleMessage]:
        """Messages of a skipped part, if its node is connected again. The reader's own position stays."""
        for part in tuple(self._late):
            reader = part.reader = part.reader or self._reader_of(part)
            found = await reader.take()
            if reader.finished or reader.gone:
                self._late.remove(part)
            parts = [each for each in found if each.name in ("page", "gap")]
            if parts:
                return [ConsoleMessage("late", each.data, self.place) for each in parts]
        return []

    def _reader_of(self, part: LatePart) -> ConsoleReader:
        return ConsoleReader(
            consoles=self._consoles,
            state=self._state,
            id=self._id,
            place=part.begin,
            following=True,
            blocks=False,
            until=part.until,
            room=self._room,
        )

    # from run to run

    def _is_whole(self, record: InstanceRecord) -> bool:
        """Whether all output of an ended run is in the ring, or was sent."""
        ring = self._consoles.ring((self._id, self.place.incarnation))
        end = known_end(record, self.place.incarnation) or self._listed_end
        return end is not None and max(ring.end if ring else 0, self.place.offset) >= end

    async def _turn_over(self, record: InstanceRecord) -> list[ConsoleMessage]:
        """At the end of a run: its last bytes, then the end message, then the next run."""
        if not has_ended(record, self.place.incarnation):
            return []
        if not self._end_sent:
            rest, over = ([], True) if self._is_whole(record) else await self._rest(record)
            if not over:
                return rest
            self._end_sent = True
            if record.incarnation == self.place.incarnation or not self._following:
                exit = self._consoles.runs.exit_of(record, self.place.incarnation)
                end = end_shape(record, self.place.incarnation, exit)
                return [*rest, message("end", self._shown(end), self.place)]
            if rest:
                return rest
        if not self._following or record.incarnation <= self.place.incarnation:
            return []
        return await self._next_run(record)

    async def _rest(self, record: InstanceRecord) -> tuple[list[ConsoleMessage], bool]:
        """A piece of what the node still has of an ended run, and whether that was all. A gap is reported
        when it is unavailable."""
        if never_ran(record, self.place.incarnation):
            return [], True
        known = known_end(record, self.place.incarnation)
        try:
            span = await self._ask(record)
        except CorralError as error:
            if self._waits(error):
                return [], False
            if known is not None and known <= self.place.offset:
                return [], True
            return [self._pass_over(known, error)], True
        if not span.pieces:
            lost = max(span.end_offset, known or 0)
            why = span.gaps[-1].reason if span.gaps else "not kept any more"
            return ([self._lost(lost, why)] if lost > self.place.offset else []), True
        last = span.next_offset >= span.end_offset
        fresh = self._advance(self._encoded(span, final=last))
        return fresh, (last and self.place.offset >= span.next_offset) or not fresh

    async def _next_run(self, record: InstanceRecord) -> list[ConsoleMessage]:
        """The next run, and a gap message about runs in between that cannot be read."""
        if self._until is not None and self._until <= ConsolePlace(
            Incarnation(self.place.incarnation + 1), 0
        ):
            self.place = self._until
            return []
        late = False
        try:
            step = await self._consoles.runs.following(record, self.place.incarnation)
            self._waiting_since = None
            why = "not kept any more, or never begun"
        except CorralError as error:
            if self._waits(error):
                return []
            step, why = self._consoles.runs.held(record, self.place.incarnation), error.message
            if step.passed_over and isinstance(error, Retryable):
                late = self._remember_late(ConsolePlace(step.incarnation, 0))
        return self._step(step, why, late=late)

    def _step(self, step: NextRun, why: str, *, late: bool) -> list[ConsoleMessage]:
        before, self.place = self.place, ConsolePlace(step.incarnation, 0)
        self._end_sent, self._tail_sent, self._listed_end = False, "", step.end_offset
        run = message("run", RunShape(incarnation=step.incarnation, node=step.node), self.place)
        if not step.passed_over:
            return [run]
        return [gap_message(before, before.offset, f"{step.passed_over}: {why}", late=late), run]

    # messages

    def _advance(self, encoded: EncodedSpan) -> list[ConsoleMessage]:
        """Move the position behind a span; a tail that was sent already is not sent again."""
        if encoded.place == self.place and encoded.tail == self._tail_sent:
            return []
        self._tail_sent = encoded.tail
        self.place = encoded.place
        return list(encoded.messages)

    def _encoded(self, span: ConsoleSpan, *, final: bool, lines: int | None = None) -> EncodedSpan:
        if self._blocks:
            return encoded_texts(span, self.place, final=final)
        return encoded_page(span, self.place, final=final, lines=self._lines() if lines is None else lines)

    def _lost(self, to: int, reason: str, *, late: bool = False) -> ConsoleMessage:
        gap = gap_message(self.place, to, reason, late=late)
        self.place = gap.place
        return gap
