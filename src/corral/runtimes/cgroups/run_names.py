"""Run names as names of directories and units: nothing in them leads out of its place."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789._-")
_ESCAPED: Final = re.compile(r"\\x([0-9a-f]{2})")


def escaped(name: str) -> str:
    """As systemd escapes: what may not stand in a unit's name becomes `\\xNN`. Names of runs pass
    unchanged."""
    return "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in name.encode())


def unescaped(name: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), name).encode("latin-1").decode()


def keeper_name(name: str, pid: int) -> str:
    """Of a keeper's group; without a dot, so that it is never taken for a run's."""
    return f"keeper-{escaped(name)}-{pid}".replace(".", "\\x2e")


def is_keeper_name(name: str) -> bool:
    return name.startswith("keeper-") and "." not in name
