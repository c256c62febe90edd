"""Deployments: how the instances of a group come to another revision, and the states of that.

One deployment of a group is active at a time. It ends COMPLETED when as many healthy instances as are wanted run by its
target, and ROLLED_BACK when every one runs by the stable revision again. A node that is away is waited for unless others
were started in the places of its instances. Counts are computed anew in each pass: the record keeps only
what a later leader cannot see in the instances.
"""

from __future__ import annotations

import datetime as dt
import enum
from typing import Final

import msgspec

from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.groups.update_spec import UpdateSpec
from corral.domain.ids import GroupName
from corral.domain.lifecycle import Lifecycle
from corral.domain.records import Record

FAILURES_KEPT: Final = 20
LINES_KEPT: Final = 10
"""Console lines of a failure."""
LINE_LENGTH: Final = 200


class DeploymentState(enum.StrEnum):
    PENDING = "PENDING"
    """The controller observes, or the group is held."""
    CANARY = "CANARY"
    GATE = "GATE"
    """The canaries are healthy, and watched."""
    ROLLING = "ROLLING"
    PAUSED = "PAUSED"
    ROLLING_BACK = "ROLLING_BACK"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    ROLLED_BACK = "ROLLED_BACK"
    CANCELLED = "CANCELLED"
    SUPERSEDED = "SUPERSEDED"
    """Another deployment of the group has begun."""


RESTART: Final = "restart"
ROLLBACK: Final = "rollback"
"""What has begun a deployment that does not bring the document of its group."""


class DeploymentTrigger(enum.StrEnum):
    HOLD = "hold"
    CANARY = "canary"
    WATCH = "watch"
    ROLL = "roll"
    ROLL_BACK = "roll_back"
    PAUSE = "pause"
    COMPLETE = "complete"
    FAIL = "fail"
    RESTORE = "restore"
    """Every instance runs by the stable revision again."""
    CANCEL = "cancel"
    SUPERSEDE = "supersede"


_S, _T = DeploymentState, DeploymentTrigger
_LEAVES: Final = {
    _S.PENDING: (_T.CANARY, _T.WATCH, _T.ROLL, _T.ROLL_BACK, _T.PAUSE),
    _S.CANARY: (_T.HOLD, _T.WATCH, _T.ROLL_BACK, _T.PAUSE, _T.FAIL),
    _S.GATE: (_T.HOLD, _T.ROLL, _T.ROLL_BACK, _T.PAUSE, _T.FAIL),
    _S.ROLLING: (_T.HOLD, _T.COMPLETE, _T.ROLL_BACK, _T.PAUSE, _T.FAIL),
    _S.PAUSED: (_T.HOLD, _T.CANARY, _T.WATCH, _T.ROLL, _T.ROLL_BACK),
    _S.ROLLING_BACK: (_T.HOLD, _T.RESTORE, _T.PAUSE, _T.FAIL),
}
_LEADS_TO: Final = {
    _T.HOLD: _S.PENDING,
    _T.CANARY: _S.CANARY,
    _T.WATCH: _S.GATE,
    _T.ROLL: _S.ROLLING,
    _T.ROLL_BACK: _S.ROLLING_BACK,
    _T.PAUSE: _S.PAUSED,
    _T.COMPLETE: _S.COMPLETED,
    _T.FAIL: _S.FAILED,
    _T.RESTORE: _S.ROLLED_BACK,
    _T.CANCEL: _S.CANCELLED,
    _T.SUPERSEDE: _S.SUPERSEDED,
}

DEPLOYMENT_LIFECYCLE: Final = Lifecycle(
    name="deployment",
    initial=_S.PENDING,
    terminal=(_S.COMPLETED, _S.FAILED, _S.ROLLED_BACK, _S.CANCELLED, _S.SUPERSEDED),
    transitions={
        (state, trigger): _LEADS_TO[trigger]
        for state, triggers in _LEAVES.items()
        for trigger in (*triggers, _T.CANCEL, _T.SUPERSEDE)
    },
)

TRIGGER_TO: Final = {state: trigger for trigger, state in _LEADS_TO.items()}
"""The trigger that leads to a state."""


class DeploymentFailure(Record, frozen=True, kw_only=True):
    """An instance of the target that crashed, or that a node refused to start."""

    at: dt.datetime
    instance: str
    incarnation: int = 0
    node: str = ""
    code: str = ""
    """The class of the crash, or the code of the refusal."""
    reason: str
    """How the run ended, or why it was refused."""
    phase: str = ""
    """The state of the deployment then."""
    crash: str = ""
    """The id of the crash; empty: it was refused."""
    lines: tuple[str, ...] = ()
    """The last lines of its console."""


