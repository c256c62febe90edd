"""How a run that a node reports relates to the instance's record: its own start, an earlier one, a stray."""

from __future__ import annotations

import enum

import msgspec

from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.ids import Incarnation, NodeId, same_start, start_number


class Stray(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is alive on a node and that no record calls for."""

    id: str
    incarnation: int
    group: str
    reason: str
    ours: bool = True
    """A record or a ticket proves that the node was ordered to run it: a decision is written about it."""
    stop: bool = True
    """False: it is shown, and nothing else happens to it."""


class StartOwnership(enum.Enum):
    """Whether the start of a run that a node reports is the one in the record."""

    KNOWN = "known"  # the record names this node and the same start: the report counts
    SUPERSEDED = "superseded"  # of an earlier start than the record's
    FOREIGN = "foreign"  # of another node, of a start that the record does not know, or without a record


def start_ownership(record: InstanceRecord | None, node: NodeId, incarnation: int) -> StartOwnership:
    """A node reports only on the starts that it was given. Incarnation 0 is the present run: daemons of the published
    protocol know no numbers."""
    if record is None:
        return StartOwnership.FOREIGN
    number, present = start_number(incarnation), start_number(record.incarnation)
    if record.node == node and (not incarnation or number == present):
        return StartOwnership.KNOWN
    return StartOwnership.SUPERSEDED if incarnation and number < present else StartOwnership.FOREIGN


def superseded(record: InstanceRecord | None, node: NodeId, incarnation: int) -> bool:
    """Whether a run is of an earlier start than a live run. It is then stopped even without a ticket: the record proves
    that its id was given out again, and no id may run twice. Beside a record that has ended no id runs twice, and a
    run without a proof is left alone."""
    earlier = start_ownership(record, node, incarnation) is StartOwnership.SUPERSEDED
    return earlier and record is not None and live(record.state)


class RunRelation(enum.Enum):
    """How a reported run relates to the run in the record."""

    SAME = "same"
    REPEATED = "repeated"  # another run with the number of the one in the record
    RESTARTED = "restarted"  # a later run of the same start, made by the node
    EARLIER = "earlier"  # an earlier run of the same start
    STALE = "stale"  # of an earlier start
    FOREIGN = "foreign"  # of a start the record does not know


def run_relation(record: InstanceRecord, incarnation: int, nonce: str = "") -> RunRelation:
    """Runs are compared by number, runs of one number by nonce. A node uses a number twice after it was restored to an
    earlier state, and then no longer knows the first run: its report of another run is the later one. A run that was
    never executed, as far as was reported, is still the same when its node begins it again under another nonce."""
    if nonce and nonce in record.former_nonces:
        return RunRelation.EARLIER
    if incarnation in (0, record.incarnation):
        other = bool(nonce and record.nonce) and nonce != record.nonce
        unexecuted = live(record.state) and record.started_at is None
        return RunRelation.REPEATED if other and not unexecuted else RunRelation.SAME
    later = incarnation > record.incarnation
    if same_start(record.incarnation, Incarnation(incarnation)):
        return RunRelation.RESTARTED if later else RunRelation.EARLIER
    return RunRelation.FOREIGN if later else RunRelation.STALE
