"""A small real HTTP server that speaks the API's shapes, for as long as tests need answers on demand."""

from __future__ import annotations

import http.server
import json
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

PROGRAM = [sys.executable, "-m", "corral.cli"]

NODE = {
    "id": "web-1",
    "state": "ONLINE",
    "labels": {"zone": "a"},
    "address": "10.0.0.1",
    "memory_mb": 4096,
    "reserved_memory_mb": 512,
    "used_memory_mb": 1024,
    "claims": {"memory_mb": 8192},
    "cpus": 4,
    "cpu_usage": 0.25,
    "instances": 3,
    "session": "s-1",
    "version": "0.1.0",
    "host": {"os_name": "Linux"},
    "free_disk_mb": 100,
    "used_ports": [30000],
    "runtimes": ["process"],
    "admission": "open",
    "reason": "",
    "state_since": "2026-01-01T00:00:00Z",
    "last_seen": None,
    "enrolled_at": "2026-01-01T00:00:00Z",
    "revision": 4,
    "log_level": "",
    "machine_id": "m",
}


class Request:
    """What a command sent."""

    def __init__(
        self, *, method: str, target: str, headers: dict[str, str], body: Any, peer: int = 0
    ) -> None:
        parts = urlsplit(target)
        self.method = method
        self.path = parts.path
        self.query = {
            key: values if len(values) > 1 else values[0] for key, values in parse_qs(parts.query).items()
        }
        self.headers = headers
        self.body = body
        self.peer = peer
        """The port of the client: each connection has another one."""


class File:
    """A download; `cut`: the connection breaks before its end; `tag`: its entity tag."""

    def __init__(
        self, content: bytes, *, kind: str = "application/octet-stream", cut: bool = False, tag: str = ""
    ) -> None:
        self.tag = tag
        self.content = content
        self.kind = kind
        self.cut = cut


Answer = tuple[int, Any] | Iterator[bytes] | bytes | File | None
"""Status and JSON; or frames of an event stream; or raw bytes in place of HTTP; or a file; or a hung-up."""
Handler = Callable[[Request], Answer]


def refused(status: int, code: str, message: str, **more: str) -> tuple[int, Any]:
    return status, {"error": {"code": code, "message": message, "status": status, **more}}


def frame(id: str, event: str, data: Any) -> bytes:
    return f"id: {id}\nevent: {event}\ndata: {json.dumps(data)}\n\n".encode()


class StandIn:
    """Answers by (method, path); what is not listed is a 404 in the API's shape."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], Handler | File | tuple[int, Any]] = {}
        self.requests: list[Request] = []
        self.early: dict[str, tuple[int, Any]] = {}
        """By path: answered before the body is read, which is then thrown away as it comes."""
        self.discarded = 0
        self.request_id = ""
        """The `X-Request-Id` of answers, unless it is empty."""
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: Request) -> Answer:
        self.requests.append(request)
        found = self.answers.get((request.method, request.path))
        if isinstance(found, File):
            return found
        if found is None:
            return refused(404, "NOT_FOUND", f"there is nothing at {request.path}")
        return found(request) if callable(found) else found

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        stand_in = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                if early := stand_in.early.get(self.path):
                    self.close_connection = True
                    self._reply(early)
                    self._discard(length)
                    return
                raw = self.rfile.read(length)
                is_json = self.headers.get("Content-Type", "").startswith("application/json")
                body = (json.loads(raw) if is_json else raw) if length else None
                request = Request(
                    method=self.command,
                    target=self.path,
                    headers=dict(self.headers.items()),
                    body=body,
                    peer=self.client_address[1],
                )
                self._reply(stand_in.answer(request))

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - the server's names

            def _reply(self, answer: Answer) -> None:
                if isinstance(answer, tuple):
                    content = b"" if answer[1] is None else json.dumps(answer[1]).encode()
                    self.send_response(answer[0])
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(content)))
                    if stand_in.request_id:
                        self.send_header("X-Request-Id", stand_in.request_id)
                    if self.close_connection:
                        self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(content)
                    return
                self.close_connection = True
                if isinstance(answer, File):
                    self.send_response(200)
                    self.send_header("Content-Type", answer.kind)
                    self.send_header("Content-Length", str(len(answer.content) + answer.cut))
                    if answer.tag:
                        self.send_header("ETag", f'"{answer.tag}"')
                    self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(answer.content)
                elif isinstance(answer, bytes):
                    self.wfile.write(answer)
                elif answer is not None:
                    self._stream(answer)

            def _discard(self, length: int) -> None:
                try:
                    while stand_in.discarded < length and (part := self.rfile.read1(65536)):
                        stand_in.discarded += len(part)
                except OSError:
                    pass  # the sender left

            def _stream(self, frames: Iterator[bytes]) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                try:
                    for part in frames:
                        self.wfile.write(part)
                        self.wfile.flush()
                except OSError:
                    pass  # the reader left

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler
