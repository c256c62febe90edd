"""A small HTTP client for modules, on the standard library."""

from __future__ import annotations

import asyncio
import http.client
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import IO, Any, Final, TypeVar

import msgspec

from corral.sdk.errors import SdkError
from corral.sdk.runner_port import Invoke

T = TypeVar("T")
MAX_ANSWER: Final = 10 * 1024 * 1024
_PIECE: Final = 64 * 1024


class HttpRequestFailed(SdkError):
    """There was no complete answer: no connection, too slow, too large. A status of 404 is an answer.

    ```python
    try:
        answer = await ctx.http.get("https://example.org/feed", timeout=5)
    except HttpRequestFailed as failure:
        ctx.logger.warning("%s", failure)
    ```
    """

    def __init__(self, method: str, url: str, why: str) -> None:
        super().__init__(f"{method} {url}: {why}")
        self.url = url
        self.why = why


class HttpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, whatever its status.

    ```python
    answer = await ctx.http.get("https://example.org/players")
    players = answer.json(list[Player]) if answer.status == 200 else []
    ```
    """

    status: int
    url: str
    """Address after all redirects."""
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")

    def json(self, kind: type[T]) -> T:
        """Raises msgspec.ValidationError or msgspec.DecodeError."""
        return msgspec.json.decode(self.body, type=kind)


class HttpClient:
    """`ctx.http`. Each request runs in a thread, ends by its timeout and reads no more than `max_bytes`.

    ```python
    answer = await ctx.http.post("https://example.org/hook", json={"text": "up"}, timeout=5)
    ```
    """

    def __init__(self, invoke: Invoke) -> None:
        self._invoke = invoke

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        max_bytes: int = MAX_ANSWER,
    ) -> HttpAnswer:
        """`request` with GET."""
        return await self.request("GET", url, headers=headers, timeout=timeout, max_bytes=max_bytes)

    async def post(
        self,
        url: str,
        *,
        json: object = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        max_bytes: int = MAX_ANSWER,
    ) -> HttpAnswer:
        """`request` with POST."""
        return await self.request(
            "POST", url, json=json, body=body, headers=headers, timeout=timeout, max_bytes=max_bytes
        )

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: object = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        max_bytes: int = MAX_ANSWER,
    ) -> HttpAnswer:
        """Send a request. `json` is any value msgspec can encode; it or `body`. Redirects are followed.
        `timeout` is for the whole request, in seconds. Raises HttpRequestFailed, ValueError for an address
        that is not http(s)."""
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ValueError(f"{url!r} is no http or https address")
        sent = dict(headers or {})
        if json is not None:
            body = msgspec.json.encode(json)
            sent.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(url, data=body, headers=sent, method=method)  # noqa: S310  checked above
        try:
            async with asyncio.timeout(timeout):
                answer: HttpAnswer = await self._invoke(
                    f"http {method} {url}", _exchange, request, time.monotonic() + timeout, max_bytes
                )
        except TimeoutError as error:
            raise HttpRequestFailed(method, url, f"no answer within {timeout:g} s") from error
        return answer


class _ErrorsAreAnswers(urllib.request.HTTPErrorProcessor):
    def http_response(self, request: Any, response: Any) -> Any:
        if response.status in (301, 302, 303, 307, 308):
            return super().http_response(request, response)
        return response

    https_response = http_response


def _opener() -> urllib.request.OpenerDirector:
    """Opener without the handlers for files and FTP: a redirect may not lead there."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.UnknownHandler(),
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        _ErrorsAreAnswers(),
    ):
        opener.add_handler(handler)
    return opener


def _exchange(request: urllib.request.Request, until: float, max_bytes: int) -> HttpAnswer:
    method, url = request.get_method(), request.full_url
    try:
        with _opener().open(request, timeout=max(0.001, until - time.monotonic())) as response:
            body = _read(response, until, max_bytes, method, url)
            headers = {name.lower(): value for name, value in response.headers.items()}
            return HttpAnswer(status=response.status, url=response.url, headers=headers, body=body)
    except urllib.error.HTTPError as error:  # a redirect that cannot be followed
        with error:
            raise HttpRequestFailed(method, url, f"status {error.code}: {error.reason}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise HttpRequestFailed(method, url, str(error) or type(error).__name__) from error


def _read(response: IO[bytes], until: float, max_bytes: int, method: str, url: str) -> bytes:
    body = bytearray()
    while piece := response.read1(_PIECE):  # type: ignore[attr-defined]  # HTTPResponse has it
        body += piece
        if len(body) > max_bytes:
            raise HttpRequestFailed(method, url, f"the answer has more than {max_bytes} bytes")
        if time.monotonic() > until:
            raise HttpRequestFailed(method, url, "the answer did not arrive in time")
    return bytes(body)
