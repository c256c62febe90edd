"""Certificates and join tokens, by which controller and daemons authenticate each other."""