class DeploymentRecord(Record, frozen=True, kw_only=True):
    """One deployment of a group to a revision."""

    id: str
    group: GroupName
    state: DeploymentState = DeploymentState.PENDING
    resumes: DeploymentState | None = None
    """While it is PAUSED, or PENDING because of a hold: the state that follows; None: its first."""
    phase_since: dt.datetime
    created_at: dt.datetime
    ended_at: dt.datetime | None = None
    target: int
    """The number of the revision that the instances come to."""
    target_basis: str = ""
    stable: int = 0
    """The revision of the last completed deployment, or else the one that ran before; 0: there is none."""
    stable_basis: str = ""
    options: UpdateSpec
    trigger: str
    """`manual`, `restart`, `rollback`, or what had changed: `document`, `template`, `catalog`, `module`."""
    by: str
    reason: str = ""
    request: str = ""
    """The id of the request behind it; empty: none."""
    last_progress_at: dt.datetime
    """When one more instance was healthy than ever before, or one was retired."""
    best_healthy: int = 0
    clock_since: dt.datetime | None = None
    """Since when the time without progress counts; None: it does not count now."""
    clock_used: float = 0.0
    """Seconds without progress before that."""
    watched_since: dt.datetime | None = None
    """In GATE: since when all canaries are healthy and all metrics in their bounds."""
    goal: int = 0
    """While it is PAUSED, and when it has FAILED: how many instances are to run by the target."""
    failed: int = 0
    """Crashes and refused starts of instances of the target."""
    failures: tuple[DeploymentFailure, ...] = ()
    """The last of these."""
    waiting: str = ""
    """What it waits for; empty: it has ended, or is about to act."""
    outcome: str = ""
    """Why it failed, went back, or was ended."""
    undone: str = ""
    """What was taken back after a failure."""
    decision: str = ""
    """The last decision about it as a whole."""
    stragglers: dict[str, int] = msgspec.field(default_factory=dict)
    """When it has ended: the lost instances, with their revisions. They go when they are back."""
    pinned_before: int = 0
    """The revision that the group was pinned to before."""

    @property
    def brings_document(self) -> bool:
        """Does it bring the document of its group, instead of an earlier revision or the same one again?"""
        return self.trigger not in (RESTART, ROLLBACK)

    @property
    def active(self) -> bool:
        return self.state not in DEPLOYMENT_LIFECYCLE.terminal

    @property
    def settled(self) -> bool:
        """Has it ended with all instances but lost ones on one revision?"""
        return self.state in (_S.COMPLETED, _S.ROLLED_BACK)

    @property
    def going_back(self) -> bool:
        """Is it on the way to the stable revision, or about to go on with that?"""
        return _S.ROLLING_BACK in (self.state, self.resumes)

    def is_target(self, record: InstanceRecord) -> bool:
        """Was an instance started by the target, or by a revision with the same contents?"""
        return _is_of(record, self.target, self.target_basis)

    def is_stable(self, record: InstanceRecord) -> bool:
        return bool(self.stable) and _is_of(record, self.stable, self.stable_basis)

    def revision_of(self, before: InstanceRecord | None) -> int:
        """The revision that an instance is started by while it is active, or has failed; 0: as without a deployment. `before`:
        the instance in whose place it is. One of the target is followed by one of the target and others by one of the
        stable revision, until all come to the same."""
        if self.settled:
            return 0
        if self.going_back:
            return self.stable
        of_target = before is not None and self.is_target(before)
        return self.target if self.state is _S.ROLLING or of_target else self.stable

    def stepped(self, trigger: DeploymentTrigger, now: dt.datetime, *, waiting: str = "") -> DeploymentRecord:
        """The record after a step; `IllegalTransition` when the table has none."""
        state = DEPLOYMENT_LIFECYCLE.step(f"deployment '{self.id}'", self.state, trigger)
        final = state in DEPLOYMENT_LIFECYCLE.terminal
        return msgspec.structs.replace(
            self,
            state=state,
            resumes=None,
            phase_since=now,
            watched_since=None,
            clock_since=None,
            ended_at=now if final else None,
            waiting=waiting,
        )


def _is_of(record: InstanceRecord, revision: int, basis: str) -> bool:
    return record.revision == revision or bool(basis and record.basis == basis)
