"""Stored records of groups, instances, plans, crashes and decisions, and of the reservations on nodes."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Any, Final

import msgspec

from corral.domain.decisions import Decision
from corral.domain.groups.drain_records import DrainWait, InstanceDrain
from corral.domain.groups.group import GroupSpec, PortProtocol
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId
from corral.domain.instance_states import (
    ENDED,
    INSTANCE_LIFECYCLE,
    InstanceState,
    InstanceTrigger,
    Wanted,
)
from corral.domain.modules.records import ModuleChange
from corral.domain.records import BootMoment, Record


class LeasedPort(Record, frozen=True, kw_only=True):
    """A port that belongs to one run."""

    name: str
    port: int
    protocol: PortProtocol


class CrashLoop(Record, frozen=True, kw_only=True):
    """A group whose instances fail again and again is not started until `until`."""

    since: dt.datetime
    until: dt.datetime
    pauses: int = 1
    """How many pauses in a row; the next is longer. Records from before it had this name have none."""
    reason: str
    decision: str = ""
    """The decision that began it; empty in records from before this was kept."""
    crash: str = ""
    """The crash that began it; empty: it was a start that failed, or from before this was kept."""


class Hold(Record, frozen=True, kw_only=True):
    """An operator's order to keep every instance of a group stopped."""

    by: str
    reason: str
    since: dt.datetime
    when_empty: bool = False
    """Instances are stopped when they have no players, and not at once."""


class ScaleDirection(enum.StrEnum):
    UP = "up"
    DOWN = "down"


class LastScale(Record, frozen=True, kw_only=True):
    """The last change of a group's number of instances because of its load."""

    at: dt.datetime
    direction: ScaleDirection
    need: int
    """The number that it led to."""


class ScaleFloor(Record, frozen=True, kw_only=True):
    """An operator's lower bound for the number of instances, for some time."""

    count: int
    until: dt.datetime


class GroupRecord(Record, frozen=True, kw_only=True):
    """A group: its desired state, and the state of its reconciliation."""

    spec: GroupSpec
    """With the fields of its parents and all defaults."""
    written: dict[str, Any] | None = None
    """The document as its operator wrote it; None: from before this was kept, see `written_document`."""
    owner: str = ""
    """Whose set of documents it belongs to, for `apply --prune`; empty: nobody's."""
    applied_sha256: str = ""
    """The digest of `written` as the last `apply` left it; empty: it was never applied."""
    hold: Hold | None = None
    created_at: dt.datetime
    updated_at: dt.datetime
    target: int = 0
    """The count of the last `scale`; never fewer than `spec.min` are kept."""
    floor: ScaleFloor | None = None
    last_scale: LastScale | None = None
    closed: bool = False
    """It was closed to players when it was last looked at: by its document, or by a schedule."""
    failures: tuple[dt.datetime, ...] = ()
    """The latest crashes and failed starts, as many as the crash-loop rule needs."""
    failed_on: dict[str, dt.datetime] = msgspec.field(default_factory=dict)
    """The nodes of the latest failures, with the time of the last one there: others are preferred for a while."""
    failed_basis: str = ""
    """What the next start was made of at the latest of these failures, see `drift`; empty: not known."""
    paused: CrashLoop | None = None
    pause_ends: BootMoment | None = None
    """The end of the pause by the clock of the controller that began it: `paused.until` moves with the wall clock."""
    pauses: int = 0
    """How many pauses in a row; a time of calm ends the row."""
    reason: str = ""
    """Why it has fewer instances than desired; empty: it has not."""
    drain_wait: DrainWait | None = None
    """Why an instance of it cannot leave a node that is emptied; None: nothing is in the way but players."""
    deleting: bool = False
    """Its instances are being stopped; it is removed with the last of them."""
    request: str = ""
    """The id of the request that changed it last, for the log records of what follows from that."""
    stable_revision: int = 0
    """The revision of its last completed deployment; 0: there was none."""
    pinned_revision: int = 0
    """The revision that instances are started by, whatever the document is: a deployment went back to it; 0: none."""
    deployment: str = ""
    """The id of its active deployment; empty: none is."""
    unsettled: str = ""
    """A deployment that has ended and left instances of two revisions: it failed, or some were out of reach."""


class Readiness(enum.StrEnum):
    WAITING = "waiting"
    READY = "ready"
    FAILED = "failed"


class ExitRecord(Record, frozen=True, kw_only=True):
    """How a run ended."""

    known: bool
    code: int | None
    signal: int | None
    core_dumped: bool = False
    crashed: bool
    outcome: str
    """ended, clean, crashed, stopped, killed, isolated, never_started, start_failed, host_rebooted, unknown; `ended`:
    by itself, and no crash."""
    crash_class: str = ""
    rung: str = ""
    summary: str
    ended_at: dt.datetime


