"""Reconciliation of groups with their desired state: a pure planner, and the loop that applies its plans."""
