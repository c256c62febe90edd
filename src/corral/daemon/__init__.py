"""The daemon: one on each host; keeps the link to the controller and what the host must not lose."""