class AfterStop(enum.StrEnum):
    END = "end"
    RESTART = "restart"


class StartFailure(Record, frozen=True, kw_only=True):
    """Why a node refused a start."""

    stage: str
    code: str
    message: str
    permanent: bool
    retry_after_seconds: int = 0


class EarlierStart(Record, frozen=True, kw_only=True):
    """The last run of a start that another one under the same id has followed: where its console lies, and how it
    ended."""

    node: NodeId
    incarnation: Incarnation
    plan_hash: str = ""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    exit: ExitRecord | None = None
    console_end: int = 0


EARLIER_STARTS: Final = 8
NOT_YET_RUNNING: Final = frozenset({InstanceState.SCHEDULED, InstanceState.PREPARING, InstanceState.STARTING})
"""The states before a run: players cannot be on it."""


class InstanceRecord(Record, frozen=True, kw_only=True):
    """An instance: one id, and its present or last run."""

    id: InstanceId
    group: GroupName
    node: NodeId
    incarnation: Incarnation
    state: InstanceState
    wanted: Wanted
    after_stop: AfterStop = AfterStop.END
    force_stop: bool = False
    readiness: Readiness = Readiness.WAITING
    ports: tuple[LeasedPort, ...] = ()
    memory_mb: int = 0
    plan_hash: str = ""
    basis: str = ""
    """What its plan was made of, as a digest (see `drift`); empty: started before it was recorded."""
    decision: str = ""
    reason: str = ""
    pid: int = 0
    created_at: dt.datetime
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    exit: ExitRecord | None = None
    start_failure: StartFailure | None = None
    state_before_offline: InstanceState | None = None
    lost_at: dt.datetime | None = None
    """While it is OFFLINE: since when its node is away."""
    lost: bool = False
    """Its node is away for longer than its group waits: it does not count, and keeps its reservation, for it may run."""
    replaces: str = ""
    """The lost instance in whose place it was started."""
    restarts: int = 0
    """Restarts by the node within this start."""
    console_end: int = 0
    """The last console offset that the node reported."""
    adopted: bool = False
    """Reported by the node and unknown to the controller."""
    attempts: int = 0
    """How often nodes have refused this start for a temporary reason."""
    pinned: bool = False
    """The request chose the node."""
    variables: dict[str, str] = msgspec.field(default_factory=dict)
    """Its own layer of variables, above the group's."""
    home: str = ""
    """Of a static instance: the node that has its directory; it runs nowhere else."""
    module_changes: tuple[ModuleChange, ...] = ()
    """Changes of its present run by modules on the node."""
    modules_missing: tuple[str, ...] = ()
    """Modules that were desired on the node and not ready when it started, each with the reason."""
    held: str = ""
    """Of a static instance that was stopped by an operator: the reason. Nothing starts it, or another in its
    place, until an operator does."""
    files_kept: tuple[str, ...] = ()
    """Of a static instance: files that stayed at its start though templates have others, each with the reason."""
    serial: int = 0
    """The ticket of its start among those that its node received; 0: from before there were tickets."""
    nonce: str = ""
    """The nonce of its present run, as its node reported it; empty: not received yet, or its node has none."""
    former_nonces: tuple[str, ...] = ()
    """Nonces of the runs of this start before this one: a node that lists one was restored to an earlier state."""
    ends_awaited: dict[str, int] = msgspec.field(default_factory=dict)
    """Nonces and numbers of the runs of this start before this one that were executed, and whose end was not reported."""
    end_told_before: Incarnation = Incarnation(0)
    """The last run with which its node also reported the end of the run before it: repeated, that is no second end."""
    gave_up_place: bool = False
    """The instance has ended, and the desired count of its group is one lower since then."""
    end_received_at: dt.datetime | None = None
    """When the controller received its end, by its own clock; `ended_at` is by the node's."""
    earlier: tuple[EarlierStart, ...] = ()
    """The starts before this one that ran, the oldest first, `EARLIER_STARTS` at most."""
    request: str = ""
    """The id of the request behind `decision`, for log records here and on the node; empty: no request."""
    drain: InstanceDrain | None = None
    """While it is to go when it has no players; None also in records from before this was kept."""
    moves: str = ""
    """The instance on a node that is emptied in whose place it was started."""
    moves_run: Incarnation = Incarnation(0)
    """The run of that instance then: its id may be given again."""
    warm: bool = False
    """It is kept ready beside those that serve, until one of them is missing."""
    revision: int = 0
    """The revision of its group that it was started by; 0: from before there were revisions."""
    retired_by: str = ""
    """The deployment that parts with it; empty: none does."""
    host_address: str = ""
    """Where this run is reached, as an operator has set it; empty: at the address of its node."""


