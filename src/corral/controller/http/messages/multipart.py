"""Forms with files (`multipart/form-data`, RFC 7578), read as they come: nothing here waits, nothing is kept.

Every choice of a sender is bounded: the boundary, the head of a part, the number of parts, the bytes
before the first one. The reader is strict where readers differ from each other, since a form that two of
them understand differently is how a file is smuggled past one: lines end in CRLF, a boundary is alone
on its line, and the last one has to come.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.errors import Code, Rejected

MAX_BOUNDARY: Final = 70
MAX_HEAD: Final = 8 * 1024
MAX_HEADERS: Final = 16
MAX_PARTS: Final = 16
MAX_NAME: Final = 128
MAX_FILENAME: Final = 1024
_MAX_PREAMBLE: Final = 4 * 1024
_MAX_PADDING: Final = 64

_BOUNDARY: Final = re.compile(r"[0-9A-Za-z'()+_,./:=? -]*[0-9A-Za-z'()+_,./:=?-]")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_PARAMETER: Final = re.compile(
    r';[ \t]*([!#$%&\'*+.^_`|~0-9A-Za-z-]+)=(?:"((?:[^"\\]|\\.)*)"|([!#$%&\'*+.^_`|~0-9A-Za-z-]*))[ \t]*'
)
_ESCAPED: Final = re.compile(r'\\(["\\])')
_PLAIN_ENCODINGS: Final = frozenset({"7bit", "8bit", "binary"})
_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii"})


class PartBegins(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a part. `filename` is what the sender calls it: text, never a path to use."""

    name: str
    filename: str = ""
    content_type: str = ""


class PartData(msgspec.Struct, frozen=True):
    """Some of a part's content."""

    content: bytes


class PartEnds(msgspec.Struct, frozen=True):
    """The part that began last is whole."""


Piece = PartBegins | PartData | PartEnds


class _At(enum.Enum):
    PREAMBLE = enum.auto()
    BORDER = enum.auto()
    HEAD = enum.auto()
    DATA = enum.auto()
    EPILOGUE = enum.auto()


class FormReader:
    """Takes the body in pieces of any size, gives parts. BAD_REQUEST as soon as something is wrong."""

    def __init__(self, boundary: str) -> None:
        self._border = b"\r\n--" + boundary.encode("ascii")
        self._held = bytearray(b"\r\n")  # so that the first boundary looks like every other one
        self._at = _At.PREAMBLE
        self._skipped = 0
        self._parts = 0

    def feed(self, data: bytes) -> Iterator[Piece]:
        """The events of these bytes; to be used up before more are fed."""
        if self._at is _At.EPILOGUE:
            return
        self._held += data
        while True:
            before = self._at
            piece = self._step()
            if piece is not None:
                yield piece
            elif self._at is before:
                return

    def close(self) -> None:
        """The body has ended; BAD_REQUEST unless the form has, too."""
        if self._at is _At.PREAMBLE and not self._skipped and len(self._held) <= len(b"\r\n"):
            raise refused("it is empty")
        if self._at is not _At.EPILOGUE:
            raise refused("it ends before its last boundary; the upload was cut off")

    def _step(self) -> Piece | None:
        """Go on by one thing; None when more bytes are needed, or when there is no event."""
        match self._at:
            case _At.PREAMBLE:
                self._skip_preamble()
            case _At.BORDER:
                self._cross_border()
            case _At.HEAD:
                return self._read_head()
            case _At.DATA:
                return self._read_data()
        return None

    def _skip_preamble(self) -> None:
        found = self._held.find(self._border)
        skipped = found if found >= 0 else max(0, len(self._held) - len(self._border))
        self._skipped += skipped
        if self._skipped > _MAX_PREAMBLE:
            raise refused("its first boundary does not come")
        if found >= 0:
            del self._held[: found + len(self._border)]
            self._at = _At.BORDER
        else:
            del self._held[:skipped]

    def _cross_border(self) -> None:
        if self._held.startswith(b"--"):
            self._held.clear()
            self._at = _At.EPILOGUE
            return
        end = self._held.find(b"\r\n", 0, _MAX_PADDING + 2)
        if end < 0 and len(self._held) < _MAX_PADDING + 2:
            return
        if end < 0 or self._held[:end].strip(b" \t"):
            raise refused("a boundary does not stand alone on its line")
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise refused(f"it has more than {MAX_PARTS} parts")
        del self._held[: end + 2]
        self._at = _At.HEAD

    def _read_head(self) -> PartBegins | None:
        end = self._held.find(b"\r\n\r\n", 0, MAX_HEAD + 4)
        if end < 0 and len(self._held) < MAX_HEAD + 4:
            return None
        if end < 0:
            raise refused(f"the head of a part is larger than {MAX_HEAD} bytes")
        head = bytes(self._held[:end])
        del self._held[: end + 4]
        self._at = _At.DATA
        return part_head(head)

    def _read_data(self) -> Piece | None:
        found = self._held.find(self._border)
        if found == 0:
            del self._held[: len(self._border)]
            self._at = _At.BORDER
            return PartEnds()
        ready = found if found > 0 else len(self._held) - len(self._border) + 1
        if ready <= 0:
            return None
        content = bytes(self._held[:ready])
        del self._held[:ready]
        return PartData(content)


