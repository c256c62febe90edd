"""Calls that block: whole answers, downloads, streams and pages, with the repetitions that are allowed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, Generic, Self, TypeVar

from corral.client.answers import (
    MAX_ANSWER,
    MAX_REFUSAL,
    AnswerInfo,
    answer_info,
    check_opened,
    decoded,
    remember,
    remembered,
)
from corral.client.errors import ClientError
from corral.client.failures import invalid, refusal
from corral.client.outgoing import Outgoing
from corral.client.pages import PageOf
from corral.client.part_files import part_file
from corral.client.requests import Request
from corral.client.retries import Attempts, Retry
from corral.client.streams import MEDIA, SILENCE_SECONDS, StreamOrder, StreamState
from corral.client.sync_transport import SyncAnswer, SyncTransport

T = TypeVar("T")
M = TypeVar("M")


class SyncCalls:
    """Sends the requests that the generated methods make."""

    def __init__(self, transport: SyncTransport, *, timeout: float, retry: Retry) -> None:
        self.transport = transport
        self.url = transport.address.url
        self._timeout = timeout
        self._retry = retry

    def _outgoing(self, request: Request[Any]) -> Outgoing:
        return request.outgoing(far=not self.transport.address.is_local)

    @property
    def last_answer(self) -> AnswerInfo | None:
        return remembered(self)

    def call(self, request: Request[T]) -> T:
        """The decoded answer."""
        attempts = Attempts(self._retry, repeatable=request.repeatable)
        while True:
            try:
                return self._once(request)
            except ClientError as failure:
                pause = attempts.pause_after(failure)
            time.sleep(pause)

    def _once(self, request: Request[T]) -> T:
        seconds = self._timeout + request.waits
        answer = self.transport.open(self._outgoing(request), seconds=seconds)
        try:
            content = answer.whole(limit=MAX_ANSWER, seconds=seconds)
        finally:
            answer.close()
        remember(self, answer.head)
        return decoded(self.url, request, answer.head, content)

    def opened(self, request: Request[Any], *, kind: str = "") -> SyncAnswer:
        """An answer whose body the caller reads, of this media type."""
        attempts = Attempts(self._retry, repeatable=request.repeatable)
        while True:
            try:
                return self.opened_once(request, kind=kind)
            except ClientError as failure:
                pause = attempts.pause_after(failure)
            time.sleep(pause)

    def opened_once(self, request: Request[Any], *, kind: str = "") -> SyncAnswer:
        answer = self.transport.open(self._outgoing(request), seconds=self._timeout + request.waits)
        remember(self, answer.head)
        try:
            if not 200 <= answer.head.status < 300 and answer.head.status != 304:
                content = answer.whole(limit=MAX_REFUSAL, seconds=self._timeout)
                raise refusal(self.url, answer.head, content, changes=not request.reads)
            check_opened(self.url, answer.head, kind=kind)
        except BaseException:
            answer.close()
            raise
        return answer

    def download(self, request: Request[None]) -> Download:
        return Download(self, request)

    def stream(self, order: StreamOrder[M]) -> EventStream[M]:
        return EventStream(self, order)

    def pages(self, read: Callable[[Any], PageOf[T]]) -> Iterator[T]:
        """The items of a list, page after page, each read when its first item is asked for."""
        position: Any = None
        while True:
            page = read(position)
            yield from page.items
            if not page.next or page.next == position:
                return
            position = page.next


class Download:
    """Bytes of any length. Opened by `with`, or by the first read; memory stays flat unless `read` is used.

    ```python
    with corral.templates.export("lobby") as download:
        for piece in download:
            ...
    ```
    """

    def __init__(self, calls: SyncCalls, request: Request[None]) -> None:
        self._calls = calls
        self._request = request
        self._answer: SyncAnswer | None = None
        self._read = False

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        if self._read:
            raise ValueError("this download was read already; ask for it again")
        self._read = True
        answer = self._opened()
        while piece := answer.piece(SILENCE_SECONDS):
            yield piece
        self.close()

    @property
    def info(self) -> AnswerInfo:
        """The head of the answer."""
        return answer_info(self._opened().head)

    @property
    def length(self) -> int | None:
        """Bytes in all; None: not known before."""
        text = self._opened().head.get("content-length")
        return int(text) if text else None

    @property
    def content_type(self) -> str:
        return self._opened().head.get("content-type")

    def read(self, *, limit: int = MAX_ANSWER) -> bytes:
        """All of it in memory; `InvalidAnswer` when it has more than `limit` bytes."""
        found = bytearray()
        for piece in self:
            found += piece
            if len(found) > limit:
                self.close()
                raise invalid(self._calls.url, f"a download of more than {limit} bytes")
        return bytes(found)

    def save(self, path: str | os.PathLike[str]) -> int:
        """Write it to a file, which gets its name when it is whole; the number of bytes."""
        self._opened()
        with part_file(path) as file:
            return sum(file.write(piece) for piece in self)

    def close(self) -> None:
        if self._answer is not None:
            self._answer.close()

    def _opened(self) -> SyncAnswer:
        if self._answer is None:
            self._answer = self._calls.opened(self._request)
        return self._answer


class EventStream(Generic[M]):
    """Messages as they come. Opened by `with`, or by the first message; after a cut it is opened again where it broke off."""

    def __init__(self, calls: SyncCalls, order: StreamOrder[M]) -> None:
        self._calls = calls
        self._state = StreamState(calls.url, order)
        self._answer: SyncAnswer | None = None
        self._closed = False

    @property
    def cursor(self) -> str | None:
        """The position after the last message: `last_event_id` of a stream that goes on from here."""
        return self._state.position

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> M:
        while not self._closed:
            if (message := self._state.next_message()) is not None:
                return message
            if self._state.over:
                break
            try:
                pause = self._read()
            except ClientError as failure:
                self._drop()
                pause = self._state.lost(failure)
            if pause:
                time.sleep(pause)
        self.close()
        raise StopIteration

    def close(self) -> None:
        self._closed = True
        self._drop()

    def _read(self) -> float:
        """Read one piece; seconds to wait before the next."""
        answer = self._answer or self._open()
        if piece := answer.piece(SILENCE_SECONDS):
            self._state.feed(piece)
            return 0.0
        self._drop()
        return self._state.ended()

    def _open(self) -> SyncAnswer:
        open_stream = self._calls.opened_once if self._state.connected else self._calls.opened
        self._answer = open_stream(self._state.request(), kind=MEDIA)
        self._state.opened()
        return self._answer

    def _drop(self) -> None:
        if self._answer is not None:
            self._answer.close()
            self._answer = None
