"""A console behind the stand-in controller: bytes that grow, streams that follow them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

from stand_in_controller import Answer, Request, StandIn, frame

RUN = 1024

INSTANCE: dict[str, Any] = {
    "id": "lobby-1",
    "group": "lobby",
    "node": "web-1",
    "state": "RUNNING",
    "wanted": "run",
    "ready": True,
    "port": 30000,
    "ports": {"primary": 30000},
    "pid": 4711,
    "players": 0,
    "started_at": "2026-01-01T00:00:00Z",
    "ended_at": None,
    "exit": None,
    "plan_hash": "",
    "revision": 7,
    "reason": "",
    "incarnation": RUN,
    "restarts": 2,
    "runtime": "process",
    "deployment_revision": 0,
    "uptime_ms": 5,
    "last_seen": None,
    "memory_mb": 64,
    "start_failure": None,
}


class Console:
    """What an instance wrote; `write` adds to it and every open stream tells it."""

    def __init__(self, server: StandIn, id: str = "lobby-1") -> None:
        self.text = ""
        self.commands: list[str] = []
        self.streams: list[Request] = []
        self.cut = 0
        """So many of the next streams end after their first message."""
        self._ended: dict[str, Any] | None = None
        self._over = False
        self._echoes: list[str] = []
        self._changed = threading.Condition()
        path = f"/api/v1/instances/{id}"
        server.answers["GET", path] = (200, INSTANCE)
        server.answers["GET", f"{path}/console"] = self._page
        server.answers["GET", f"{path}/console/stream"] = self._stream
        server.answers["POST", f"{path}/command"] = self._command

    def write(self, text: str) -> None:
        with self._changed:
            self.text += text
            self._changed.notify_all()

    def typed_elsewhere(self, line: str) -> None:
        """A line that somebody else sends."""
        with self._changed:
            self._echoes.append(line)
            self._changed.notify_all()

    def end(self, **told: Any) -> None:
        with self._changed:
            self._ended = told
            self._changed.notify_all()

    def close(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _command(self, request: Request) -> Answer:
        with self._changed:
            self.commands.append(request.body["command"])
            self._echoes.append(request.body["command"])
            self._changed.notify_all()
        return 200, {"id": "lobby-1", "command": request.body["command"]}

    def _page(self, request: Request) -> Answer:
        begin = int(str(request.query.get("after", 0)))
        end = int(str(request.query.get("before", len(self.text))))
        lines = self.text[begin:end].split("\n")[:-1]
        whole = sum(len(line) + 1 for line in lines) + begin
        if request.query.get("newest") or "before" in request.query:
            lines = lines[-int(str(request.query["limit"])) :]
        items = [{"offset": 0, "time": None, "line": line} for line in lines]
        page = {
            "incarnation": RUN,
            "items": items,
            "next_offset": whole,
            "previous_offset": whole - sum(len(line) + 1 for line in lines),
            "gap": False,
            "gaps": [],
            "first_offset": 0,
            "end_offset": len(self.text),
            "tail": None,
        }
        return 200, page

    def _stream(self, request: Request) -> Answer:
        self.streams.append(request)
        resumed = request.headers.get("Last-Event-ID")
        place = int(resumed.partition("-")[2]) if resumed else int(str(request.query.get("after", 0)))
        return self._told(place, blocks=request.query.get("format") == "blocks")

    def _told(self, place: int, *, blocks: bool) -> Iterator[bytes]:
        echoed, ended = len(self._echoes), False
        yield b": following\n\n"
        while True:
            with self._changed:
                if not self._news(place, echoed, ended):
                    self._changed.wait(timeout=5)
                text, place = self.text[place:], len(self.text)
                echoes, echoed = self._echoes[echoed:], len(self._echoes)
            for line in echoes:
                yield frame(
                    f"{RUN}-{place}", "command", {"line": line, "by": "token:t", "by_name": "Ada's laptop"}
                )
            if text:
                yield self._message(place, text, blocks=blocks)
                if self.cut:
                    self.cut -= 1
                    return
            if self._ended is not None and not ended:
                ended = True
                yield frame(f"{RUN}-{place}", "end", self._ended)
            if self._over:
                return
            yield b": heartbeat\n\n"

    def _news(self, place: int, echoed: int, ended: bool) -> bool:
        fresh = len(self.text) > place or len(self._echoes) > echoed
        return fresh or self._over or (self._ended is not None and not ended)

    @staticmethod
    def _message(place: int, text: str, *, blocks: bool) -> bytes:
        if blocks:
            data: dict[str, Any] = {"offset": place - len(text), "time": None, "text": text}
            return frame(f"{RUN}-{place}", "text", data)
        items = [{"offset": 0, "time": None, "line": line} for line in text.split("\n")[:-1]]
        return frame(f"{RUN}-{place}", "page", {"items": items, "gaps": [], "next_offset": place})
