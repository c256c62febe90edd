"""Hooks of the node's modules in the lives of instances: changes to a start, and notifications about runs."""
