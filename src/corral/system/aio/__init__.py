"""Concurrency: tasks, waits, pauses, locks and rates. Elsewhere the bare forms of asyncio are refused by the
linter."""
