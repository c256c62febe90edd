"""A service as a process: its event loop, its signals, its orderly end, and what it reports about itself."""