def boundary_of(content_type: str) -> str | None:
    """The boundary that a Content-Type names; None for what is no form. BAD_REQUEST for one that has none,
    or one that cannot be."""
    kind, parameters = _value_and_parameters(content_type, what="Content-Type")
    if kind.lower() != "multipart/form-data":
        return None
    boundary = parameters.get("boundary", "")
    if not boundary:
        raise refused("its Content-Type names no boundary")
    if len(boundary) > MAX_BOUNDARY or _BOUNDARY.fullmatch(boundary) is None:
        raise refused(f"its boundary is not 1 to {MAX_BOUNDARY} of the characters it may have")
    return boundary


def part_head(head: bytes) -> PartBegins:
    """The head of a part, from its lines; the part has to have a name."""
    headers = _headers(head)
    kind, parameters = _value_and_parameters(
        headers.get("content-disposition", ""), what="Content-Disposition"
    )
    if kind.lower() != "form-data" or not parameters.get("name"):
        raise refused("a part has no name")
    name, filename = parameters["name"], parameters.get("filename", "")
    if len(name) > MAX_NAME or len(filename) > MAX_FILENAME:
        raise refused("the name of a part is too long")
    if headers.get("content-transfer-encoding", "binary").lower() not in _PLAIN_ENCODINGS:
        raise refused(f"part '{name}' is encoded; send its bytes as they are")
    content_type = headers.get("content-type", "")
    _, type_parameters = _value_and_parameters(content_type, what="Content-Type")
    if type_parameters.get("charset", "utf-8").lower() not in _CHARSETS:
        raise refused(f"part '{name}' is not in UTF-8")
    return PartBegins(name=name, filename=filename, content_type=content_type)


def _headers(head: bytes) -> dict[str, str]:
    try:
        lines = head.decode("utf-8").split("\r\n") if head else []
    except UnicodeDecodeError:
        raise refused("the head of a part is not UTF-8") from None
    if len(lines) > MAX_HEADERS:
        raise refused(f"a part has more than {MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        value = value.strip(" \t")
        if not colon or _TOKEN.fullmatch(name) is None or not value.isprintable():
            raise refused("a part has a malformed header")
        if name.lower() in headers:
            raise refused(f"a part has two headers '{name}'")
        headers[name.lower()] = value
    return headers


def _value_and_parameters(text: str, *, what: str) -> tuple[str, dict[str, str]]:
    """`form-data; name="a"` as its word and its parameters, each of which may be given once."""
    kind, _, _ = text.partition(";")
    rest = text[len(kind) :]
    parameters: dict[str, str] = {}
    at = 0
    while at < len(rest):
        found = _PARAMETER.match(rest, at)
        if found is None:
            raise refused(f"a {what} is malformed")
        name = found[1].lower()
        if name in parameters:
            raise refused(f"a {what} says '{name}' twice")
        parameters[name] = _ESCAPED.sub(r"\1", found[2]) if found[2] is not None else found[3]
        at = found.end()
    return kind.strip(), parameters


def refused(why: str) -> Rejected:
    return Rejected(
        Code.BAD_REQUEST,
        f"the form cannot be read: {why}",
        hint="nothing was stored; send multipart/form-data as `curl -F` and browsers do",
    )
