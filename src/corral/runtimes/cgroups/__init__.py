"""Control groups: one port, four adapters."""
