"""Where a run goes: pure filters and a score over a snapshot of the nodes."""
