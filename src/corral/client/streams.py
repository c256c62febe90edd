"""Streams of server-sent events: where one goes on after a cut, when, and what its frames mean. Pure: the clients read and wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

from corral.client.answers import message_of
from corral.client.errors import ApiError, ClientError, InvalidAnswer, RateLimited
from corral.client.event_frames import FrameParser, FrameTooLarge, StreamFrame
from corral.client.failures import invalid
from corral.client.requests import Request
from corral.client.retries import backoff

M = TypeVar("M")

MEDIA: Final = "text/event-stream"
SILENCE_SECONDS: Final = 60.0
"""Longer than any heartbeat: a stream this quiet is dead."""
GIVE_UP_SECONDS: Final = 300.0
"""So long a broken stream tries to connect again."""
_LONGEST_PAUSE: Final = 5.0
_ONLY_AT_FIRST: Final = ("after", "tail")
"""Where to begin; once something was read, the last id is more exact."""
_ONE_RUN: Final = "incarnation"
"""A parameter with which a console's stream stays with one run: it is over after its `end`."""
_END: Final = "end"


class StreamOrder(Generic[M]):
    """A stream that shall be followed. `kinds` has the type of the data by the kind of message; `bare`: the data themselves
    are yielded, as they have id and type."""

    __slots__ = ("bare", "kinds", "last_id", "path", "query")

    def __init__(
        self,
        path: str,
        kinds: Mapping[str, Any],
        *,
        query: Mapping[str, Any],
        last_id: str | None = None,
        bare: bool = False,
    ) -> None:
        self.path = path
        self.kinds = kinds
        self.query = query
        self.last_id = last_id
        self.bare = bare


class StreamState(Generic[M]):
    """Position and progress of one followed stream."""

    def __init__(
        self, url: str, order: StreamOrder[M], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._url = url
        self._order = order
        self._clock = clock
        self._query = dict(order.query)
        self._parser = FrameParser()
        self._frames: deque[StreamFrame] = deque()
        self._fruitless = 0
        self._lost_at: float | None = None
        self._stays = order.query.get(_ONE_RUN) is not None
        self.over = False
        """Nothing more will come."""
        self.connected = False
        """Whether it was ever open."""
        self.position = order.last_id

    def request(self) -> Request[None]:
        """Opens the stream where it was left."""
        headers = {"Accept": MEDIA, "Cache-Control": "no-store", "Last-Event-ID": self.position}
        return Request("GET", self._order.path, query=self._query, headers=headers)

    def opened(self) -> None:
        self.connected = True
        self._parser = FrameParser()

    def feed(self, piece: bytes) -> None:
        try:
            self._frames.extend(self._parser.feed(piece))
            self._lost_at = None
        except FrameTooLarge as error:
            raise invalid(self._url, str(error)) from error

    def next_message(self) -> M | None:
        """The next whole message that came; None: read on."""
        while self._frames and not self.over:
            frame = self._frames.popleft()
            self._fruitless = 0
            if frame.id is not None:
                self.position = frame.id
                for name in _ONLY_AT_FIRST:
                    self._query.pop(name, None)
            if not frame.data:
                continue
            self.over = self._stays and frame.event == _END
            message: Any = message_of(self._url, self._order.kinds, frame)
            bare: M = message.data if self._order.bare else message
            return bare
        return None

    def ended(self) -> float:
        """The stream was closed in order: how long to wait before it is opened again."""
        return self._pause()

    def lost(self, failure: ClientError) -> float:
        """It broke: how long to wait. Raises the failure when it is refused, or was out of reach for too long."""
        if not self.connected or (isinstance(failure, InvalidAnswer) and not failure.passing):
            raise failure
        if isinstance(failure, ApiError) and failure.status < 500 and not isinstance(failure, RateLimited):
            raise failure
        now = self._clock()
        self._lost_at = now if self._lost_at is None else self._lost_at
        if now - self._lost_at > GIVE_UP_SECONDS:
            raise failure
        pause = self._pause()
        asked = (failure.retry_after or 0.0) if isinstance(failure, ApiError) else 0.0
        if asked > GIVE_UP_SECONDS:
            raise failure
        return max(pause, asked)

    def _pause(self) -> float:
        self._fruitless += 1
        return backoff(self._fruitless - 1, longest=_LONGEST_PAUSE)
