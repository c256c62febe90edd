"""How far a module is on its way to a node: in memory, for as long as the session lasts."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.domain.ids import NodeId

TOO_LARGE: Final = "too large for this daemon"
"""It stays so: the daemon takes archives in frames alone, and this one fits into none."""
_MEGABYTE: Final = 1000 * 1000


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """`told` is the word until the node says how much it has."""

    told: str
    fetched: int = 0
    size: int = 0

    def __str__(self) -> str:
        if not self.size:
            return self.told
        return f"fetching {_amount(self.fetched)} of {_amount(self.size)} MB"


class Progress:
    """By node and module. What was told is forgotten when the node says where the module stands."""

    def __init__(self) -> None:
        self._ways: dict[NodeId, dict[str, Way]] = {}

    def begun(self, node_id: NodeId, module: str, *, offered: bool) -> None:
        self.told(node_id, module, "offered" if offered else "told")

    def told(self, node_id: NodeId, module: str, word: str) -> None:
        self._ways.setdefault(node_id, {})[module] = Way(told=word)

    def fetched(self, node_id: NodeId, module: str, *, fetched: int, size: int) -> None:
        """A node says how far it is; only about something that is on its way to it."""
        way = self._ways.get(node_id, {}).get(module)
        if way is not None and size > 0:
            known = msgspec.structs.replace(way, fetched=max(0, min(fetched, size)), size=size)
            self._ways[node_id][module] = known

    def arrived(self, node_id: NodeId, module: str) -> None:
        ways = self._ways.get(node_id)
        if ways is not None:
            ways.pop(module, None)

    def left(self, node_id: NodeId) -> None:
        self._ways.pop(node_id, None)

    def text(self, node_id: NodeId, module: str) -> str:
        """Empty when nothing is on its way."""
        way = self._ways.get(node_id, {}).get(module)
        return str(way) if way is not None else ""


def _amount(size: int) -> str:
    """Megabytes; below ten with one digit behind the point."""
    megabytes = size / _MEGABYTE
    return f"{megabytes:.0f}" if megabytes >= 10 else f"{megabytes:.1f}"
