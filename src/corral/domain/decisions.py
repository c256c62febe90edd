"""Decisions: a value with a reason, its causes, and the alternatives that were not chosen."""

from __future__ import annotations

import datetime as dt
import enum

import msgspec

from corral.domain.ids import DecisionId, Epoch

Numbers = dict[str, str | int | float | bool]
"""What a decision or a refusal was computed from, by name."""


class DecisionKind(enum.StrEnum):
    START = "start"
    STOP = "stop"
    PROMOTE = "promote"
    """A warm instance serves from now on."""
    SKIP = "skip"
    """Nothing is done yet; something is waited for."""
    PLACE = "place"
    SCALE = "scale"
    RESTART = "restart"
    REFUSE = "refuse"


class Rule(enum.StrEnum):
    """Which rule of the planner a decision follows."""

    MIN_RESTORE = "min.restore"
    """Fewer instances than wanted are there."""
    CRASH_REPLACE = "crash.replace"
    """As `min.restore`, in the place of one that crashed."""
    CRASH_PAUSE = "crash.pause"
    PLACE_AGAIN = "place.again"
    """A place is taken again some seconds after its last start."""
    WARM_PROMOTE = "warm.promote"
    WARM_REFILL = "warm.refill"
    SURPLUS_STOP = "surplus.stop"
    HOLD_STOP = "hold.stop"
    DEPENDS_WAIT = "depends.wait"
    RECONNECT_WAIT = "reconnect.wait"
    PLACE_REFUSE = "place.refuse"
    OPERATOR = "operator"


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was considered and not done: a `code` with `numbers`, or a sentence."""

    subject: str
    reason: str = ""
    code: str = ""
    numbers: Numbers = {}


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded before it is executed; `cause` names the event, request or decision behind it."""

    id: DecisionId
    cause: str
    kind: DecisionKind
    subject: str
    reason: str
    epoch: Epoch
    at: dt.datetime
    inputs: Numbers = {}
    rejected: tuple[Alternative, ...] = ()
    request: str = ""
    """The id of the request behind it, as in log records; empty: no request."""
    rule: str = ""
    """A `Rule`; empty in decisions from before there were rules."""
    node: str = ""
    """The node that was chosen, or that the decision is about."""
    rejected_counts: dict[str, int] = {}
    """How many alternatives were rejected, by code: those in `rejected` are the first of them."""
    ties: tuple[str, ...] = ()
    """Nodes that had the same score as the chosen one."""
    causes: tuple[str, ...] = ()
    """What led to it, the nearest first: `event:EPOCH-SEQUENCE`, `crash:ID`, `request:ID`, `dec-…`."""
    root: str = ""
    """The first of its chain of causes."""
    wake_at: dt.datetime | None = None
    """When it is looked at again without a further event."""
