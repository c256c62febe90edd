"""A request as the generated methods describe it, and the bytes that begin it. Knows nothing of connections."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

import msgspec
from msgspec import UNSET

from corral.client.addresses import checked_header, query_string
from corral.client.bodies import Body
from corral.client.outgoing import Outgoing
from corral.version import VERSION

T = TypeVar("T")

GZIP: Final = "gzip"
JSON: Final = "application/json"
UPLOAD_SECONDS: Final = 300.0
"""How long a controller may take to look through what it was sent, or to bring it to nodes."""
_ENCODER: Final = msgspec.json.Encoder()


class Request(Generic[T]):
    """One request. `answer` is the type of its answer's body: a type to decode JSON into, `str` for text, None for nothing."""

    __slots__ = (
        "answer",
        "body",
        "content_type",
        "headers",
        "keyed",
        "method",
        "path",
        "query",
        "reads",
        "text",
        "waits",
    )

    def __init__(
        self,
        method: str,
        path: str,
        answer: Any = None,
        *,
        text: bool = False,
        query: Mapping[str, Any] | None = None,
        json: Any = UNSET,
        body: Body | None = None,
        content_type: str = JSON,
        headers: Mapping[str, Any] | None = None,
        keyed: bool = False,
        harmless: bool = False,
        key: str | None = None,
        waits: float = 0.0,
    ) -> None:
        """`keyed`: it takes an idempotency key, which is `key`, or made here; `harmless`: it changes nothing. `waits`: seconds that the controller was
        asked to take for the answer."""
        self.method = method
        self.path = path
        self.answer = answer
        self.text = text
        self.query = {name: value for name, value in (query or {}).items() if value is not UNSET}
        self.body = body if json is UNSET else Body(encoded(json))
        self.content_type = content_type
        self.keyed = keyed
        self.reads = method == "GET" or harmless
        """It changes nothing."""
        self.waits = waits
        given = {name: value for name, value in (headers or {}).items() if value not in (None, UNSET)}
        if keyed:
            given["Idempotency-Key"] = key or str(uuid.uuid4())
        self.headers = {name: checked_header(name, str(value)) for name, value in given.items()}

    @property
    def repeatable(self) -> bool:
        """Whether it may be sent again when its outcome is unknown."""
        return (self.reads or self.keyed) and (self.body is None or self.body.repeatable)

    def outgoing(self, *, far: bool) -> Outgoing:
        """As it is sent. `far`: bytes cost more than to compress them."""
        headers = {
            "User-Agent": f"corral-client/{VERSION}",
            "Accept": "*/*" if self.answer is None else JSON,
            **self.headers,
        }
        if self.reads and self.answer is not None and far:
            headers["Accept-Encoding"] = GZIP
        if self.body is not None:
            headers["Content-Type"] = self.content_type
        target = self.path + query_string(self.query)
        return Outgoing(
            self.method,
            target,
            headers=headers,
            body=self.body,
            reads=self.reads,
        )


def encoded(value: Any) -> bytes:
    """JSON of a body. Fields that are UNSET are left out. ValueError for what has no form in JSON."""
    if isinstance(value, dict):
        value = {name: each for name, each in value.items() if each is not UNSET}
    try:
        return _ENCODER.encode(value)
    except (TypeError, msgspec.MsgspecError, UnicodeEncodeError, OverflowError) as error:
        raise ValueError(f"the body cannot be written as JSON: {error}") from error


def entity_tag(value: int | str | None) -> str | None:
    """A revision or a digest as `If-Match` has it; `*` stays."""
    if value is None or value == "*" or (isinstance(value, str) and value.startswith('"')):
        return value
    return f'"{value}"'


def joined(value: Any) -> Any:
    """Several values of a parameter that takes them separated by commas."""
    return value if isinstance(value, str) or value in (None, UNSET) else ",".join(map(str, value))


def waiting(wait: Any, timeout: Any, usual: float) -> float:
    """How long a controller may take that was asked to wait."""
    if wait in (None, UNSET, False):
        return 0.0
    return usual if timeout in (None, UNSET) else float(timeout)