class Reservation(Record, frozen=True, kw_only=True):
    """The resources of one run on a node."""

    instance: InstanceId
    incarnation: Incarnation
    memory_mb: int
    cpu: float = 0.0
    ports: tuple[LeasedPort, ...] = ()


class NodeLedger(Record, frozen=True, kw_only=True):
    """What placement has to know of a node beside the reservations there. Each placement on the node writes it, so
    that two concurrent ones cannot both succeed."""

    node: NodeId
    runs: dict[str, Reservation] | None = None
    """Until ADR 0048 all reservations, by instance id. None: each is a document of its own; a version from before
    cannot read this ledger, and so places nothing on the node."""
    refused_ports: dict[str, dt.datetime] = msgspec.field(default_factory=dict)
    """`PORT/PROTOCOL` that the node found in use, busy until then."""
    serial: int = 0
    """The ticket of the last start that the node received. It outlives the runs: by it an old ticket is
    recognised."""


class PlanRecord(Record, frozen=True, kw_only=True):
    """The exact content of a run's start, secrets excepted; stored before it is sent."""

    hash: str
    body: str
    """Canonical JSON; the hash is its SHA-256."""


class SequenceRecord(Record, frozen=True, kw_only=True):
    """A counter whose numbers up to `reserved` may have been used."""

    reserved: int
    epoch: int = 0
    """The epoch of the leader that reserved them."""


class DecisionRecord(Decision, Record, frozen=True, kw_only=True):
    """A decision in the journal of its subject."""


def earlier_starts(before: InstanceRecord | None) -> tuple[EarlierStart, ...]:
    """The earlier starts for the next start under the id of this record."""
    if before is None:
        return ()
    if before.started_at is None and not before.console_end and not before.restarts:
        return before.earlier  # it never ran
    last = EarlierStart(
        node=before.node,
        incarnation=before.incarnation,
        plan_hash=before.plan_hash,
        started_at=before.started_at,
        ended_at=before.ended_at,
        exit=before.exit,
        console_end=before.console_end,
    )
    return (*before.earlier, last)[-EARLIER_STARTS:]


def live(state: InstanceState) -> bool:
    """Whether a process of it may exist."""
    return state not in INSTANCE_LIFECYCLE.terminal


def stays(record: InstanceRecord) -> bool:
    """Is the instance alive and not about to stop for good?"""
    return live(record.state) and (record.wanted is Wanted.RUN or record.after_stop is AfterStop.RESTART)


def is_lost(record: InstanceRecord) -> bool:
    """Has its node been away for longer than its group waits?"""
    return record.lost and record.state is InstanceState.OFFLINE


def is_present(record: InstanceRecord) -> bool:
    """Does it have a place in its group: alive, not about to stop for good, and not lost?"""
    return stays(record) and not is_lost(record)


def is_starting(record: InstanceRecord) -> bool:
    """Is it to serve, and does not run yet?"""
    return record.state in NOT_YET_RUNNING and stays(record) and not record.warm


def is_draining(record: InstanceRecord) -> bool:
    """Does it take no more players, and goes when it has none?"""
    return record.wanted is Wanted.DRAIN and live(record.state)


def ended_by_itself(record: InstanceRecord) -> bool:
    """Has its last run ended, by itself and without a crash?"""
    return record.exit is not None and record.exit.outcome == ENDED and not live(record.state)


def next_state(record: InstanceRecord, trigger: InstanceTrigger) -> InstanceState:
    """The next state by the table; `IllegalTransition` lists how the record came to its state."""
    story = [f"run {record.incarnation} on '{record.node}'", f"wanted: {record.wanted}"]
    if record.state_before_offline is not None:
        story.append(f"was {record.state_before_offline}")
    story.append(f"{record.state} ({record.reason})" if record.reason else record.state.name)
    return INSTANCE_LIFECYCLE.step(f"instance '{record.id}'", record.state, trigger, story=story)


def is_ready(record: InstanceRecord) -> bool:
    """Whether it can be used. Not while it is stopping, and unknown while its node is unreachable."""
    return record.readiness is Readiness.READY and record.state is InstanceState.RUNNING


def takes_players(record: InstanceRecord) -> bool:
    """Whether proxies may send players to it: it is ready, is to go on running, and serves."""
    return is_ready(record) and record.wanted is Wanted.RUN and not record.warm
