"""Flags for the JVMs of groups: kept by the controller, added on the nodes."""
