"""Alerts to other services, as HTTP requests."""
