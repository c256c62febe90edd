"""HTTP messages of routes: requests, responses, and errors with a status."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
_JSON: Final = "application/json"
_CODES: Final = {
    400: "BAD_REQUEST",
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    409: "CONFLICT",
    412: "REVISION_MISMATCH",
    413: "BODY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    429: "RATE_LIMITED",
    503: "MODULE_BUSY",
}


class HttpError(Exception):
    """Raised by a route to answer with a status other than success, in the format of all errors of the API.

    ```python
    raise HttpError(404, f"player '{name}' is not known", hint="see GET /players")
    ```
    """

    def __init__(self, status: int, message: str, *, code: str = "", hint: str = "", field: str = "") -> None:
        if not 400 <= status <= 599:
            raise ValueError(f"{status} is no status of an error; 400 to 599 are")
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code or _CODES.get(status, "BAD_REQUEST" if status < 500 else "MODULE_FAILED")
        self.hint = hint
        self.field = field

    def as_response(self) -> Response:
        error: dict[str, object] = {"code": self.code, "message": self.message, "status": self.status}
        error |= {name: text for name, text in (("hint", self.hint), ("field", self.field)) if text}
        return Response({"error": error}, status=self.status)


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The caller: name and role of the token, and the address.

    ```python
    ctx.logger.info("%s (%s) asked", request.caller.name, request.caller.role)
    ```
    """

    name: str
    role: str
    address: str = ""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a route of the module. It has passed the API's checks: the caller has the permission.

    ```python
    async def rename(self, request: Request) -> Player:
        change = request.json(Rename)              # 400 with the field's path when it does not fit
        return await self.rename_to(request.parameters["name"], change.to)
    ```
    """

    method: str
    path: str
    """Path below the module's own address."""
    parameters: dict[str, str]
    """Values of `{name}` in the path."""
    headers: dict[str, str]
    """Names in lower case, without credentials."""
    caller: Caller
    raw_query: tuple[tuple[str, str], ...] = ()
    raw_body: bytes = b""
    body: Any = None
    """The body as the type that the route was registered with; None without one."""
    query: Any = None
    """The query as the type that the route was registered with; a dict of texts without one."""

    def json(self, kind: type[T]) -> T:
        """The body as a value of this type; raises HttpError 400 with the path of the field."""
        try:
            return msgspec.json.decode(self.raw_body, type=kind)
        except msgspec.ValidationError as error:
            message, field = place_of(error)
            raise HttpError(400, message, code="INVALID_FIELD", field=field) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HttpError(400, f"the body is not JSON: {error}", code="INVALID_JSON") from error


class Response:
    """A response with a status, headers or a body of its own. A plain value is sent as JSON, a text as
    text/plain, bytes unchanged.

    ```python
    return Response({"name": "ada"}, status=201, headers={"Location": "/players/7"})
    return Response.stream(self.lines(), content_type="text/csv")  # a route with streams=True
    ```
    """

    __slots__ = ("body", "chunks", "headers", "status")

    def __init__(
        self,
        body: object = None,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> None:
        self.status = _checked_status(status)
        self.body, natural = _encoded(body)
        self.headers = _checked_headers(headers or {}, content_type or natural)
        self.chunks: AsyncIterator[bytes] | None = None

    @classmethod
    def stream(
        cls,
        chunks: AsyncIterator[bytes],
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> Response:
        """A body in pieces, sent no faster than the client reads. The iterator is closed at the end, also
        when the client disconnects."""
        response = cls(None, status=status, headers=headers, content_type=content_type)
        response.chunks = chunks
        return response

    @classmethod
    def of(cls, value: object) -> Response:
        """The result of a route as a response: None is 204."""
        if isinstance(value, Response):
            return value
        return cls(status=204) if value is None else cls(value)


def place_of(error: msgspec.ValidationError) -> tuple[str, str]:
    """Message and field path (`players[0].name`) of an error of msgspec."""
    message, _, place = str(error).partition(" - at `")
    field = place.rstrip("`").removeprefix("$").removeprefix(".")
    return (f"{field}: {message}" if field else message), field


def _encoded(body: object) -> tuple[bytes, str]:
    if body is None:
        return b"", ""
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), "application/octet-stream"
    if isinstance(body, str):
        return body.encode(), "text/plain; charset=utf-8"
    return msgspec.json.encode(body), _JSON


def _checked_status(status: int) -> int:
    if not 200 <= status <= 599:
        raise ValueError(f"{status} is no status of an answer; 200 to 599 are")
    return status


def _checked_headers(headers: Mapping[str, str], content_type: str) -> tuple[tuple[str, str], ...]:
    pairs = [(name.lower(), value) for name, value in headers.items()]
    if content_type and all(name != "content-type" for name, _ in pairs):
        pairs.append(("content-type", content_type))
    for name, value in pairs:
        if not name or any(letter in "\r\n\0" for letter in name + value):
            raise ValueError(f"the header {name!r} cannot be sent")
    return tuple(pairs)
