"""The settings, typed. The manifest's schema has checked them before they come here."""

from __future__ import annotations

import msgspec


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str
    events: tuple[str, ...]
    format: str = "json"
    secret: str = ""

    def accepts(self, type: str) -> bool:
        return any(
            type.startswith(pattern[:-1]) if pattern.endswith("*") else type == pattern
            for pattern in self.events
        )


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    destinations: tuple[Destination, ...] = ()
    attempts: int = 10
    timeout_seconds: float = 5.0
    keep_failed: int = 1000

    def find(self, name: str) -> Destination | None:
        return next((each for each in self.destinations if each.name == name), None)
