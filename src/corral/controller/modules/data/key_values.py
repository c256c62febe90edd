"""Keys and values of modules, as a port: the store's adapter and Valkey's behave alike.

Values are opaque bytes. An entry whose time has come is not there any more, whether or not anybody has
removed it yet. Writes are atomic, each for itself; a deposed leader's are refused (`Fenced`).
"""

from __future__ import annotations

from typing import Final, Protocol

import msgspec

from corral.controller.modules.data.spaces import Space
from corral.errors import Code, Rejected

MAX_VALUE: Final = 1024 * 1024
MAX_KEYS: Final = 1000
ENTRY: Final = 64
"""What an entry costs besides key and value."""


class Entry(msgspec.Struct, frozen=True):
    """`expires` in milliseconds since 1970; None: it stays."""

    value: bytes
    expires: int | None = None


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Leave `value` (None: nothing) under a key.

    `unless`: do nothing when there is a value already. `only_if`: do nothing unless the value is this one,
    which is in a tuple, where None stands for no value. `keep_expiry`: as long as it had, else `expires`.
    """

    key: str
    value: bytes | None
    expires: int | None = None
    keep_expiry: bool = False
    unless_there: bool = False
    only_if: tuple[bytes | None] | None = None


class KeyUsage(msgspec.Struct, frozen=True):
    count: int = 0
    bytes: int = 0


class KeyValueEngine(Protocol):
    """Failures to reach it are Retryable: STORAGE_UNAVAILABLE, or what the store raises."""

    async def read(self, space: Space, key: str) -> Entry | None: ...

    async def write(self, space: Space, write: Write, *, quota: int) -> bool:
        """Whether its conditions held and it is done; for a removal: whether there was a value.
        Rejected STORAGE_QUOTA when the space would grow beyond."""

    async def expire(self, space: Space, key: str, expires: int | None) -> bool:
        """Whether there is such a key."""

    async def keys(self, space: Space, *, prefix: str, after: str, limit: int) -> list[str]:
        """In the order of code points."""

    async def usage(self, space: Space) -> KeyUsage: ...

    async def sweep(self, space: Space) -> int:
        """Remove what has expired; returns how many entries."""

    async def copy(self, source: Space, target: Space) -> None:
        """The target is emptied first."""

    async def drop(self, space: Space) -> None: ...

    async def spaces(self) -> list[Space]:
        """All that hold anything."""

    async def close(self) -> None: ...


def entry_cost(key: str, value: bytes) -> int:
    return ENTRY + len(key.encode()) + len(value)


def check_size(value: bytes) -> None:
    if len(value) > MAX_VALUE:
        raise Rejected(
            Code.BODY_TOO_LARGE,
            f"a value of {len(value)} bytes is larger than allowed ({MAX_VALUE})",
            hint="keep large things in documents, or in several keys",
        )
