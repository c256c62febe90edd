"""The newest events, encoded, in a ring that is bounded by count and by bytes."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
import structlog

from corral.controller.events.frames import EventResource, framed
from corral.domain.event_subjects import group_of, node_of
from corral.domain.events import Cursor, Event, EventType, without_data
from corral.domain.sensitive_fields import redacted_event
from corral.system.bounded_ring import BoundedRing

_CHUNK_BYTES: Final = 65536
_KEPT_CHUNKS: Final = 16
_KEPT_FRAMES: Final = 2048
_KEPT_FRAME_BYTES: Final = 4 * 1024 * 1024
"""Of frames with resources; all are made anew beyond that."""
_log = structlog.get_logger("corral.controller.events")


class ResourceSource(Protocol):
    """The resources that events are about. Readers with equal sources share frames, so it is hashable."""

    def of(self, event: Event) -> EventResource | None:
        """The resource of an event as it is now; None: the event is about none."""


class EventSelection(msgspec.Struct, frozen=True, kw_only=True):
    """A reader's filter; None selects everything. `redacted`: sensitive data is hidden."""

    types: frozenset[EventType] | None = None
    subject: str | None = None
    group: str | None = None
    """Only events about this group, or whose data names it."""
    node: str | None = None
    """Only events about this node, or whose data names it."""
    unseen: frozenset[EventType] = frozenset()
    """Types that the reader may not have, whatever it requests."""
    redacted: bool = False
    covers: Callable[[Event], bool] | None = None
    """Whether an event lies within the scope of the reader; None: all do."""
    resources: ResourceSource | None = None
    """Adds to each event the resource that it is about, as it is shown to the reader; None: frames have none."""
    reads: Callable[[Event, EventResource], bool] | None = None
    """Whether the reader may read this resource; None: each one."""

    @property
    def of_modules(self) -> bool:
        """Whether events of modules may pass: only among those the log may have gaps."""
        included = self.types is None or EventType.MODULE_EVENT in self.types
        return included and EventType.MODULE_EVENT not in self.unseen

    @property
    def everything(self) -> bool:
        return self.all_seen and not self.unseen and self.covers is None

    @property
    def all_seen(self) -> bool:
        """Whether nothing was filtered out that the reader may have."""
        return self.types is None and self.subject is None and self.group is None and self.node is None

    def accepts(self, event: Event) -> bool:
        return (
            (self.types is None or event.type in self.types)
            and (self.subject is None or event.subject == self.subject)
            and (self.group is None or group_of(event) == self.group)
            and (self.node is None or node_of(event) == self.node)
            and event.type not in self.unseen
            and (self.covers is None or self.covers(event))
        )

    def shown(self, event: Event) -> Event:
        """The event as this reader may see it; without its data, if it is unknown which of it is sensitive."""
        if not self.redacted:
            return event
        try:
            return redacted_event(event)
        except Exception as error:
            _log.error(
                "event_read.failed", cursor=str(event.cursor), type=event.type, reason=repr(error)[:500]
            )
            return without_data(event, "the data of this event cannot be redacted")

    def resource_of(self, event: Event) -> EventResource | None:
        """The resource of an event, whether or not this reader may read it; None: it has none, or cannot be shown."""
        if self.resources is None:
            return None
        try:
            return self.resources.of(event)
        except Exception as error:
            _log.error(
                "event_read.failed", cursor=str(event.cursor), type=event.type, reason=repr(error)[:500]
            )
            return None

    def frame(self, event: Event) -> bytes:
        """The frame of an event as this reader may see it, with its resource."""
        resource = self.resource_of(event)
        readable = resource is None or self.reads is None or self.reads(event, resource)
        return framed(self.shown(event), resource if readable else None)[1]


class EventChunk(msgspec.Struct, frozen=True):
    """Frames of a part of the log, and the cursor of its last event, selected or not."""

    body: bytes
    cursor: Cursor


class _Slot(msgspec.Struct, frozen=True, gc=False):  # thousands of them live long and hold no cycle
    event: Event
    frame: bytes


class _ResourceFrame(msgspec.Struct, frozen=True):
    """A frame with a resource; None: the event has none, and the frame neither."""

    resource: EventResource | None
    frame: bytes


