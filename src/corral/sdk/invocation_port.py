"""How a function of a module's is called: on the event loop if it is `async def`, in a thread if not."""

from __future__ import annotations

from typing import Any, Protocol


class Invoke(Protocol):
    async def __call__(self, label: str, function: Any, *arguments: object) -> Any:
        """`label` says what the thread is at, should it still be at it when the module has to end."""
        ...
