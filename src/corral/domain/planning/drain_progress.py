"""How far the emptying of a node is."""

from __future__ import annotations

import datetime as dt

import msgspec

from corral.domain.records import NodeRecord


class DrainProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of a node that is emptied: each that has not ended is counted once."""

    total: int = 0
    """The instances that lived there at the beginning."""
    moved: int = 0
    """Those of them that have ended."""
    waiting_players: int = 0
    """They take no more players, and still have some."""
    waiting_room: int = 0
    """No node has room for a replacement."""
    waiting_turn: int = 0
    """Their replacements start, or others come first."""
    stopping: int = 0
    unreachable: int = 0
    """The node is out of reach: it is not known whether they live."""
    deadline_at: dt.datetime | None = None


def drain_text(node: NodeRecord) -> str:
    """A node that is emptied, and why, for people."""
    because = f": {node.admission_reason}" if node.admission_reason else ""
    return f"node '{node.id}' is {node.admission}{because}"