class EventRing:
    """Holds the events after `floor` up to `head`. Sequences have no gaps here, so a reader between the two
    finds everything it has not seen."""

    def __init__(self, *, head: Cursor, capacity: int, capacity_bytes: int) -> None:
        self.head = head
        self.floor = head
        self._slots: BoundedRing[_Slot] = BoundedRing(
            capacity=capacity, capacity_bytes=capacity_bytes, floor=head.sequence
        )
        self._chunks: dict[tuple[int, EventSelection], EventChunk] = {}
        self._resource_frames: dict[tuple[int, ResourceSource, bool], _ResourceFrame] = {}
        """By sequence, source and redaction: made once for all readers, however they filter."""
        self._resource_bytes = 0

    @property
    def bytes(self) -> int:
        return self._slots.bytes

    def __len__(self) -> int:
        return len(self._slots)

    def append(self, event: Event) -> None:
        """Append the next event, dropping the oldest ones that no longer fit. Never raises: one that cannot
        be encoded, or is too large, is kept without its data."""
        event, frame = framed(event)
        if event.cursor.sequence != self.head.sequence + 1:
            # A gap would make cursors wrong: drop the earlier events, readers page from the log.
            self.begin_after(Cursor(event.cursor.epoch, event.cursor.sequence - 1))
        dropped = self._slots.append(_Slot(event, frame), len(frame))
        if dropped is not None:
            self.floor = dropped.event.cursor
        self.head = event.cursor
        self._chunks.clear()

    def begin_after(self, floor: Cursor) -> None:
        """Drop all events, and continue from this cursor."""
        self._chunks.clear()
        self._drop_resource_frames()
        self._slots.begin_after(floor.sequence)
        self.floor = self.head = floor

    def reaches(self, sequence: int) -> bool:
        """Whether everything after this sequence is here."""
        return self.floor.sequence <= sequence <= self.head.sequence

    def knows(self, cursor: Cursor) -> bool:
        """Whether the event of this very cursor is here: then the cursor is of this log."""
        if not self.floor.sequence < cursor.sequence <= self.head.sequence:
            return False
        return self._slots[cursor.sequence].event.cursor == cursor

    def events(self, after: int, selection: EventSelection, *, limit: int) -> tuple[list[Event], Cursor]:
        """Up to `limit` events after a sequence the ring reaches, and the sequence up to which it was read."""
        found: list[Event] = []
        for sequence in range(after + 1, self.head.sequence + 1):
            event = self._slots[sequence].event
            if selection.accepts(event):
                found.append(event)
                if len(found) == limit:
                    return found, event.cursor
        return found, self.head

    def chunk(self, after: int, selection: EventSelection) -> EventChunk:
        """The frames after a sequence the ring reaches, about 64 KiB at most.

        Readers at the same place share one chunk: of hundreds of readers nearly all are.
        """
        key = (after, selection)
        known = self._chunks.get(key)
        if known is None:
            known = self._join(after, selection)
            if len(self._chunks) < _KEPT_CHUNKS:
                self._chunks[key] = known
        return known

    def _join(self, after: int, selection: EventSelection) -> EventChunk:
        frames: list[bytes] = []
        size = 0
        everything = selection.everything
        for sequence in range(after + 1, self.head.sequence + 1):
            slot = self._slots[sequence]
            if everything or selection.accepts(slot.event):
                frames.append(self._frame(slot, selection))
                size += len(frames[-1])
                if size >= _CHUNK_BYTES:
                    return EventChunk(b"".join(frames), slot.event.cursor)
        return EventChunk(b"".join(frames), self.head)

    def _frame(self, slot: _Slot, selection: EventSelection) -> builtins.bytes:
        if selection.resources is not None:
            found = self._resource_frame(slot, selection, selection.resources)
            resource = found.resource
            if resource is None or selection.reads is None or selection.reads(slot.event, resource):
                return found.frame
        shown = selection.shown(slot.event)
        return slot.frame if shown is slot.event else framed(shown)[1]

    def _resource_frame(
        self, slot: _Slot, selection: EventSelection, source: ResourceSource
    ) -> _ResourceFrame:
        key = (slot.event.cursor.sequence, source, selection.redacted)
        known = self._resource_frames.get(key)
        if known is None:
            resource = selection.resource_of(slot.event)
            known = _ResourceFrame(resource, framed(selection.shown(slot.event), resource)[1])
            self._resource_bytes += len(known.frame)
            if len(self._resource_frames) >= _KEPT_FRAMES or self._resource_bytes > _KEPT_FRAME_BYTES:
                self._drop_resource_frames()
                self._resource_bytes = len(known.frame)
            self._resource_frames[key] = known
        return known

    def _drop_resource_frames(self) -> None:
        self._resource_frames.clear()
        self._resource_bytes = 0
