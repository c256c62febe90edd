"""The HTTP API as the command line sees it: kept connections, JSON in and out.

The connections are those of `corral.client`, without its structures, whose import would take longer than a command. A GET
is tried again when the connection failed. A change carries an idempotency key of its own, so that nothing between us and the
controller does it twice; a line for an instance is asked for with one key until it is answered.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Self

from corral.cli.api.answers import GZIP, ApiAnswers
from corral.cli.failure import CommandFailure, CommandRefused, Unreachable, WrongUsage
from corral.client import addresses
from corral.client.addresses import checked_address, checked_header, checked_token, query_string
from corral.client.bodies import Body, SourceChanged
from corral.client.errors import EARLIER
from corral.client.http1 import Head
from corral.client.outgoing import Outgoing
from corral.client.sync_transport import SyncAnswer, SyncTransport, connected
from corral.client.trust import trusting_context
from corral.system.aio.backoff import Backoff
from corral.version import VERSION

ATTEMPTS: Final = 3
PAUSE_SECONDS: Final = 0.1
TIMEOUT_SECONDS: Final = 15.0
UPLOAD_SECONDS: Final = 300.0
"""How long a controller may take to look through what it was sent."""
STREAM_SILENCE_SECONDS: Final = 60.0
"""Longer than any heartbeat: a stream this quiet is dead."""
_PACKING_SECONDS: Final = 330.0
"""A little more than a node has to digest a file, or to pack a directory, before it sends the first byte."""
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
    try:
        return addresses.segment(text)
    except ValueError as error:
        fault, _, hint = str(error).partition("; ")
        raise WrongUsage(fault, hint=hint) from None


class OpenAnswer:
    """An answer whose body its reader takes piece by piece, and closes."""

    def __init__(self, answer: SyncAnswer) -> None:
        self._answer = answer
        self.head: Head = answer.head

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def length(self) -> int:
        """Bytes of the body; 0: not known before."""
        text = self.head.get("Content-Length")
        return int(text) if text.isdecimal() else 0

    def pieces(self) -> Iterator[bytes]:
        """The rest of the body; raises `errors.Unreachable` when it breaks off."""
        while piece := self._answer.piece(STREAM_SILENCE_SECONDS):
            yield piece

    def close(self) -> None:
        self._answer.close()


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
        login_hint: str = "",
    ) -> None:
        """`ca_file`: certificates to trust in place of those of the system; `any_name`: also when they name another host;
        `login_hint`: what to do when the controller asks for a token and there is none."""
        try:
            self._address = checked_address(url)
            self.token = checked_token(token)
        except ValueError as error:
            fault, _, hint = str(error).partition("; ")
            named = f"'{url}' is {fault}" if fault.startswith("not ") else fault
            raise WrongUsage(named, hint=hint) from None
        self.url = self._address.url
        self._login_hint = login_hint
        self._answers = ApiAnswers(self.url, login_hint=login_hint)
        self._ca_file = ca_file
        self._any_name = any_name
        self._timeout = timeout
        self._transport = SyncTransport(self._address, token=None, context=None, opener=self._connect)

    def copy(self, *, timeout: float) -> Client:
        """Another connection to the same controller, as the same caller."""
        return Client(
            url=self.url,
            token=self.token,
            ca_file=self._ca_file,
            any_name=self._any_name,
            timeout=timeout,
            login_hint=self._login_hint,
        )

    @property
    def is_private(self) -> bool:
        """Whether nobody on the way can read what is sent, as far as the address tells."""
        return self._address.secure or self._address.is_local

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
        return self._exchange("POST", self._target(path, params), body, timeout=timeout)

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
                return self._exchange("POST", self._target(path, None), body, key=key, timeout=timeout)
            except (Unreachable, CommandRefused) as failure:
                if isinstance(failure, Unreachable) and in_doubt and not failure.in_doubt:
                    failure.in_doubt, failure.hint = True, EARLIER
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
        """Send bytes of any length. A controller that refuses them while they are still being sent is noticed. `revision`:
        refused when what it changes has another one."""
        sent = {
            **(headers or {}),
            "Content-Type": content_type,
            "Idempotency-Key": _new_key(),
            **({"If-Match": f'"{revision}"'} if revision else {}),
        }
        body = Body(source, size=size)
        try:
            return self._ask(method, self._target(path, params), sent, body, UPLOAD_SECONDS)
        except SourceChanged as error:
            raise CommandFailure(str(error), hint="try again when nothing writes to it") from error

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

    def stream(self, path: str, params: Params, *, last_id: str | None) -> OpenAnswer:
        """Open a server-sent event stream ; the caller closes it."""
        more = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if last_id is not None:
            more["Last-Event-ID"] = last_id
        return self._open(path, params, more, kind="text/event-stream", what="no event stream")

    def download(self, path: str, params: Params) -> OpenAnswer:
        """Open a body of any length ; the caller reads and closes it."""
        return self._open(
            path, params, {"Accept": "*/*"}, kind=_FILES, what="no file", seconds=_PACKING_SECONDS
        )

    def _open(
        self,
        path: str,
        params: Params,
        more: dict[str, str],
        *,
        kind: str | tuple[str, ...],
        what: str,
        seconds: float = STREAM_SILENCE_SECONDS,
    ) -> OpenAnswer:
        request = self._outgoing("GET", self._target(path, params), more, None)
        with self._answers.translated():
            answer = self._transport.open(request, seconds=seconds)
        if answer.head.status == 200 and answer.head.get("Content-Type").startswith(kind):
            return OpenAnswer(answer)
        try:
            if answer.head.status != 200:
                with self._answers.translated():
                    content = answer.whole(limit=_MAX_BODY, seconds=self._timeout)
                raise self._answers.refusal(answer.head, content, changed=False)
            raise self._answers.not_ours(what)
        finally:
            answer.close()

    def close(self) -> None:
        """End the kept connections; the next request opens another one."""
        self._transport.drop_kept()

    def _exchange(
        self,
        method: str,
        target: str,
        body: Params | None,
        *,
        key: str = "",
        revision: int = 0,
        timeout: float | None = None,
    ) -> Any:
        headers = {"If-Match": f'"{revision}"'} if revision else {}
        if method != "GET":
            headers["Idempotency-Key"] = key or _new_key()
        elif not self._address.is_local:
            headers["Accept-Encoding"] = GZIP
        payload = None
        if body is not None:
            payload = Body(json.dumps(body).encode())
            headers["Content-Type"] = "application/json"
        return self._ask(method, target, headers, payload, timeout or self._timeout)

    def _ask(
        self, method: str, target: str, headers: Mapping[str, str], body: Body | None, seconds: float
    ) -> Any:
        with self._answers.translated():
            answer = self._transport.open(self._outgoing(method, target, headers, body), seconds=seconds)
            try:
                content = answer.whole(limit=_MAX_BODY, seconds=seconds)
            finally:
                answer.close()
        return self._answers.read(answer.head, content, changed=method != "GET")

    def _outgoing(self, method: str, target: str, headers: Mapping[str, str], body: Body | None) -> Outgoing:
        checked = {name: checked_header(name, value) for name, value in headers.items()}
        return Outgoing(
            method,
            target,
            headers={**self._headers(), **checked},
            body=body,
            reads=method == "GET",
        )

    def _connect(self, seconds: float) -> socket.socket:
        return connected(self._address, self._trust() if self._address.secure else None, seconds)

    def _trust(self) -> Any:
        """For each connection anew: the file may have been replaced."""
        try:
            return trusting_context(self._ca_file, any_name=self._any_name)
        except ValueError as error:
            fault, _, hint = str(error).partition("; ")
            raise WrongUsage(fault, hint=hint) from error
        except OSError as error:
            raise WrongUsage(f"cannot read the CA file {self._ca_file}: {error.strerror}") from error

    def _target(self, path: str, params: Params | None) -> str:
        return path + query_string(
            {key: value for key, value in (params or {}).items() if value not in ("", ())}
        )

    def _headers(self) -> dict[str, str]:
        headers = {
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": f"corral-cli/{VERSION}",
        }
        if self.token:  # it is another one after a login or a new password
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


def passes(failure: Unreachable | CommandRefused) -> bool:
    """Whether the same request may be answered differently in a moment."""
    return failure.passing if isinstance(failure, Unreachable) else failure.code in _PASSING


def _new_key() -> str:
    import uuid

    return str(uuid.uuid4())
