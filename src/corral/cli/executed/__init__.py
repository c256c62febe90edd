"""Commands that a controller runs for callers of its API."""
