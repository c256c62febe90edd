"""The HTTP API: a table of routes, one pipeline for all of them, and the streams."""
