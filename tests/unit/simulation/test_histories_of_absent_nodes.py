"""Some histories of the campaign of deployments while nodes are away, of which `make soak` runs many."""

from __future__ import annotations

from campaigns.absent_nodes import histories


def test_worlds_and_revisions_hold_while_nodes_go_away_and_come_back() -> None:
    violations, seen = histories(6, 1)
    assert violations == []
    assert seen["completed"] > 0
    assert seen["rolled back"] > 0
    assert seen["moments of waiting for a node"] > 0
