"""Ports of the runner, for the parts of a `ModuleContext`: calls to the host, and invocation of module functions.

A function of a module's is invoked on the event loop if it is `async def`, in a thread if not.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class HostLink(Protocol):
    """One per module process. Module authors do not need it: the context's parts are made of it."""

    async def call(self, method: str, body: object, answer: type[T], *, deadline: float = 30.0) -> T:
        """Call the host, and wait for at most `deadline` seconds. Raises a `HostError`; after `HostTimeout` the
        host may still have done it. To be awaited on the module's event loop."""
        ...

    def notify(self, method: str, body: object) -> None:
        """Send a notice, which has no answer, from any thread. Dropped when the host does not keep up."""
        ...


class Invoke(Protocol):
    async def __call__(self, label: str, function: Any, *arguments: object) -> Any:
        """`label` names the work of the thread, should it still be running when the module has to end."""
        ...
