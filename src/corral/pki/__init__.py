"""Certificates and join tokens: how controller and daemons know each other."""
