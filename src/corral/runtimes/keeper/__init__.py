"""What runs in the keeper and in the processes that it forks: shims, rescues, aides, minders of companions.

A fork of the keeper imports nothing, and every import would cost each shim memory: these files import each other and
a small part of the standard library alone. The daemon's side of the same runs is `corral.runtimes.process`, which may
import them.
"""
