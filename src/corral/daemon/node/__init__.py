"""This node: its identity and the controllers it knows, its host, data directory, disk space and ports."""
