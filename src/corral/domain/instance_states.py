"""The states of one run of an instance, shared by controller and daemon; the history of a run; the pause
after a clean exit.

`OFFLINE` means that the run is not watched: its node is unreachable for the controller, or there was no
daemon on the node. Nothing is assumed dead, so every live state can change to it and back to whatever is then
found.

The history has the last steps of a run, which the error of a refused step lists. A clean exit is one that the
run's group allows.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

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
    UNDRAIN = "undrain"
    STOP = "stop"
    EMPTIED = "emptied"
    FAIL = "fail"
    UNWATCHED = "unwatched"
    REPORTED_SCHEDULED = "reported_scheduled"
    REPORTED_PREPARING = "reported_preparing"
    REPORTED_STARTING = "reported_starting"
    REPORTED_RUNNING = "reported_running"
    REPORTED_DRAINING = "reported_draining"
    REPORTED_STOPPING = "reported_stopping"


class Wanted(enum.StrEnum):
    """The desired state of the run, whatever its state."""

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
        (_S.SCHEDULED, _T.UNWATCHED): _S.OFFLINE,
        (_S.PREPARING, _T.SPAWN): _S.STARTING,
        (_S.PREPARING, _T.STOP): _S.STOPPING,
        (_S.PREPARING, _T.EMPTIED): _S.STOPPED,
        (_S.PREPARING, _T.FAIL): _S.CRASHED,
        (_S.PREPARING, _T.UNWATCHED): _S.OFFLINE,
        (_S.STARTING, _T.READY): _S.RUNNING,
        (_S.STARTING, _T.STOP): _S.STOPPING,
        (_S.STARTING, _T.EMPTIED): _S.STOPPED,
        (_S.STARTING, _T.FAIL): _S.CRASHED,
        (_S.STARTING, _T.UNWATCHED): _S.OFFLINE,
        (_S.RUNNING, _T.DRAIN): _S.DRAINING,
        (_S.RUNNING, _T.STOP): _S.STOPPING,
        (_S.RUNNING, _T.EMPTIED): _S.STOPPED,
        (_S.RUNNING, _T.FAIL): _S.CRASHED,
        (_S.RUNNING, _T.UNWATCHED): _S.OFFLINE,
        (_S.DRAINING, _T.UNDRAIN): _S.RUNNING,
        (_S.DRAINING, _T.STOP): _S.STOPPING,
        (_S.DRAINING, _T.EMPTIED): _S.STOPPED,
        (_S.DRAINING, _T.FAIL): _S.CRASHED,
        (_S.DRAINING, _T.UNWATCHED): _S.OFFLINE,
        (_S.STOPPING, _T.STOP): _S.STOPPING,
        (_S.STOPPING, _T.EMPTIED): _S.STOPPED,
        (_S.STOPPING, _T.FAIL): _S.CRASHED,
        (_S.STOPPING, _T.UNWATCHED): _S.OFFLINE,
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

FOUND_IN: Final = {
    _S.SCHEDULED: _T.REPORTED_SCHEDULED,
    _S.PREPARING: _T.REPORTED_PREPARING,
    _S.STARTING: _T.REPORTED_STARTING,
    _S.RUNNING: _T.REPORTED_RUNNING,
    _S.DRAINING: _T.REPORTED_DRAINING,
    _S.STOPPING: _T.REPORTED_STOPPING,
    _S.STOPPED: _T.EMPTIED,
    _S.CRASHED: _T.FAIL,
}
"""The trigger that takes a run out of OFFLINE, by the state in which it is found. Those of the two terminal
states are the same from every state."""

_AHEAD: Final = {
    state: INSTANCE_LIFECYCLE.reachable(state, avoiding=_S.OFFLINE, without=_T.UNDRAIN) - {state}
    for state in InstanceState
}
"""The states that a run can still reach by itself while its node is reachable: that it drains is the controller's
decision, and no report takes it back."""


def reported(current: InstanceState, state: InstanceState) -> InstanceState:
    """The state after a node's report. A report may skip states, and never goes back: it is ignored when the
    run is past the reported state, or over."""
    return state if state in _AHEAD[current] else current


STEPS_KEPT: Final = 8


class StateStep(msgspec.Struct, frozen=True, kw_only=True):
    trigger: InstanceTrigger
    state: InstanceState
    """The state that it led to."""
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.trigger} -> {self.state}" + (f" ({self.reason})" if self.reason else "")


class StateHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of one run. Every change of its state is a step of the table."""

    subject: str
    """The run's name in a refusal."""
    state: InstanceState = INSTANCE_LIFECYCLE.initial
    steps: tuple[StateStep, ...] = ()

    def stepped(self, trigger: InstanceTrigger, reason: str = "") -> StateHistory:
        """The history after one step; `IllegalTransition` with the last steps when the table has none."""
        state = INSTANCE_LIFECYCLE.step(self.subject, self.state, trigger, story=map(str, self.steps))
        step = StateStep(trigger=trigger, state=state, reason=reason)
        return msgspec.structs.replace(self, state=state, steps=(*self.steps, step)[-STEPS_KEPT:])

    def found(self, state: InstanceState, reason: str = "") -> StateHistory:
        """The run was not watched for a while, and was found in this state, whatever its state was before, if
        it had not ended."""
        return self.stepped(InstanceTrigger.UNWATCHED).stepped(FOUND_IN[state], reason)

    def ended(self, state: InstanceState, reason: str = "") -> StateHistory:
        """No process of the run is left, and this is its end. A repeated report of the same end is no step."""
        return self if self.state is state else self.stepped(FOUND_IN[state], reason)


ENDED: Final = "ended"
"""The outcome of a clean exit: by itself, with code 0 or one that the group names."""
ISOLATED: Final = "isolated"
"""The outcome of a run that its node stopped because it was without a controller for as long as the group allows."""
PLACE_SECONDS: Final = 5
"""After a clean exit the next start comes this long after the last one at the earliest: it counts as no
failure, but must not be restarted in a loop."""
_SPREAD: Final = 0.25
LONGEST_PLACE_SECONDS: Final = PLACE_SECONDS * (1 + _SPREAD)


def place_seconds(fraction: float) -> float:
    """The pause of one replacement, spread so that many do not start at once: `fraction` in [0, 1) decides."""
    return PLACE_SECONDS * (1 + _SPREAD * fraction)
