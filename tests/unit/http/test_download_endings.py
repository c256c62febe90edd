"""Downloads: half a file never looks whole."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.pipeline.caller_limits import OpenStream
from corral.controller.http.pipeline.sse_stream import Content, Pump, Write, serve_download
from corral.controller.http.server.connection import ABORT
from corral.domain.ids import TokenId
from corral.domain.permissions import Role
from corral.domain.records import ApiTokenRecord
from corral.system.entropy import SystemEntropy

TOKEN = ApiTokenRecord(
    id=TokenId("t"),
    name="t",
    secret_sha256="",
    role=Role.VIEWER,
    created_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    created_by="",
)


class Download:
    """What the caller gets of one pump, and whether his connection is cut."""

    def __init__(self) -> None:
        self.body = b""
        self.whole = False
        self.cut = False

    async def serve(self, pump: Pump) -> None:
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/file",
            "query_string": b"",
            "headers": [],
            ABORT: self._abort,
        }
        content = Content(pump=pump, content_type=b"text/plain", filename="file")
        await serve_download(
            request=HttpRequest(scope, self._receive, self._send, entropy=SystemEntropy()),
            stream=OpenStream(TOKEN, lambda caller, now: None),
            content=content,
            headers=(),
        )

    def _abort(self) -> None:
        self.cut = True

    async def _receive(self) -> dict[str, Any]:
        await asyncio.Event().wait()  # the caller stays
        raise AssertionError

    async def _send(self, message: Any) -> None:
        self.body += message.get("body", b"")
        self.whole = self.whole or message.get("more_body") is False


async def test_what_was_sent_to_its_end_is_whole():
    async def pump(write: Write) -> None:
        await write(b"all")

    download = Download()
    await download.serve(pump)
    assert (download.body, download.whole, download.cut) == (b"all", True, False)


async def test_a_download_whose_source_is_cancelled_ends_as_a_broken_connection():
    async def pump(write: Write) -> None:
        await write(b"half")
        source: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        source.cancel()
        await write(await source)

    download = Download()
    await download.serve(pump)
    assert (download.body, download.whole, download.cut) == (b"half", False, True)
