"""The states of one run of an instance, shared by controller and daemon.

`OFFLINE` means that the node is out of reach: nothing is assumed dead, so every live state
can fall into it and come back to whatever the node then reports.
"""

from __future__ import annotations

import enum
from typing import Final

from corral.domain.lifecycle import Lifecycle


class InstanceState(enum.StrEnum):
    SCHEDULED = "SCHEDULED"
    PREPARING = "PREPARING"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    STOPPING = "STOPPING"
    OFFLINE = "OFFLINE"
    STOPPED = "STOPPED"
    CRASHED = "CRASHED"


class InstanceTrigger(enum.StrEnum):
    PREPARE = "prepare"
    SPAWN = "spawn"
    READY = "ready"
    DRAIN = "drain"
    STOP = "stop"
    EMPTIED = "emptied"
    FAIL = "fail"
    NODE_LOST = "node_lost"
    REPORTED_SCHEDULED = "reported_scheduled"
    REPORTED_PREPARING = "reported_preparing"
    REPORTED_STARTING = "reported_starting"
    REPORTED_RUNNING = "reported_running"
    REPORTED_DRAINING = "reported_draining"
    REPORTED_STOPPING = "reported_stopping"


class Wanted(enum.StrEnum):
    """What the controller wants of the run, whatever its state."""

    RUN = "run"
    DRAIN = "drain"
    STOP = "stop"


_S, _T = InstanceState, InstanceTrigger

INSTANCE_LIFECYCLE: Final = Lifecycle(
    name="instance",
    initial=_S.SCHEDULED,
    terminal=(_S.STOPPED, _S.CRASHED),
    transitions={
        (_S.SCHEDULED, _T.PREPARE): _S.PREPARING,
        (_S.SCHEDULED, _T.STOP): _S.STOPPING,
        (_S.SCHEDULED, _T.EMPTIED): _S.STOPPED,
        (_S.SCHEDULED, _T.FAIL): _S.CRASHED,
        (_S.SCHEDULED, _T.NODE_LOST): _S.OFFLINE,
        (_S.PREPARING, _T.SPAWN): _S.STARTING,
        (_S.PREPARING, _T.STOP): _S.STOPPING,
        (_S.PREPARING, _T.EMPTIED): _S.STOPPED,
        (_S.PREPARING, _T.FAIL): _S.CRASHED,
        (_S.PREPARING, _T.NODE_LOST): _S.OFFLINE,
        (_S.STARTING, _T.READY): _S.RUNNING,
        (_S.STARTING, _T.STOP): _S.STOPPING,
        (_S.STARTING, _T.EMPTIED): _S.STOPPED,
        (_S.STARTING, _T.FAIL): _S.CRASHED,
        (_S.STARTING, _T.NODE_LOST): _S.OFFLINE,
        (_S.RUNNING, _T.DRAIN): _S.DRAINING,
        (_S.RUNNING, _T.STOP): _S.STOPPING,
        (_S.RUNNING, _T.EMPTIED): _S.STOPPED,
        (_S.RUNNING, _T.FAIL): _S.CRASHED,
        (_S.RUNNING, _T.NODE_LOST): _S.OFFLINE,
        (_S.DRAINING, _T.STOP): _S.STOPPING,
        (_S.DRAINING, _T.EMPTIED): _S.STOPPED,
        (_S.DRAINING, _T.FAIL): _S.CRASHED,
        (_S.DRAINING, _T.NODE_LOST): _S.OFFLINE,
        (_S.STOPPING, _T.STOP): _S.STOPPING,
        (_S.STOPPING, _T.EMPTIED): _S.STOPPED,
        (_S.STOPPING, _T.FAIL): _S.CRASHED,
        (_S.STOPPING, _T.NODE_LOST): _S.OFFLINE,
        (_S.OFFLINE, _T.REPORTED_SCHEDULED): _S.SCHEDULED,
        (_S.OFFLINE, _T.REPORTED_PREPARING): _S.PREPARING,
        (_S.OFFLINE, _T.REPORTED_STARTING): _S.STARTING,
        (_S.OFFLINE, _T.REPORTED_RUNNING): _S.RUNNING,
        (_S.OFFLINE, _T.REPORTED_DRAINING): _S.DRAINING,
        (_S.OFFLINE, _T.REPORTED_STOPPING): _S.STOPPING,
        (_S.OFFLINE, _T.STOP): _S.STOPPING,
        (_S.OFFLINE, _T.EMPTIED): _S.STOPPED,
        (_S.OFFLINE, _T.FAIL): _S.CRASHED,
    },
)

_COURSE: Final = (
    _S.SCHEDULED,
    _S.PREPARING,
    _S.STARTING,
    _S.RUNNING,
    _S.DRAINING,
    _S.STOPPING,
    _S.STOPPED,
    _S.CRASHED,
)
"""The order in which a run passes its states while its node is in reach; it may skip, never return."""


def reported(current: InstanceState, told: InstanceState) -> InstanceState:
    """The state after a node told one. What it told is ignored when the run is past it, or over."""
    if told is _S.OFFLINE or current in INSTANCE_LIFECYCLE.terminal:
        return current
    if current is _S.OFFLINE or _COURSE.index(told) > _COURSE.index(current):
        return told
    return current
