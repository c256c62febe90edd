"""An answer onto the wire."""

from __future__ import annotations

from typing import Final

from corral.controller.http.answers import Answer, secured
from corral.controller.http.request import Send

_WITHOUT_LENGTH: Final = frozenset({204, 304})


async def send_answer(send: Send, answer: Answer, *, request_id: bytes, socket: bool = False) -> None:
    """Send a whole answer. For HEAD the server leaves the body out and the length in. With `socket`
    it is the answer to a WebSocket that was not accepted."""
    kind = "websocket.http.response" if socket else "http.response"
    headers = [*secured(answer.headers), (b"x-request-id", request_id)]
    if answer.body:
        headers.append((b"content-type", answer.content_type))
    if answer.status not in _WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    await send({"type": f"{kind}.body", "body": answer.body, "more_body": False})
