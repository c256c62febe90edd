"""Messages of a console stream, and the position of its reader after each."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from corral.controller.consoles.pages import ConsoleGapShape, ConsolePage, page_of, texts_of
from corral.controller.consoles.span import ConsoleSpan
from corral.domain.groups.instance_records import ExitRecord, InstanceRecord
from corral.domain.ids import MAX_COUNTER, Incarnation
from corral.errors import Code, Rejected

LINES: Final = 4096
"""Most lines of a page of a stream."""
_UNNAMED: Final = ("page", "gap", "text")
encode: Final = msgspec.json.Encoder().encode
_PLACE: Final = re.compile(r"(?:(0|[1-9][0-9]{0,18})-)?(0|[1-9][0-9]{0,18})")


class ConsolePlace(msgspec.Struct, frozen=True, order=True):
    """The position of a reader; as text `INCARNATION-OFFSET`."""

    incarnation: Incarnation
    offset: int

    def __str__(self) -> str:
        return f"{self.incarnation}-{self.offset}"


class ConsoleMessage(msgspec.Struct):
    """A message of the stream: its name, its encoded JSON, and the position of the reader after it. Readers at the same
    position share it, and with it what is sent to each of them."""

    name: str
    data: bytes
    place: ConsolePlace
    _sse: bytes = b""
    _socket: str = ""

    def sse_frame(self) -> bytes:
        """The message as a server-sent event."""
        if not self._sse:
            self._sse = b"id: %b\nevent: %b\ndata: %b\n\n" % (
                str(self.place).encode(),
                self.name.encode(),
                self.data,
            )
        return self._sse

    @property
    def socket_bytes(self) -> int:
        """The length of the message on a WebSocket."""
        return len(self.data) + (0 if self.name in _UNNAMED else len(self.name) + len('{"":}'))

    def socket_message(self) -> str:
        """The message on a WebSocket: a page or a text as it is, anything else under its name."""
        if not self._socket:
            text = self.data.decode()
            self._socket = text if self.name in _UNNAMED else f'{{"{self.name}":{text}}}'
        return self._socket


def repeats_tail(messages: Sequence[ConsoleMessage], *, moved: bool) -> bool:
    """Whether all that these messages bring is a longer piece of a line that has no end yet."""
    return bool(messages) and not moved and messages[-1].name == "page"


class EncodedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span as messages, and the position after it; the same for all readers at one position."""

    messages: tuple[ConsoleMessage, ...]
    place: ConsolePlace
    tail: str = ""


class RunShape(msgspec.Struct, frozen=True, kw_only=True):
    """Another run of the instance begins."""

    incarnation: int
    node: str


class EndShape(msgspec.Struct, frozen=True, kw_only=True):
    """The run has ended and all of its output was sent."""

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


def message(name: str, shape: Any, place: ConsolePlace) -> ConsoleMessage:
    return ConsoleMessage(name, encode(shape), place)


def encoded_texts(span: ConsoleSpan, place: ConsolePlace, *, final: bool) -> EncodedSpan:
    """Text messages, with gap messages for missing bytes between and after them."""
    messages: list[ConsoleMessage] = []
    end = place
    for text in texts_of(span, after=place.offset, final=final):
        if text.offset > end.offset:
            messages.append(gap_message(end, text.offset, _reason(span, end.offset, text.offset)))
        end = ConsolePlace(place.incarnation, text.next_offset)
        messages.append(message("text", text, end))
    for gap in span.gaps:
        if gap.from_offset <= end.offset < gap.to_offset:
            messages.append(gap_message(end, gap.to_offset, gap.reason))
            end = messages[-1].place
    return EncodedSpan(messages=tuple(messages), place=end)


def _reason(span: ConsoleSpan, begin: int, end: int) -> str:
    reasons = (gap.reason for gap in span.gaps if gap.from_offset < end and gap.to_offset > begin)
    return next(reasons, "not kept any more")


def encoded_page(span: ConsoleSpan, place: ConsolePlace, *, final: bool, lines: int = LINES) -> EncodedSpan:
    page = page_of(span, incarnation=place.incarnation, after=place.offset, limit=lines, final=final)
    after = ConsolePlace(place.incarnation, page.next_offset)
    messages = (message("page", page, after),)
    return EncodedSpan(messages=messages, place=after, tail=page.tail.line if page.tail else "")


def gap_message(place: ConsolePlace, to: int, reason: str, *, late: bool = False) -> ConsoleMessage:
    """A page without lines: bytes from `place` on that are unavailable, or not available yet."""
    gap = ConsoleGapShape(from_offset=place.offset, to_offset=to, reason=reason, late=late)
    page = ConsolePage(
        incarnation=place.incarnation,
        items=[],
        next_offset=to,
        previous_offset=place.offset,
        gap=True,
        gaps=[gap],
        first_offset=to,
        end_offset=to,
        tail=None,
    )
    return message("gap", page, ConsolePlace(place.incarnation, to))


def end_shape(record: InstanceRecord, incarnation: Incarnation, exit: ExitRecord | None) -> EndShape:
    if record.incarnation == incarnation:
        return EndShape(
            incarnation=incarnation, state=record.state.value, ended_at=record.ended_at, exit=record.exit
        )
    state = "ENDED" if exit is None else "CRASHED" if exit.crashed else "STOPPED"
    return EndShape(incarnation=incarnation, state=state, ended_at=exit.ended_at if exit else None, exit=exit)
