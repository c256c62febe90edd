"""Processes beside instances."""
