"""Placement of runs: pure filters and a score over a snapshot of the nodes."""
