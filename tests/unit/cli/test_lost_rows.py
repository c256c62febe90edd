"""How the CLI shows instances whose node is away."""

from __future__ import annotations

from corral.cli.instance.commands import COLUMNS, loss_rows
from corral.cli.terminal.output import list_table

LOST = {
    "id": "lobby-2",
    "group": "lobby",
    "state": "OFFLINE",
    "ready": False,
    "node": "n2",
    "lost": True,
    "lost_at": "2026-01-01T12:00:00Z",
    "replaced_by": "lobby-4",
    "replaces": "",
}


def test_a_list_marks_lost_instances() -> None:
    table = list_table([LOST, {**LOST, "id": "lobby-4", "lost": False}], COLUMNS, by="id")
    first, second = (line for line in str(table).splitlines() if "lobby-" in line)
    assert "(lost)" in first
    assert "(lost)" not in second


def test_one_instance_shows_since_when_and_what_took_its_place() -> None:
    assert [name for name, _ in loss_rows(LOST)] == ["Away since", "Replaced by"]
    assert loss_rows({"lost_at": None, "replaces": "lobby-2"}) == [("Replaces", "lobby-2")]
