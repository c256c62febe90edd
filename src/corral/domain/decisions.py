"""Decisions: a value with a reason, its causes, and the alternatives that were not chosen."""

from __future__ import annotations

import datetime as dt
import enum
from typing import Final

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
    DRAIN = "drain"
    """An instance takes no more players, and goes when it has none."""
    UNDRAIN = "undrain"
    RESTART = "restart"
    ADOPT = "adopt"
    """A run that did not count counts again."""
    PHASE = "phase"
    """The subject is in another phase from now on, such as an instance that is lost."""
    REFUSE = "refuse"


class Rule(enum.StrEnum):
    """Which rule of the planner a decision follows."""

    MIN_RESTORE = "min.restore"
    """Fewer instances than wanted are there."""
    CRASH_REPLACE = "crash.replace"
    """As `min.restore`, in the place of one that crashed."""
    CRASH_PAUSE = "crash.pause"
    LOST_REPLACE = "lost.replace"
    """As `min.restore`, in the place of one whose node is away for too long."""
    LOST_RETURN = "lost.return"
    """One whose node was away for too long is there again."""
    DUPLICATE_STOP = "duplicate.stop"
    """A lost instance is back, and so are it and its replacement: one of them goes."""
    PLACE_AGAIN = "place.again"
    """A place is taken again some seconds after its last start."""
    LOAD_UP = "load.up"
    """The players need more instances."""
    SLOTS_UP = "slots.up"
    """Too few places for players are free."""
    SCHEDULE_UP = "schedule.up"
    IDLE_DOWN = "idle.down"
    """One had no players for long enough, and is not needed."""
    WARM_PROMOTE = "warm.promote"
    WARM_REFILL = "warm.refill"
    SURPLUS_STOP = "surplus.stop"
    HOLD_STOP = "hold.stop"
    DRAIN_MOVE = "drain.move"
    """An instance leaves a node that is emptied, for another node where that is possible."""
    DRAIN_WAIT = "drain.wait"
    """An instance cannot leave such a node yet, or is not started before the node is open again."""
    DRAIN_DEADLINE = "drain.deadline"
    """The time for emptying a node is over: what is left is stopped."""
    DEPLOY_START = "deploy.start"
    """A deployment begins or goes on, or starts an instance by its target."""
    DEPLOY_RETIRE = "deploy.retire"
    """A deployment parts with an instance of another revision."""
    DEPLOY_GATE = "deploy.gate"
    """The first instances of a deployment are watched, or were watched for long enough."""
    DEPLOY_FAIL = "deploy.fail"
    DEPLOY_ROLLBACK = "deploy.rollback"
    DEPENDS_WAIT = "depends.wait"
    RECONNECT_WAIT = "reconnect.wait"
    PLACE_REFUSE = "place.refuse"
    OPERATOR = "operator"


DRAIN_RULES: Final = frozenset({Rule.DRAIN_MOVE, Rule.DRAIN_WAIT, Rule.DRAIN_DEADLINE})


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
    deployment: str = ""
    """The deployment that the decision is about, or belongs to."""
    rejected_counts: dict[str, int] = {}
    """How many alternatives were rejected, by code: those in `rejected` are the first of them."""
    ties: tuple[str, ...] = ()
    """Nodes that had the same score as the chosen one."""
    causes: tuple[str, ...] = ()
    """What led to it, the nearest first: `event:EPOCH-SEQUENCE`, `crash:ID`, `players:INSTANCE`,
    `request:ID`, `dec-…`."""
    root: str = ""
    """The first of its chain of causes."""
    wake_at: dt.datetime | None = None
    """When it is looked at again without a further event."""
