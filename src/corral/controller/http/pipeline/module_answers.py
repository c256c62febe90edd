"""Responses of modules, made safe for the origin of the controller.

Headers that affect a browser or a proxy beyond the one response (cookies, policies, connection control) are
removed; a malformed part fails the whole response, because a partial one would be wrong.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from corral.controller.http.messages.responses import Headers
from corral.controller.http.pipeline.attempts import Attempt, may_have_arrived
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.modules.process.call_failures import CallOverrun, ModuleRaised, ProcessGone
from corral.sdk.protocol.messages import RouteAnswer

MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 16 * 1024

_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_PASSED: Final = frozenset(
    {
        "accept-ranges",
        "allow",
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-range",
        "etag",
        "expires",
        "last-modified",
        "link",
        "location",
        "retry-after",
        "vary",
        "warning",
    }
)
_OURS: Final = ("x-accel", "x-content-type-options", "x-dns-prefetch", "x-forwarded", "x-frame-options",
    "x-permitted", "x-request-id", "x-robots", "x-sendfile", "x-ua-compatible", "x-xss")  # fmt: skip
"""Beginnings of names with `x-` that browsers or proxies obey."""
_BODILESS: Final = frozenset({204, 205, 304})
_OCTETS: Final = b"application/octet-stream"
_SHOWN: Final = (b"text/html", b"application/xhtml", b"image/svg", b"text/xml", b"application/xml")
"""Kinds that a browser shows as a document of our origin, scripts included."""

PLAIN_POLICY: Final = b"default-src 'none'; frame-ancestors 'none'"
DOCUMENT_POLICY: Final = (
    b"sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'"
)


class ModuleAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A module's answer as it may be sent. `headers` do not have its length."""

    status: int
    content_type: bytes
    headers: Headers
    body: bytes
    streamed: bool


def checked(module_id: str, answer: RouteAnswer) -> ModuleAnswer:
    """MODULE_FAILED for an answer that cannot be sent."""
    if not 200 <= answer.status <= 599:
        raise failed(module_id, f"it answered with status {answer.status}")
    if len(answer.headers) > MAX_HEADERS or sum(map(_length, answer.headers)) > MAX_HEADER_BYTES:
        raise failed(module_id, "it answered with too many headers")
    content_type, headers = _OCTETS, []
    for name, value in answer.headers:
        if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise failed(module_id, "it answered with a malformed header")
        name = name.lower()
        if name == "content-type":
            content_type = value.strip().encode("latin-1") or _OCTETS
        elif name in _PASSED or (name.startswith("x-") and not name.startswith(_OURS)):
            headers.append((name.encode("ascii"), value.strip().encode("latin-1")))
    shown = content_type.lower().startswith(_SHOWN)
    headers.append((b"content-security-policy", DOCUMENT_POLICY if shown else PLAIN_POLICY))
    bodiless = answer.status in _BODILESS
    return ModuleAnswer(
        status=answer.status,
        content_type=content_type,
        headers=tuple(headers),
        body=b"" if bodiless else answer.body,
        streamed=answer.streamed and not bodiless,
    )


def failed(module_id: str, why: str) -> Rejected:
    return Rejected(
        Code.MODULE_FAILED,
        f"module '{module_id}' failed: {why}",
        hint=f"its log and its record tell more: GET /api/v1/modules/{module_id}",
    )


def public_failure(module_id: str, what: str, error: CorralError | msgspec.MsgspecError) -> CorralError:
    """How a call ended, as a caller may know it: an exception's text and traceback are for operators."""
    if isinstance(error, CallOverrun):
        return Retryable(
            Code.MODULE_TIMEOUT,
            f"module '{module_id}' did not answer {what} in time",
            hint="it may have been done all the same; look before you repeat it",
        )
    if isinstance(error, ModuleRaised):
        return failed(module_id, f"{error.kind} in {what}")
    if isinstance(error, CorralError):
        return error
    return failed(module_id, f"its answer to {what} cannot be understood")


def in_doubt(module_id: str, what: str) -> Rejected:
    """An earlier attempt with this key was interrupted, and a module cannot be asked what became of it."""
    return may_have_arrived(
        f"{what} of module '{module_id}' may have been done",
        hint="it is not done again; look, and ask with a new key if it was not done",
    )


async def settle_failure(attempt: Attempt, error: CorralError) -> None:
    """Store how a call failed, as it was reported to the caller: a failure of the module is the response; where the
    module was not reached, the call may be tried again; where its process ended meanwhile, the outcome is unknown."""
    cause = error.__cause__ or error
    if isinstance(cause, ProcessGone):
        await attempt.doubt()
    elif error.code in (Code.MODULE_FAILED, Code.MODULE_TIMEOUT):
        await attempt.fail(error)
    elif error.code in (Code.MODULE_BUSY, Code.MODULE_NOT_ACTIVE):
        await attempt.undo()


def _length(header: tuple[str, str]) -> int:
    return len(header[0]) + len(header[1])
