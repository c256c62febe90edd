"""Why something is as it is: a group, an instance, a node, a module."""
