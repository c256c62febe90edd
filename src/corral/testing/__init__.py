"""Shipped test tools: real servers, deliberately failing adapters, contract suites.

For our own tests and for those of module authors. Nothing in production imports from here.
"""
