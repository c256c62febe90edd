"""What went wrong with a connection, and refusals of the API, as errors. Imports the standard library alone."""

from __future__ import annotations

import json
import ssl
import zlib
from typing import Any, Final

from corral.client.errors import BY_STATUS, DONE_MAYBE, IN_DOUBT, ApiError, InvalidAnswer, Unreachable
from corral.client.http1 import AnswerFault, Head

_NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"}
)
_OTHER_NAMES: Final = frozenset({62, 64})
_WRONG_TIMES: Final = frozenset({9, 10})
"""OpenSSL's codes: the name or the address is another one; not valid yet, or no longer."""
_OF_PROXIES: Final = frozenset({502, 503, 504})
"""Answers of proxies while a controller is away."""
_CHECK: Final = "check the address, and any proxy in between; it is the HTTP one, not gRPC"
UNKNOWN_AUTHORITY: Final = (
    "name the certificate of its authority (ca_file); with 'http.tls.mode: cluster' it is DATA/ca/authority.pem on "
    "the controller's host"
)
NOT_RUNNING: Final = "is the controller running?"
_LONGEST_TEXT: Final = 20_000


def unreachable(url: str, error: Exception, *, sent: bool, changes: bool) -> Unreachable:
    """No answer came. `sent`: a part of the request may have arrived; `changes`: it may have had an effect then."""
    why = reason(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unreachable(f"cannot trust {url}: {error.verify_message}", hint=trust_hint(error))
    if isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
        plain = url.replace("https://", "http://", 1)
        return Unreachable(f"{url} does not speak TLS: {why}", hint=f"is it {plain}?")
    if isinstance(error, AnswerFault) and not _was_cut(error):
        return InvalidAnswer(
            f"{url} does not answer like a Corral controller: {why}", hint=_CHECK, in_doubt=sent and changes
        )
    if sent and changes:
        return Unreachable(
            f"no answer from {url}: {why}",
            hint=DONE_MAYBE,
            in_doubt=True,
            passing=True,
        )
    return Unreachable(f"cannot reach {url}: {why}", hint=NOT_RUNNING, passing=True)


def broken_off(url: str, error: Exception, *, changes: bool) -> Unreachable:
    """The head of an answer came, but not all of its body."""
    if isinstance(error, AnswerFault) and not _was_cut(error):
        return unreachable(url, error, sent=True, changes=changes)
    return Unreachable(
        f"the transfer from {url} broke off: {reason(error)}",
        hint=DONE_MAYBE if changes else "fetch it again",
        in_doubt=changes,
        passing=True,
    )


def _was_cut(fault: AnswerFault) -> bool:
    return "closed before an answer" in str(fault) or "was cut" in str(fault)


def reason(error: BaseException) -> str:
    """Why, in the words of the system."""
    if isinstance(error, TimeoutError):
        return "timed out"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def trust_hint(error: ssl.SSLCertVerificationError) -> str:
    match error.verify_code:
        case _code if _code in _OTHER_NAMES:
            return "use a name that is in its certificate; 'http.allowed_hosts' adds names to one of the cluster's authority"
        case _code if _code in _WRONG_TIMES:
            return "renew it on the controller's host, or check the clock of this one"
    return UNKNOWN_AUTHORITY


def invalid(url: str, what: str, *, passing: bool = False, in_doubt: bool = False) -> InvalidAnswer:
    """An answer that is not one of the API."""
    message = f"{url} does not answer like a Corral controller: {what}"
    return InvalidAnswer(message, hint=_CHECK, passing=passing, in_doubt=in_doubt)


def refusal(url: str, head: Head, content: bytes, *, changes: bool) -> ApiError | InvalidAnswer:
    """The error that the API returned, or that the answer was not from the API."""
    status = head.status
    try:
        error = json.loads(content)["error"]
        message, code = str(error["message"]), str(error["code"])
    except (ValueError, KeyError, TypeError, RecursionError):
        what = f"status {status}" + ("; redirects are not followed" if 300 <= status < 400 else "")
        passing = status in _OF_PROXIES
        return invalid(url, what, passing=passing, in_doubt=passing and changes)
    return BY_STATUS.get(status, ApiError)(
        message[:_LONGEST_TEXT],
        code=code[:100],
        status=status,
        hint=_text(error.get("hint")),
        field=_text(error.get("field")),
        request_id=head.get("x-request-id")[:200],
        retry_after=seconds(head.get("retry-after")),
        digest=_text(error.get("digest")),
        errors=_details(error.get("errors")),
        in_doubt=changes and code in IN_DOUBT,
    )


def _text(value: object) -> str:
    return str(value)[:_LONGEST_TEXT] if value else ""


def _details(found: Any) -> list[Any]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def seconds(header: str) -> float | None:
    """A `Retry-After` in seconds; None: there is none, or a date."""
    return float(header) if header.isascii() and header.isdecimal() and len(header) < 10 else None


def unpacked(url: str, content: bytes, *, limit: int) -> bytes:
    """A body that was sent compressed with gzip, as long as it has no more than `limit` bytes."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # with the head and the checksum of gzip
    try:
        body = unpacking.decompress(content, limit)
    except zlib.error:
        raise invalid(url, "no gzip") from None
    if not unpacking.eof:
        raise invalid(url, "a compressed body that is cut, or too large")
    return body
