"""Forms of the handlers that routes name, and the application's side of a socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.messages.responses import ApiResponse
from corral.controller.http.pipeline.api_context import CurrentTerm, ProcessContext
from corral.controller.http.pipeline.sse_stream import Content, Pump
from corral.controller.state.ledger import Mutation

ProbeHandler = Callable[[ProcessContext, CurrentTerm], Awaitable[ApiResponse]]
PageHandler = Callable[[ProcessContext, HttpRequest], Awaitable[ApiResponse]]
Describe = Callable[[], Awaitable[Mutation]]
"""Describes a change for contents that are stored; called again when a concurrent change was committed first.
Between its last read of the state and its return it awaits nothing: what it read is still true then.
`Conflict` means: call it again."""

# All others take the parts of the term that they declare (see `handler_parameters`), then what is named here.
ReadHandler = Callable[..., Awaitable[object]]
"""(call)"""
MutateHandler = Callable[..., Mutation]
"""(call)"""
ActHandler = Callable[..., Awaitable[Mutation]]
"""(call)"""
ActSubject = Callable[[ApiCall[Any, Any]], str]
"""What an act is done to, as far as it is known before."""
ActDetails = Callable[[ApiCall[Any, Any]], dict[str, object]]
OnceHandler = Callable[..., Awaitable[Mutation]]
"""(call, attempt)"""
IntakeHandler = Callable[..., Awaitable[Mutation]]
"""(call, form)"""
Recall = Callable[..., AbstractAsyncContextManager[Any]]
"""(call): the form"""
AssetHandler = Callable[..., Awaitable[ApiResponse]]
"""(call)"""
BuildHandler = Callable[..., Awaitable[Describe]]
"""(call)"""
UploadHandler = Callable[..., Awaitable[Describe]]
"""(call, source): pieces of the body"""
UploadLimit = Callable[..., int]
ReportHandler = Callable[..., object]
"""(run, body)"""
StreamHandler = Callable[..., Awaitable[Pump]]
"""(call)"""
Effect = Callable[..., None]
"""(call)"""
Settle = Callable[..., Coroutine[Any, Any, object]]
"""(call, body): the answer's"""
Turn = Callable[..., AbstractAsyncContextManager[None]]
"""(call)"""
WriteText = Callable[[str], Awaitable[None]]
"""Sends a message on a socket; waits as long as the reader is slow."""


class Dialogue(Protocol):
    """The application's side of a socket."""

    async def send_messages(self, write: WriteText, /) -> None:
        """Write messages, JSON each; cancelled when the socket has to end."""

    async def receive(self, text: str, /) -> bytes | None:
        """Take a message; what is returned answers it, None: nothing does. One at a time, in their order. `DialogueOver`
        ends the socket."""


class DialogueOver(Exception):
    """The application ends a dialogue, for this reason: it has had enough of the client, or the client asked for it."""

    def __init__(self, reason: str, *, asked_for: bool = False) -> None:
        super().__init__(reason)
        self.asked_for = asked_for


LoginHandler = Callable[..., Awaitable[ApiResponse]]
"""(call): a `LoginCall`"""
DownloadHandler = Callable[..., Awaitable[Content]]
"""(call)"""
SocketHandler = Callable[..., Awaitable[Dialogue]]
"""(call)"""
