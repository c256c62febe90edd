"""Compression of answers: gzip, for clients that accept it, of those answers alone that are marked as compressible.

The length of compressed text depends on how alike its parts are. Where an answer holds a secret beside words that somebody else
has chosen, whoever sees lengths on the wire can guess the secret piece by piece (BREACH). So nothing is compressed
unless it is marked, and only what holds no secrets and no free text of programs is: summaries, and the description of the API.
"""

from __future__ import annotations

import gzip
import re
from typing import Final

import msgspec

from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.messages.responses import ApiResponse
from corral.system.threads import to_end

SMALLEST: Final = 2048
"""Fewer bytes are sent as they are: they fit into a packet or two anyway."""
ON_LOOP: Final = 16 * 1024
"""More bytes are compressed on a thread."""
AT_ONCE: Final = 2
"""So many answers are compressed on threads at once; others are sent as they are meanwhile."""
_LEVEL: Final = 3
_LONGEST_HEADER: Final = 1000
_NAMES: Final = frozenset({"gzip", "x-gzip"})
_WEIGHT: Final = re.compile(r"q=([01](?:\.[0-9]{0,3})?)", re.ASCII)
_VARY: Final = (b"vary", b"Accept-Encoding")
_ETAG: Final = b"etag"


def accepts_gzip(header: str | None) -> bool:
    """Whether `Accept-Encoding` allows gzip (RFC 9110 §12.5.3); what cannot be read allows nothing."""
    others = False
    for part in (header or "")[:_LONGEST_HEADER].lower().split(","):
        coding, _, parameter = (each.strip() for each in part.partition(";"))
        weight = _WEIGHT.fullmatch(parameter) if parameter else None
        wanted = not parameter or (weight is not None and float(weight[1]) > 0)
        if coding in _NAMES:
            return wanted
        others = wanted if coding == "*" else others
    return others


class Compression:
    """Compresses answers, a few at once: how much CPU that takes is bounded, and nobody waits for a turn."""

    def __init__(self) -> None:
        self._busy = 0

    async def applied(self, request: HttpRequest, answer: ApiResponse) -> ApiResponse:
        """The answer as it is sent. One with an entity tag is left alone: the tag names these very bytes."""
        if not answer.compressible or any(name == _ETAG for name, _ in answer.headers):
            return answer
        answer = msgspec.structs.replace(answer, headers=(*answer.headers, _VARY))
        if len(answer.body) < SMALLEST or not accepts_gzip(request.header(b"accept-encoding")):
            return answer
        body = await self._compressed(answer.body)
        if body is None or len(body) >= len(answer.body):
            return answer
        encoded = (*answer.headers, (b"content-encoding", b"gzip"))
        return msgspec.structs.replace(answer, body=body, headers=encoded)

    async def _compressed(self, body: bytes) -> bytes | None:
        """None while others are compressed."""
        if len(body) <= ON_LOOP:
            return _gzip(body)
        if self._busy >= AT_ONCE:
            return None
        self._busy += 1
        try:
            return await to_end(_gzip, body)  # its place is taken as long as the thread works
        finally:
            self._busy -= 1


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, compresslevel=_LEVEL, mtime=0)
