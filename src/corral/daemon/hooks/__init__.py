"""Modules of the node and the instances on it: what they may change of a start, and what they are told."""
