"""The daemon's side of the `process` runtime: the provider, its client of the keeper, and the lookup of runs.

What the keeper and its forks execute is `corral.runtimes.keeper`.
"""
