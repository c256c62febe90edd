"""Which instances of a group do not run as its document says, and what brings them up to date."""

from __future__ import annotations

from typing import Final

from corral.cli.failure import note
from corral.cli.group_waits import status_of
from corral.cli.terminal.output import Item
from corral.errors import counted

NAMES_SHOWN: Final = 5


def drift_text(found: Item) -> str:
    """Who does not run as the document says, and what brings them up to date."""
    drift = status_of(found).get("drift") or {}
    pinned = drift.get("pinned_revision")
    parts = [
        f"{drift[f'{kind}_count']} {words} ({_shown(drift[kind])})"
        for kind, words in (
            ("outdated", "of another revision" if pinned else "outdated"),
            ("placement", "placement"),
        )
        if drift.get(f"{kind}_count")
    ]
    if drift.get("unknown_count"):
        parts.append(f"{drift['unknown_count']} unknown")
    text = ", ".join(parts) + _differing_nodes(drift) + _remedy(drift) if parts else ""
    return "; ".join(filter(None, (pin_text(found), text))) or "-"


def pin_text(found: Item) -> str:
    """Which revision the group stays with, and what ends that; empty: with none."""
    drift = status_of(found).get("drift") or {}
    if not drift.get("pinned_revision"):
        return ""
    pinned = f"pinned to revision {drift['pinned_revision']}"
    pending = drift.get("document_pending")
    differs = "the document, or what it names, differs: change what was wrong with it"
    differs += f", then 'corral deploy {found['name']}'"
    return f"{pinned}; {differs}" if pending else pinned


def _differing_nodes(drift: Item) -> str:
    """What differs on which node from what the group demands."""
    return "".join(f"; {node}: {reason}" for node, reason in (drift.get("nodes") or {}).items())


def _remedy(drift: Item) -> str:
    """What brings the instances up to date; if nothing does now, why not."""
    if drift.get("refused"):
        return f"; a restart is refused now: {drift['refused']}"
    return f": {drift['command']}" if drift.get("command") else ""


def _shown(ids: list[str]) -> str:
    return ", ".join(ids[:NAMES_SHOWN]) + (", …" if len(ids) > NAMES_SHOWN else "")


def note_drift(group: Item) -> None:
    """After a change: who does not run as the document says, and how to change that."""
    drift = status_of(group).get("drift") or {}
    if pinned := pin_text(group):
        note(f"group '{group['name']}' is {pinned}")
    number = drift.get("pinned_revision")
    former = f"another revision than {number}, to which the group is pinned" if number else ""
    for kind, sentence in (
        ("outdated", former or "as the group was before"),
        ("placement", "on nodes that the group would not choose now"),
    ):
        count = drift.get(f"{kind}_count", 0)
        if count:
            runs = counted(count, "instance runs", "instances run")
            differs = _differing_nodes(drift) if kind == "placement" else ""
            note(f"{runs} {sentence} ({_shown(drift[kind])}){differs}{_remedy(drift)}")
