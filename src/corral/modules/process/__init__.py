"""Module processes: each module of a host runs in a process of its own and cannot hurt the host."""

from corral.modules.process.module_process import ModuleProcess
from corral.modules.process.process_pool import ProcessPool
from corral.modules.process.process_port import Confinement, NoConfinement
from corral.modules.process.process_values import Death, FinishResult, Leak, Limits, Notice, Sample, Serve

__all__ = [
    "Confinement",
    "Death",
    "FinishResult",
    "Leak",
    "Limits",
    "ModuleProcess",
    "NoConfinement",
    "Notice",
    "ProcessPool",
    "Sample",
    "Serve",
]
