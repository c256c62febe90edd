"""The HTTP API as the command line sees it: one keep-alive connection, JSON in and out.

Built on `http.client` because it is the cheapest thing to import. A GET is tried again when the
connection failed. A change carries an idempotency key of its own, so that nothing between us and the
controller does it twice; a line for an instance is asked for with one key until it is answered.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from corral.cli.api.answers import GZIP, ApiAnswers
from corral.cli.failure import CommandRefused, Unreachable, WrongUsage
from corral.system.aio.backoff import Backoff
from corral.version import VERSION

ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 0.1
TIMEOUT_SECONDS: Final = 15.0
UPLOAD_SECONDS: Final = 300.0
"""How long a controller may take to look through what it was sent."""
STREAM_SILENCE_SECONDS: Final = 60.0
"""Longer than any heartbeat: a stream this quiet is dead."""
LONGEST_PAUSE_SECONDS: Final = 1.0
PAGE: Final = 500
SUMMARY: Final = {"view": "summary"}
"""Parameters of a list of compact items, where names are all that is needed."""
_PASSING: Final = frozenset(
    {"FENCED", "NODE_OFFLINE", "NOT_LEADER", "RATE_LIMITED", "SHUTTING_DOWN", "STORE_UNAVAILABLE", "TIMEOUT"}
)
_FILES: Final = (
    "application/octet-stream",
    "application/gzip",
    "application/x-ndjson",
    "application/zip",
)
_MAX_BODY: Final = 64 * 1024 * 1024

Params = Mapping[str, object]


def segment(text: str) -> str:
    """A value as one part of a path, whatever is in it."""
    return quote(text, safe="")


class Client:
    """Talks to one controller. Raises `CommandRefused` or `Unreachable`, nothing else."""

    def __init__(
        self,
        *,
        url: str,
        token: str | None,
        ca_file: str | None = None,
        any_name: bool = False,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """`ca_file`: certificates to trust in place of those of the system; `any_name`: also when they name another host."""
        self.url = url.rstrip("/")
        self._parts = _checked_url(self.url)
        self._answers = ApiAnswers(self.url)
        self.token = _checked_token(token)
        self._ca_file = ca_file
        self._any_name = any_name
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def copy(self, *, timeout: float) -> Client:
        """Another connection to the same controller, as the same caller."""
        return Client(
            url=self.url, token=self.token, ca_file=self._ca_file, any_name=self._any_name, timeout=timeout
        )

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what is sent, as far as the address tells."""
        return self._parts.scheme == "https" or not self._is_far

    @property
    def _is_far(self) -> bool:
        """Whether bytes cost more than to compress them: not on this machine."""
        host = self._parts.hostname or ""
        return host not in ("localhost", "::1") and not host.startswith("127.")

    def get(self, path: str, params: Params | None = None) -> Any:
        target = self._target(path, params)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._exchange("GET", target, None)
            except Unreachable:
                if attempt == ATTEMPTS:
                    raise
                time.sleep(PAUSE_SECONDS * attempt)
        raise AssertionError("unreachable")

    def post(
        self,
        path: str,
        body: Params | None = None,
        *,
        params: Params | None = None,
        timeout: float | None = None,
    ) -> Any:
        """`timeout`: how long the answer may take, when it is known to take long."""
        with self._answered_within(timeout):
            return self._exchange("POST", self._target(path, params), body)

    @contextlib.contextmanager
    def _answered_within(self, timeout: float | None) -> Iterator[None]:
        if timeout is None:
            yield
            return
        usual, self._timeout = self._timeout, timeout
        self.close()
        try:
            yield
        finally:
            self._timeout = usual
            self.close()

    def post_patiently(
        self,
        path: str,
        body: Params,
        *,
        seconds: float,
        timeout: float | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> Any:
        """Repeat a request with one idempotency key until it is answered, for so many seconds. Without `notify` only
        once it may have taken effect: a refusal, or a request that was never sent, is raised at once."""
        key, deadline = _new_key(), time.monotonic() + seconds
        backoff = Backoff(first=PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
        notified = in_doubt = False
        while True:
            try:
                with self._answered_within(timeout):
                    return self._exchange("POST", self._target(path, None), body, key=key)
            except (Unreachable, CommandRefused) as failure:
                in_doubt = in_doubt or (isinstance(failure, Unreachable) and failure.in_doubt)
                left = deadline - time.monotonic()
                if left <= 0 or not passes(failure) or not (in_doubt or notify is not None):
                    raise
                if notify is not None and not notified:
                    notify(f"{failure.message}; trying again")
                    notified = True
            time.sleep(min(backoff.delay(), left))

    def patch(self, path: str, body: Params, params: Params | None = None, *, revision: int = 0) -> Any:
        """`revision`: refused when what it changes has another one."""
        return self._exchange("PATCH", self._target(path, params), body, revision=revision)

    def put(self, path: str, body: Params) -> Any:
        return self._exchange("PUT", self._target(path, None), body)

    def upload(
        self,
        path: str,
        source: Iterable[bytes],
        *,
        size: int,
        content_type: str = "application/octet-stream",
        params: Params | None = None,
        revision: int = 0,
        method: str = "PUT",
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send bytes of any length on a connection of its own. A controller that refuses them while they
        are still being sent is noticed. `revision`: refused when what it changes has another one."""
        sent = {
            **self._headers(),
            **(headers or {}),
            "Content-Type": content_type,
            "Content-Length": str(size),
            "Idempotency-Key": _new_key(),
            **({"If-Match": f'"{revision}"'} if revision else {}),
        }
        connection = self._connect(UPLOAD_SECONDS)
        body = _until_answered(connection, source)
        try:
            # Cut off while sending: it does not want the rest, and the reason is in the answer.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError, _Answered):
                connection.request(method, self._target(path, params), body=body, headers=sent)
            response = connection.getresponse()
            content = response.read(_MAX_BODY)
        except (OSError, http.client.HTTPException) as error:
            raise self._answers.unreachable(error, changed=True) from error
        finally:
            connection.close()
        return self._answers.read(response, content)

    def delete(self, path: str, params: Params | None = None) -> Any:
        return self._exchange("DELETE", self._target(path, params), None)

    def pages(
        self, path: str, params: Params | None = None, *, limit: int | None = None, position: str = "cursor"
    ) -> list[Any]:
        """The items of a list, page by page, at most `limit`; `position` names where `next` goes.

        A page may be short, or even empty, and still lead to another one.
        """
        items: list[Any] = []
        asked = dict(params or {})
        while limit is None or len(items) < limit:
            asked["limit"] = PAGE if limit is None else min(PAGE, limit - len(items))
            page = self.get(path, asked)
            if not isinstance(page, dict) or not isinstance(page.get("items"), list):
                raise self._answers.not_ours("a list without items")
            items += page["items"]
            following = page.get("next")
            if not following or following == asked.get(position):
                break
            asked[position] = following
        return items

    def stream(self, path: str, params: Params, *, last_id: str | None) -> http.client.HTTPResponse:
        """Open a server-sent event stream on a connection of its own; the caller closes it."""
        more = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if last_id is not None:
            more["Last-Event-ID"] = last_id
        return self._open(path, params, more, kind="text/event-stream", what="no event stream")

    def download(self, path: str, params: Params) -> http.client.HTTPResponse:
        """Open a body of any length on a connection of its own; the caller reads and closes it."""
        return self._open(path, params, {"Accept": "*/*"}, kind=_FILES, what="no file")

    def _open(
        self, path: str, params: Params, more: dict[str, str], *, kind: str | tuple[str, ...], what: str
    ) -> http.client.HTTPResponse:
        connection = self._connect(STREAM_SILENCE_SECONDS)
        try:
            connection.request("GET", self._target(path, params), headers={**self._headers(), **more})
            response = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._answers.unreachable(error) from error
        if response.status == 200 and (response.getheader("Content-Type") or "").startswith(kind):
            return response
        try:
            if response.status != 200:
                raise self._answers.refusal(response, response.read(_MAX_BODY))
            raise self._answers.not_ours(what)
        finally:
            response.close()
            connection.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _exchange(
        self, method: str, target: str, body: Params | None, *, key: str = "", revision: int = 0
    ) -> Any:
        headers = self._headers()
        if revision:
            headers["If-Match"] = f'"{revision}"'
        payload: bytes | None = None
        if method != "GET":
            headers["Idempotency-Key"] = key or _new_key()
        elif self._is_far:
            headers["Accept-Encoding"] = GZIP
        if body is not None:
            payload = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            response, content = self._ask(method, target, payload, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise self._answers.unreachable(error, changed=method != "GET") from error
        return self._answers.read(response, content)

    def _ask(
        self, method: str, target: str, payload: bytes | None, headers: dict[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """On the kept connection, if it is still there: a controller closes one that was idle for a while, perhaps
        in this very moment. Then it is asked again, which the idempotency key makes harmless."""
        if self._connection is not None and _hung_up(self._connection):
            self.close()
        kept = self._connection is not None
        if self._connection is None:
            self._connection = self._connect(self._timeout)
        try:
            self._connection.request(method, target, body=payload, headers=headers)
            response = self._connection.getresponse()
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self.close()
            if not kept:
                raise
            return self._ask(method, target, payload, headers)
        return response, self._read(response)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        host = self._parts.hostname or ""
        if self._parts.scheme == "http":
            return http.client.HTTPConnection(host, self._parts.port, timeout=timeout)
        return http.client.HTTPSConnection(host, self._parts.port, timeout=timeout, context=self._trust())

    def _trust(self) -> ssl.SSLContext:
        """For each connection anew: the file may have been replaced."""
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except ssl.SSLError as error:
            raise WrongUsage(
                f"there is no certificate in the CA file {self._ca_file}",
                hint="give a PEM file, with lines like '-----BEGIN CERTIFICATE-----'",
            ) from error
        except OSError as error:
            raise WrongUsage(f"cannot read the CA file {self._ca_file}: {error.strerror}") from error
        if self._ca_file is not None:
            # An authority that was named need not have what public ones must, and may be the server's own certificate.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.check_hostname = not self._any_name
        return context

    def _target(self, path: str, params: Params | None) -> str:
        given = {key: value for key, value in (params or {}).items() if value not in (None, "", ())}
        query = "?" + urlencode(given, doseq=True) if given else ""
        return self._parts.path + path + query

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": f"corral-cli/{VERSION}"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        content = response.read(_MAX_BODY)
        if not response.isclosed():  # endless, or without a length: not to be used again
            response.close()
            self.close()
        if response.getheader("Content-Encoding") == GZIP:
            return self._answers.unpacked(content, limit=_MAX_BODY)
        return content


def passes(failure: Unreachable | CommandRefused) -> bool:
    """Whether the same request may be answered differently in a moment."""
    return failure.passing if isinstance(failure, Unreachable) else failure.code in _PASSING


def _hung_up(connection: http.client.HTTPConnection) -> bool:
    """Whether something came without a question: the end, on a connection that is kept."""
    wire = connection.sock
    return wire is None or bool(select.select([wire], [], [], 0)[0])


class _Answered(Exception):
    """An answer came before everything was sent."""


def _until_answered(connection: http.client.HTTPConnection, source: Iterable[bytes]) -> Iterator[bytes]:
    """Blocks of `source` until the controller answers: after an answer no more is sent. On TLS the
    other side also sends what is no answer, so there the whole is sent."""
    for block in source:
        wire = connection.sock
        if not isinstance(wire, ssl.SSLSocket) and select.select([wire], [], [], 0)[0]:
            raise _Answered
        yield block


def _new_key() -> str:
    import uuid

    return str(uuid.uuid4())


def _checked_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or parts.username is not None:
        raise WrongUsage(
            f"'{url}' is not an address of a controller", hint="write it like http://127.0.0.1:8480"
        )
    return parts


def _checked_token(token: str | None) -> str | None:
    if token is None:
        return None
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise WrongUsage("the token holds characters that no token has", hint="copy it again as one line")
    return token
