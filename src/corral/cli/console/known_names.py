"""Names that the controller knows, for completion and corrections: asked for when they are needed, and kept for moments."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from corral.cli.failure import CommandFailure

if TYPE_CHECKING:
    from corral.cli.api.client import Client

KEPT_SECONDS: Final = 5.0
_COMMANDS: Final = "/api/v1/commands"


class KnownNames:
    """Lists of one controller, each asked for at most once in a few seconds; empty when it does not answer at once."""

    def __init__(self, client: Client, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.client = client
        self._monotonic = monotonic
        self._kept: dict[str, tuple[float, list[str]]] = {}

    def of(self, key: str, ask: Callable[[Client], list[Any]], name: str) -> list[str]:
        """The field `name` of what `ask` finds."""
        now = self._monotonic()
        until, names = self._kept.get(key, (0.0, []))
        if now < until:
            return names
        try:
            names = [str(item.get(name, "")) for item in ask(self.client)]
        except CommandFailure:
            names = []
        self._kept[key] = (self._monotonic() + KEPT_SECONDS, names)
        return names

    def commands(self) -> list[str]:
        """The commands that modules brought."""
        return self.of(_COMMANDS, lambda client: client.pages(_COMMANDS), "name")

    def forget(self) -> None:
        """Something may have changed."""
        self._kept.clear()

    def close(self) -> None:
        self.client.close()
