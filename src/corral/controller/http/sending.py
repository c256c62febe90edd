"""An answer onto the wire."""

from __future__ import annotations

from typing import Final

from corral.controller.http.request import Request
from corral.controller.http.responses import Answer, secured

_WITHOUT_LENGTH: Final = frozenset({204, 304})


async def send_answer(request: Request, answer: Answer) -> None:
    """Send a whole answer. For HEAD the server leaves the body out and the length in. To a WebSocket it says
    that it was not accepted."""
    kind = "websocket.http.response" if request.is_socket else "http.response"
    headers = [*secured(answer.headers), request.id_header]
    if answer.body:
        headers.append((b"content-type", answer.content_type))
    if answer.status not in _WITHOUT_LENGTH:
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await request.send({"type": f"{kind}.start", "status": answer.status, "headers": headers})
    await request.send({"type": f"{kind}.body", "body": answer.body, "more_body": False})
