"""Consoles in the controller: the newest part in memory, the rest on the nodes."""
