"""Corral: a self-hosted control plane for fleets of game servers and long-running processes."""
