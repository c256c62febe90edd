"""Consoles on their way from this node: noticing that they grow, sending them, answering questions."""
