"""The embedded store: one SQLite file in the data directory, artifacts as files beside it."""
