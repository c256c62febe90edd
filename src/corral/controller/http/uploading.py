"""Taking a body in as it comes: never whole in memory, never faster than it is put away."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator
from typing import Final

from corral.controller.http.request import BodyPace, Request
from corral.errors import Code, Rejected

NOTHING_STORED: Final = "nothing was stored"


class Incoming:
    """A body as pieces. What is not asked for waits in the caller's socket."""

    def __init__(
        self,
        request: Request,
        *,
        limit: int,
        pace: BodyPace,
        digested: bool,
        head_start_seconds: float = 60.0,
    ) -> None:
        self._request = request
        self._limit = limit
        self._pace = pace
        self._head_start = head_start_seconds
        self._digest = hashlib.sha256() if digested else None
        self._more = True

    @property
    def digest(self) -> bytes:
        """Of all that came, where it was asked for."""
        return self._digest.digest() if self._digest is not None else b""

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """BODY_TOO_LARGE, BAD_REQUEST when it comes too slowly, `ClientGone`."""
        while self._more:
            piece = await self._next()
            if piece:
                yield piece

    async def drain(self) -> None:
        """Read to the end what the handler did not need."""
        async for _ in self.pieces():
            pass

    async def _next(self) -> bytes:
        pace = self._pace
        piece, self._more = await self._request.next_piece(pace, limit=self._limit)
        if pace.waited > self._head_start + pace.size / pace.SLOWEST:
            raise Rejected(
                Code.BAD_REQUEST,
                f"the body was given up: it comes with less than {pace.SLOWEST} bytes a second",
                hint="send it again",
            )
        if self._digest is not None:
            self._digest.update(piece)
        return piece
