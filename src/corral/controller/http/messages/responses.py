"""Responses of the API: their bytes, the one error schema, the headers that each carries, and sending one."""

from __future__ import annotations

import math
import urllib.parse
from typing import Any, Final

import msgspec

from corral.controller.http.messages.request import HttpRequest
from corral.domain.control_characters import spelled
from corral.domain.urls import shown_text
from corral.errors import Code, CorralError, DocumentFault, DocumentsRejected, FileChanged

JSON: Final = b"application/json"
EVENT_STREAM: Final = b"text/event-stream; charset=utf-8"

Headers = tuple[tuple[bytes, bytes], ...]

SECURITY_HEADERS: Final[Headers] = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)

REPLAYED: Final[Headers] = ((b"idempotency-replayed", b"true"),)
"""That an answer was given before, to another request with the same key."""

CURSOR: Final = b"corral-cursor"
"""The position in the event log that an answer reflects: every event up to it is in the answer."""

_ENCODER: Final = msgspec.json.Encoder()
_UNQUOTABLE: Final = str.maketrans({'"': "_", "\\": "_", "/": "_"})


_WITHOUT_LENGTH: Final = frozenset({204, 304})


class DocumentError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One refused document of several."""

    code: str
    message: str
    path: str = ""
    group: str = ""
    field: str | None = None
    hint: str | None = None


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    code: str
    message: str
    status: int
    field: str | None = None
    hint: str | None = None
    errors: tuple[DocumentError, ...] = ()
    digest: str | None = None


class ErrorShape(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every refusal."""

    error: ErrorDetail


class ApiResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. Without a body there is no content type either."""

    status: int = 200
    body: bytes = b""
    content_type: bytes = JSON
    headers: Headers = ()
    compressible: bool = False
    """Whether it may be sent compressed: it has neither secrets nor words that programs have chosen. See `compression`."""


def encode(value: Any) -> bytes:
    return _ENCODER.encode(value)


def secured(headers: Headers) -> Headers:
    """The headers with those that every response carries, unless the response sets them itself."""
    if not headers:
        return SECURITY_HEADERS
    own = {name for name, _ in headers}
    return (*(header for header in SECURITY_HEADERS if header[0] not in own), *headers)


def revision_of(value: object) -> int | None:
    """The revision a response shape carries, if it describes a single stored resource."""
    found = getattr(value, "revision", None)
    return found if isinstance(found, int) else None


def shaped(
    value: object, *, status: int = 200, headers: Headers = (), compressible: bool = False
) -> ApiResponse:
    """A response shape as an answer, with its revision as the entity tag."""
    if value is None:
        return ApiResponse(status=status, headers=headers)
    revision = revision_of(value)
    if revision is not None:
        headers = ((b"etag", b'"%d"' % revision), *headers)
    return ApiResponse(status=status, body=encode(value), headers=headers, compressible=compressible)


def refusal(error: CorralError, *, headers: Headers = ()) -> ApiResponse:
    """An error of ours in the error shape, with the headers that go with its code: each 503 says when to try again."""
    status = error.code.status
    if status == 401:
        headers = ((b"www-authenticate", b'Bearer realm="corral"'), *headers)
    if error.retry_after is not None or status == 503:
        headers = ((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after or 0))), *headers)
    digest = error.digest if isinstance(error, FileChanged) else ""
    if digest:
        headers = ((b"etag", f'"{digest}"'.encode()), *headers)
    shape = ErrorShape(
        error=ErrorDetail(
            code=error.code.name,
            message=spelled(shown_text(error.message)),  # it may quote an address that others wrote
            status=status,
            field=_spelled(error.field),
            hint=_spelled(error.hint),
            errors=_document_errors(error),
            digest=digest or None,
        )
    )
    return ApiResponse(status=status, body=encode(shape), headers=headers)


def _document_errors(error: CorralError) -> tuple[DocumentError, ...]:
    if not isinstance(error, DocumentsRejected):
        return ()
    return tuple(document_error(each) for each in error.faults)


def document_error(fault: DocumentFault) -> DocumentError:
    error = fault.error
    return DocumentError(
        code=error.code.name,
        message=spelled(error.message),
        path=fault.path,
        group=fault.group,
        field=_spelled(error.field),
        hint=_spelled(error.hint),
    )


def _spelled(text: str | None) -> str | None:
    return spelled(text) if text else text


def attachment(filename: str) -> bytes:
    """The disposition of a file that is to be saved and never shown, whatever its name (RFC 6266)."""
    plain = "".join(char if char.isascii() and char.isprintable() else "_" for char in filename)
    plain = plain.translate(_UNQUOTABLE) or "download"
    header = f'attachment; filename="{plain}"'
    if plain != filename:
        header += f"; filename*=UTF-8''{urllib.parse.quote(filename, safe='')}"
    return header.encode()


def internal_error(error_id: str) -> ApiResponse:
    """The answer to a caller after a bug: where to find it, never what it was."""
    shape = ErrorShape(
        error=ErrorDetail(
            code=Code.INTERNAL.name,
            message=f"something went wrong inside Corral ({error_id})",
            status=Code.INTERNAL.status,
            hint=f"the controller's log tells more under '{error_id}'; please report it",
        )
    )
    return ApiResponse(status=Code.INTERNAL.status, body=encode(shape))


async def send_answer(request: HttpRequest, answer: ApiResponse) -> None:
    """Send a whole answer. For HEAD the server leaves the body out and the length in. To a WebSocket
    request it is the refusal of the handshake."""
    kind = "websocket.http.response" if request.is_socket else "http.response"
    headers = [*secured(answer.headers), request.id_header]
    if answer.body:
        headers.append((b"content-type", answer.content_type))
    if answer.status not in _WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await request.send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    await request.send({"type": f"{kind}.body", "body": answer.body, "more_body": False})
