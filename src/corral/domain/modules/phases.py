"""The lifecycle of a module, the same on controller and daemon.

The operator's intent is a field of its own; the phase is only the present state.
"""

from __future__ import annotations

import enum
from typing import Final

from corral.domain.lifecycle import Lifecycle


class ModulePhase(enum.StrEnum):
    INSTALLED = "INSTALLED"
    WAITING = "WAITING"
    ACTIVE = "ACTIVE"
    STOPPING = "STOPPING"
    UNLOADED = "UNLOADED"
    FAILED = "FAILED"


class ModuleTrigger(enum.StrEnum):
    ACTIVATE = "activate"
    BOUND = "bound"
    FAIL = "fail"
    STOP = "stop"
    STOPPED = "stopped"
    UNLOAD = "unload"
    RECOVER = "recover"


class ModuleIntent(enum.StrEnum):
    ACTIVE = "active"
    INACTIVE = "inactive"
    PAUSED = "paused"


_P, _T = ModulePhase, ModuleTrigger

MODULE_LIFECYCLE: Final = Lifecycle(
    name="module",
    initial=_P.INSTALLED,
    terminal=(_P.UNLOADED,),
    transitions={
        (_P.INSTALLED, _T.ACTIVATE): _P.WAITING,
        (_P.INSTALLED, _T.FAIL): _P.FAILED,
        (_P.INSTALLED, _T.UNLOAD): _P.UNLOADED,
        (_P.WAITING, _T.BOUND): _P.ACTIVE,
        (_P.WAITING, _T.FAIL): _P.FAILED,
        (_P.WAITING, _T.STOP): _P.INSTALLED,
        (_P.ACTIVE, _T.STOP): _P.STOPPING,
        (_P.ACTIVE, _T.FAIL): _P.FAILED,
        (_P.STOPPING, _T.STOPPED): _P.INSTALLED,
        (_P.STOPPING, _T.FAIL): _P.FAILED,
        (_P.FAILED, _T.RECOVER): _P.INSTALLED,
        (_P.FAILED, _T.UNLOAD): _P.UNLOADED,
    },
)
