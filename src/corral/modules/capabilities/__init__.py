"""Capabilities of modules: which module provides what, and the calls between them."""
