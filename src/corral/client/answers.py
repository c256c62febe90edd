"""Answers as values: heads, decoded bodies, refusals. Knows nothing of connections."""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec

from corral.client.event_frames import StreamFrame
from corral.client.failures import invalid, refusal, unpacked
from corral.client.http1 import Head
from corral.client.requests import GZIP, Request

T = TypeVar("T")
MAX_ANSWER: Final = 64 * 1024 * 1024
"""Bytes of an answer that is decoded, compressed or not."""
MAX_REFUSAL: Final = 4 * 1024 * 1024


class AnswerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer says beside its body."""

    status: int
    request_id: str
    """Its id in the log of the controller."""
    cursor: str
    """The position in the event log that a read reflects: `events.stream(after=…)` misses nothing. Empty: it has none."""
    etag: str
    """Of the resource, quoted, as `if_match` takes it; empty: none."""
    replayed: bool
    """The idempotency key was used before: this is the answer of that time."""


def answer_info(head: Head) -> AnswerInfo:
    return AnswerInfo(
        status=head.status,
        request_id=head.get("x-request-id"),
        cursor=head.get("corral-cursor"),
        etag=head.get("etag"),
        replayed=head.get("idempotency-replayed") == "true",
    )


_LAST: Final[contextvars.ContextVar[tuple[object, AnswerInfo] | None]] = contextvars.ContextVar(
    "corral.client.last_answer", default=None
)


def remember(client: object, head: Head) -> None:
    """Note the head of an answer, for the thread or task that called."""
    _LAST.set((client, answer_info(head)))


def remembered(client: object) -> AnswerInfo | None:
    """The last one of this client in this thread or task."""
    found = _LAST.get()
    return found[1] if found is not None and found[0] is client else None


def decoded(url: str, request: Request[T], head: Head, content: bytes) -> T:
    """The body as the type of the request; raises the refusal, or `InvalidAnswer` for what is not of the API."""
    if head.get("content-encoding") == GZIP:
        content = unpacked(url, content, limit=MAX_ANSWER)
    if not 200 <= head.status < 300:
        raise refusal(url, head, content, changes=not request.reads)
    if request.text:
        return content.decode("utf-8", "replace")  # type: ignore[return-value]  # T is str then
    if request.answer is None:
        return None  # type: ignore[return-value]  # T is None then
    try:
        value: T = _decoder(request.answer).decode(content)
        return value
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        what = f"status {head.status}, and a body that this client cannot read: {error}"
        raise invalid(url, what, in_doubt=not request.reads) from error


def check_opened(url: str, head: Head, *, kind: str) -> None:
    """Refuse an answer of success that is not of this media type; an empty `kind` takes all."""
    if not head.get("content-type").startswith(kind):
        raise invalid(url, f"no {kind}, but {head.get('content-type')[:100] or 'nothing'}")


class StreamMessage(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """One message of a stream."""

    id: str
    """The position after it, as `Last-Event-ID` has it; empty: it does not move it."""
    event: str
    """The kind of message."""
    data: T


class UnknownData(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a kind that this client does not know: the controller is newer."""

    event: str
    data: Any


def message_of(url: str, kinds: Mapping[str, Any], frame: StreamFrame) -> StreamMessage[Any]:
    """A frame with its data as the type of its kind, or as `UnknownData`."""
    kind = kinds.get(frame.event)
    try:
        if kind is None:
            data: Any = UnknownData(event=frame.event, data=msgspec.json.decode(frame.data))
        else:
            data = _decoder(kind).decode(frame.data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise invalid(url, f"a message '{frame.event[:60]}' that this client cannot read: {error}") from error
    return StreamMessage(id=frame.id or "", event=frame.event, data=data)


@functools.cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
