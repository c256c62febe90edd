"""Modules on nodes, seen from the controller: what they shall have, what they have, and what passes between."""
