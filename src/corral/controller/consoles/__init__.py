"""Consoles as the controller sees them: the newest part in memory, the rest on the nodes."""
