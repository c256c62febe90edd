"""Consoles of this node: growth noticed, output sent to the controller, queries answered."""
