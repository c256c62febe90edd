"""How a run that a node reports relates to the instance's record: its own start, an earlier one, a stray."""

from __future__ import annotations

import enum

import msgspec

from corral.domain.ids import Incarnation, NodeId, same_start, start_number
from corral.domain.instance_records import InstanceRecord, live


class Stray(msgspec.Struct, frozen=True, kw_only=True):
    """A run that is alive on a node and wanted by nobody."""

    id: str
    incarnation: int
    group: str
    reason: str
    ours: bool = True
    """A record or a ticket proves that the node was told to run it: then a decision is written about it."""
    stop: bool = True
    """False: it is shown, and nothing else happens to it."""


class StartOwnership(enum.Enum):
    """What the record says about a run that a node speaks of."""

    KNOWN = "known"  # the record names this node and the same start: taken as told
    SUPERSEDED = "superseded"  # of an earlier start than the record's
    FOREIGN = "foreign"  # of another node, of a start that the record does not know, or without a record


def start_ownership(record: InstanceRecord | None, node: NodeId, incarnation: int) -> StartOwnership:
    """A node speaks for the starts that it was given. Incarnation 0 is the present run: published peers
    know no numbers."""
    if record is None:
        return StartOwnership.FOREIGN
    number, present = start_number(incarnation), start_number(record.incarnation)
    if record.node == node and (not incarnation or number == present):
        return StartOwnership.KNOWN
    return StartOwnership.SUPERSEDED if incarnation and number < present else StartOwnership.FOREIGN


def superseded(record: InstanceRecord | None, node: NodeId, incarnation: int) -> bool:
    """Is it of an earlier start than a run that lives? Then it is ended even without a proof that it is ours: the
    record proves that its id was given out again, and no id may run twice. Beside a record that has ended nothing
    runs twice, and what nobody proves is left alone."""
    earlier = start_ownership(record, node, incarnation) is StartOwnership.SUPERSEDED
    return earlier and record is not None and live(record.state)


class RunRelation(enum.Enum):
    """How a run that a node names relates to the one in the record."""

    SAME = "same"
    REPEATED = "repeated"  # another run with the number of the one in the record
    RESTARTED = "restarted"  # a later run of the same start, made by the node
    EARLIER = "earlier"  # an earlier run of the same start
    STALE = "stale"  # of an earlier start
    FOREIGN = "foreign"  # of a start the record does not know


def run_relation(record: InstanceRecord, incarnation: int, nonce: str = "") -> RunRelation:
    """By the number; runs of one number are told apart by their nonces. A node uses one twice after it was put back to
    an earlier state, and then knows nothing of the first run any more: what it says of another is later."""
    if nonce and nonce in record.former_nonces:
        return RunRelation.EARLIER
    if incarnation in (0, record.incarnation):
        return RunRelation.REPEATED if nonce and record.nonce and nonce != record.nonce else RunRelation.SAME
    later = incarnation > record.incarnation
    if same_start(record.incarnation, Incarnation(incarnation)):
        return RunRelation.RESTARTED if later else RunRelation.EARLIER
    return RunRelation.FOREIGN if later else RunRelation.STALE
