"""The simulator: the real reconciler and planner over a model of nodes and players, in virtual time.

A scenario says which nodes, groups, players and faults there are. What the controller decides is decided by its own code;
only what happens outside of it is a model, and only there is chance, from generators with a seed.
"""
