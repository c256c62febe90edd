"""What host and module say to each other: frames of msgpack over one socket, both sides alike.

A frame is a length (4 bytes, little-endian) and a tagged message. Either side may call the other; a call
has a number of its caller's, a method, a body and a deadline, and ends with exactly one `Answer` or
`Failure`, whatever else is sent under its number before. Bodies are msgpack of the struct that belongs
to the method (`corral.sdk.protocol.messages`). The limits below are checked by both sides; who breaks one is cut off.

Nothing in here is for module authors: they see `corral.sdk`.
"""

from __future__ import annotations

from typing import Final

import msgspec

PROTOCOL_VERSION: Final = 1
MAX_FRAME: Final = 4 * 1024 * 1024
"""Largest frame in either direction; larger things travel as chunks."""
MAX_CHUNK: Final = 256 * 1024
STREAM_CREDIT: Final = 1024 * 1024
"""Bytes of chunks that may be on their way before the receiver grants more."""
MAX_CALLS_FROM_MODULE: Final = 256
"""Calls of a module that may be unanswered at once."""
MAX_CALLS_TO_MODULE: Final = 256
MAX_UNREAD: Final = 8 * 1024 * 1024
"""Bytes the host holds for a module that does not read, before it is cut off."""


class Call(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    id: int
    method: str
    body: msgspec.Raw
    deadline_ms: int


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    id: int
    body: msgspec.Raw


class Failure(msgspec.Struct, frozen=True, array_like=True, tag="failure"):
    """A call that ended otherwise. `code` is a `corral.errors.Code` name when the host answers, and the
    exception's class name when a module does."""

    id: int
    code: str
    message: str
    hint: str = ""
    traceback: str = ""


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """The caller no longer waits for this call of its own; no answer is needed, one may still come."""

    id: int


class Notice(msgspec.Struct, frozen=True, array_like=True, tag="notice"):
    """Said without an answer: log lines, samples, what became of capabilities."""

    method: str
    body: msgspec.Raw


class Chunk(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    """A piece of a body that is streamed under a call's number; `last` ends it."""

    id: int
    data: bytes
    last: bool = False


class Credit(msgspec.Struct, frozen=True, array_like=True, tag="credit"):
    """The receiver of chunks can take so many bytes more."""

    id: int
    bytes: int


Message = Call | Answer | Failure | Cancel | Notice | Chunk | Credit
