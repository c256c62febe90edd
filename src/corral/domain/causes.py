"""The cause of an order or a report: the request behind it, as a text that both ends of the link carry.

A cause is a kind and an id, `request:req-4f2c`. It explains log records and grants nothing: the sender of a
frame may write any cause into it. Unknown kinds come from a newer peer, and are ignored.
"""

from __future__ import annotations

import re
from typing import Final

from corral.errors import Code, Rejected

_REQUEST: Final = "request:"
_LONGEST_ID: Final = 128
_LONGEST: Final = len(_REQUEST) + _LONGEST_ID
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._~:/+=@][A-Za-z0-9._~:/+=@-]{0,127}", re.ASCII)


def request_id(text: str) -> str:
    """The id itself; empty for what cannot be one: it is longer than 128 characters, has others than letters, digits
    and `._~:/+=@-`, which are harmless in a log, a terminal and a shell, or begins with `-`, as an option does."""
    return text if _REQUEST_ID.fullmatch(text) else ""


def check_request_id(text: str) -> None:
    """INVALID_FIELD for what cannot be the id of a request."""
    if request_id(text):
        return
    if not text:
        why = "it is empty"
    elif len(text) > _LONGEST_ID:
        why = f"it has more than {_LONGEST_ID} characters"
    elif text.startswith("-"):
        why = "it begins with '-'"
    else:
        why = "it has other characters than letters, digits and ._~:/+=@-"
    raise Rejected(
        Code.INVALID_FIELD,
        f"{text[:40]!a} cannot be the id of a request: {why}",
        hint="use the X-Request-Id of an answer; 'corral why' and errors of the command line name it",
        field="request",
    )


def cause_of(request: str) -> str:
    """How a frame names a request as its cause; empty when there is none."""
    return f"{_REQUEST}{request}" if request else ""


def request_of(cause: str) -> str:
    """The id of the request that a frame names; empty when it names none, or something else."""
    if len(cause) > _LONGEST or not cause.startswith(_REQUEST):
        return ""
    return request_id(cause.removeprefix(_REQUEST))
