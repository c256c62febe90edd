"""A service as a process: its event loop, its signals, its orderly shutdown, and its diagnostics."""
