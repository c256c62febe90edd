"""Module processes: each module of a host runs in a process of its own and cannot hurt the host."""

from corral.modules.process.confinement import Confinement, NoConfinement
from corral.modules.process.module_process import ModuleProcess
from corral.modules.process.process_pool import ProcessHouse
from corral.modules.process.process_values import Death, Ending, Leak, Limits, Notice, Sample, Serve

__all__ = [
    "Confinement",
    "Death",
    "Ending",
    "Leak",
    "Limits",
    "ModuleProcess",
    "NoConfinement",
    "Notice",
    "ProcessHouse",
    "Sample",
    "Serve",
]
