"""Modules on nodes, seen from the controller: desired packages, reported states, and the traffic between."""
