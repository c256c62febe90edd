"""Keeping what is wanted: a pure planner, and the loop that acts on it."""
