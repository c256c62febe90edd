"""The settings, typed. The manifest's schema has checked them before they come here."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

TYPED = "INSTANCE_COMMAND"
"""An event with a line that somebody typed: it may hold a password."""


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str
    events: tuple[str, ...]
    format: str = "json"
    secret: str = ""

    def accepts(self, type: str, *, private: Collection[str] = ()) -> bool:
        """Is it sent there? `private`: types that `*` alone does not stand for."""
        if type in self.events:
            return True
        if type == TYPED:
            return False
        return any(
            pattern.endswith("*")
            and type.startswith(pattern[:-1])
            and (pattern != "*" or type not in private)
            for pattern in self.events
        )


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    destinations: tuple[Destination, ...] = ()
    attempts: int = 10
    timeout_seconds: float = 5.0
    keep_failed: int = 1000

    def find(self, name: str) -> Destination | None:
        return next((each for each in self.destinations if each.name == name), None)
