"""The keeper and the processes that it forks: shims, rescues, aides, and minders of companions.

A fork of the keeper imports nothing, and every import would cost each shim memory: these files import each
other and a small part of the standard library alone. The daemon's side of the same runs is
`corral.runtimes.process`, which may import them. A minder is the process that supervises: the shim or rescue
of a run, or the minder of a companion.
"""
