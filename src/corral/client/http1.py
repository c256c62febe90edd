"""HTTP/1.1 answers, read from bytes as they come: no sockets, no waiting, everything bounded. One parser for all connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MAX_HEAD: Final = 64 * 1024
"""Bytes of status line and headers together, and of trailers."""
MAX_HEADERS: Final = 200
_MAX_CHUNK_LINE: Final = 1024
_MAX_INTERIM: Final = 8
"""Answers of status 1xx before the real one."""
_NO_BODY: Final = frozenset({204, 304})


class AnswerFault(Exception):
    """What came is no HTTP answer, is larger than allowed, or was cut."""


class Head:
    """Status and headers of an answer; names in small letters."""

    __slots__ = ("headers", "keeps", "status")

    def __init__(self, *, status: int, headers: Mapping[str, str], keeps: bool) -> None:
        self.status = status
        self.headers = headers
        self.keeps = keeps
        """The connection may be used again after the body."""

    def get(self, name: str) -> str:
        """The header, empty when it is missing."""
        return self.headers.get(name.lower(), "")


class AnswerParser:
    """Reads one answer. `feed` what comes, `end` when the connection ends; `head` is there once it is whole, `take` gives
    what came of the body since. Raises `AnswerFault`."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.complete = False
        self.remaining: int | None = None
        """Bytes of the body that have not come yet; None: unknown."""
        self._raw = bytearray()
        self._body = bytearray()
        self._chunked = False
        self._in_trailers = False
        self._chunk_left = 0
        self._trailer_bytes = 0
        self._interim = 0

    @property
    def reusable(self) -> bool:
        """Whether the answer is over and the connection stands."""
        return self.complete and self.head is not None and self.head.keeps and not self._raw

    @property
    def buffered(self) -> int:
        """Bytes of the body that wait to be taken."""
        return len(self._body)

    def take(self) -> bytes:
        taken = bytes(self._body)
        self._body.clear()
        return taken

    def feed(self, data: bytes) -> None:
        self._raw += data
        while self.head is None:
            if not self._read_head():
                return
        if not self.complete:
            self._read_body()

    def end(self) -> None:
        """Nothing more comes. A body without a length is whole now; anything else was cut."""
        if self.complete:
            return
        if self.head is None:
            raise AnswerFault("the connection was closed before an answer came")
        if self._chunked or self.remaining is not None:
            missing = f"; {self.remaining} bytes are missing" if self.remaining else ""
            raise AnswerFault(f"the answer was cut{missing}")
        self.complete = True

    def _read_head(self) -> bool:
        end = self._raw.find(b"\r\n\r\n")
        if end < 0:
            if len(self._raw) > MAX_HEAD:
                raise AnswerFault(f"the head of the answer has more than {MAX_HEAD} bytes")
            if self._raw and not b"HTTP/1.".startswith(self._raw[:7]):
                raise AnswerFault("no HTTP answer")
            return False
        if end > MAX_HEAD:
            raise AnswerFault(f"the head of the answer has more than {MAX_HEAD} bytes")
        lines = self._raw[:end].decode("latin-1").split("\r\n")
        del self._raw[: end + 4]
        version, status = _status(lines[0])
        if status == 101 or self._interim > _MAX_INTERIM:
            raise AnswerFault("an answer that nobody asked for")
        if status < 200:
            self._interim += 1
            return True
        self._begin(version, status, _headers(lines[1:]))
        return True

    def _begin(self, version: str, status: int, headers: dict[str, str]) -> None:
        options = {word.strip().lower() for word in headers.get("connection", "").split(",")}
        keeps = "close" not in options if version == "HTTP/1.1" else "keep-alive" in options
        coding, length = headers.get("transfer-encoding", "").lower(), headers.get("content-length")
        if status in _NO_BODY:
            self.complete, self.remaining = True, 0
        elif coding:
            if coding != "chunked" or length is not None:
                raise AnswerFault("an answer of a length that cannot be told")
            self._chunked = True
        elif length is not None:
            self.remaining = _length(length)
            self.complete = self.remaining == 0
        else:
            keeps = False
        self.head = Head(status=status, headers=headers, keeps=keeps)

    def _read_body(self) -> None:
        if self._chunked:
            while self._read_chunk():
                pass
            return
        if self.remaining is None:
            self._body += self._raw
            self._raw.clear()
            return
        piece = self._raw[: self.remaining]
        del self._raw[: self.remaining]
        self._body += piece
        self.remaining -= len(piece)
        self.complete = self.remaining == 0

    def _read_chunk(self) -> bool:
        """One step through chunks; False: more bytes are needed, or there are none left."""
        if self._chunk_left > 2:
            piece = self._raw[: self._chunk_left - 2]
            if not piece:
                return False
            del self._raw[: len(piece)]
            self._body += piece
            self._chunk_left -= len(piece)
            return True
        if self._chunk_left:
            if len(self._raw) < 2:
                return False
            if self._raw[:2] != b"\r\n":
                raise AnswerFault("a chunk that does not end where it says")
            del self._raw[:2]
            self._chunk_left = 0
            return True
        line = self._line()
        if line is None:
            return False
        if self._in_trailers:
            self._trailer_bytes += len(line) + 2
            if self._trailer_bytes > MAX_HEAD:
                raise AnswerFault("the trailers of the answer are too long")
            self.complete = not line
            return not self.complete
        size = _chunk_size(line)
        self._in_trailers = size == 0
        self._chunk_left = size + 2 if size else 0
        return True

    def _line(self) -> bytes | None:
        end = self._raw.find(b"\r\n")
        if end < 0 or end > _MAX_CHUNK_LINE:
            if len(self._raw) > _MAX_CHUNK_LINE:
                raise AnswerFault("a line between chunks is too long")
            return None
        line = bytes(self._raw[:end])
        del self._raw[: end + 2]
        return line


def _status(line: str) -> tuple[str, int]:
    version, _, rest = line.partition(" ")
    code = rest[:3]
    if version not in ("HTTP/1.1", "HTTP/1.0") or not (
        code.isascii() and code.isdecimal() and len(code) == 3
    ):
        raise AnswerFault("no HTTP answer")
    if not 100 <= int(code) <= 599 or rest[3:4] not in ("", " "):
        raise AnswerFault("an answer without a status")
    return version, int(code)


def _headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > MAX_HEADERS:
        raise AnswerFault(f"the answer has more than {MAX_HEADERS} headers")
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        key, value = name.lower(), value.strip(" \t")
        if (
            not colon
            or not name
            or name != name.strip()
            or not name.isascii()
            or "\0" in value
            or "\n" in value
        ):
            raise AnswerFault("a line in the head of the answer is no header")
        if key == "content-length" and found.get(key, value) != value:
            raise AnswerFault("an answer of two lengths")
        found[key] = value if key not in found or key == "content-length" else f"{found[key]}, {value}"
    return found


def _length(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise AnswerFault("an answer of a length that is no number")
    return int(text)


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip(b" \t")
    if not digits or len(digits) > 15 or any(each not in b"0123456789abcdefABCDEF" for each in digits):
        raise AnswerFault("a chunk without a size")
    return int(digits, 16)
