"""Exceptions of a module as messages that can be sent, whatever the exception is."""

from __future__ import annotations

import traceback
from typing import Final

from corral.sdk.errors import HostError
from corral.sdk.protocol.frames import Failure

MAX_MESSAGE: Final = 4096
MAX_TRACEBACK: Final = 16_384
_FRAMES: Final = 40


class CallRefused(Exception):
    """A call that is refused before it begins; `code` goes into the Failure unchanged."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        self.code = code
        self.hint = hint
        super().__init__(message)


def failure_text(failure: BaseException) -> str:
    """Text of an exception. A module's exception may have a `__str__` that raises."""
    try:
        return _cut(str(failure), MAX_MESSAGE)
    except BaseException:
        return f"{type(failure).__name__} whose text cannot be made"


def traceback_of(failure: BaseException) -> str:
    """The innermost frames of the traceback; also of an endless recursion."""
    try:
        lines = traceback.format_exception(type(failure), failure, failure.__traceback__, limit=-_FRAMES)
        return _cut_front("".join(lines), MAX_TRACEBACK)
    except BaseException:
        return f"{type(failure).__name__}: its traceback cannot be made"


def failure_message(number: int, failure: BaseException) -> Failure:
    """The Failure of an exception. `code` is the exception's class name, for a CallRefused its own code.
    Never raises: a module may raise a subclass of ours with anything in it."""
    try:
        code = failure.code if isinstance(failure, CallRefused) else type(failure).__name__
        hint = failure.hint if isinstance(failure, HostError | CallRefused) else ""
        message = (
            _cut(failure.message, MAX_MESSAGE) if isinstance(failure, HostError) else failure_text(failure)
        )
        cause = failure.__cause__ if isinstance(failure, CallRefused) else None
        story = traceback_of(cause or failure)  # the module's own code, not the SDK's part
        return Failure(number, _cut(code, 200), message, _cut(hint, MAX_MESSAGE), story)
    except BaseException:
        return Failure(number, "Exception", "an exception that cannot be told of")


def _cut(text: str, size: int) -> str:
    return _encodable(text) if len(text) <= size else _encodable(text[:size]) + " …"


def _cut_front(text: str, size: int) -> str:
    return _encodable(text) if len(text) <= size else "… " + _encodable(text[-size:])


def _encodable(text: str) -> str:
    """Replace lone surrogates, which would break the frame. Cut the text first: a copy of a large one may be
    too much."""
    return text.encode("utf-8", "replace").decode("utf-8")
