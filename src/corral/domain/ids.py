"""Ids: names and numbers. An id is checked once, where it enters."""

from __future__ import annotations

import re
from typing import Final, NewType

from corral.errors import Code, Rejected

NodeId = NewType("NodeId", str)
InstanceId = NewType("InstanceId", str)
GroupName = NewType("GroupName", str)
ModuleId = NewType("ModuleId", str)
TokenId = NewType("TokenId", str)
CallerId = NewType("CallerId", str)
"""The id of the credential that a caller has shown, such as its token."""
JoinTokenId = NewType("JoinTokenId", str)
SessionId = NewType("SessionId", str)
DecisionId = NewType("DecisionId", str)
ClusterId = NewType("ClusterId", str)
UserName = NewType("UserName", str)
UserSessionId = NewType("UserSessionId", str)
"""Of a login in a browser; a `SessionId` is of the link to a node."""

Epoch = NewType("Epoch", int)
"""Grows with each acquisition of leadership; orders of a lower one are refused."""

Incarnation = NewType("Incarnation", int)
"""One run of an instance: the pair (instance id, incarnation) is never used twice."""

EPOCH_LEAP: Final = 2**32
"""Added by a restore, so that no node takes the restored state for the present one."""

MAX_COUNTER: Final = 2**63 - 1
"""The largest number that both stores and every JSON reader of ours represent exactly."""

_NONCE: Final = re.compile(r"[A-Za-z0-9_-]{1,63}")
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
_RULE: Final = "use 1 to 63 of a-z, 0-9, '.', '_' and '-', beginning and ending with a letter or digit"


def checked_name(value: str, kind: str, field: str) -> str:
    """The name itself; INVALID_FIELD names the rule for names of this kind."""
    if _NAME.fullmatch(value) is None or ".." in value:
        shown = value if len(value) <= 80 else value[:77] + "..."
        raise Rejected(Code.INVALID_FIELD, f"{shown!r} is not a valid {kind}", hint=_RULE, field=field)
    return value


def node_id(value: str, *, field: str = "node_id") -> NodeId:
    return NodeId(checked_name(value, "node id", field))


def group_name(value: str, *, field: str = "name") -> GroupName:
    return GroupName(checked_name(value, "group name", field))


def instance_id(value: str, *, field: str = "instance_id") -> InstanceId:
    return InstanceId(checked_name(value, "instance id", field))


_DIGITS: Final = 19


def instance_number(id: str) -> tuple[str, int]:
    """Group and number of an id `GROUP-N` as the controller gives them out; number 0: it is none."""
    group, _, digits = id.rpartition("-")
    given = digits.isascii() and digits.isdecimal() and not digits.startswith("0") and len(digits) < _DIGITS
    return group, int(digits) if given else 0


RESTARTS_PER_START: Final = 1024
"""Each start that the controller decides gets this many incarnations: the first for the start, the
others for restarts that the node makes by itself, also while it has no controller."""


def run_nonce(value: str) -> str:
    """The nonce that separates a run from others with its number, as its node made it; empty for an invalid one."""
    return value if _NONCE.fullmatch(value) else ""


def first_incarnation(number: int) -> Incarnation:
    """The incarnation of the start with this number of the store's sequence (from 1)."""
    if not 0 < number <= MAX_COUNTER // RESTARTS_PER_START - 1:
        raise Rejected(
            Code.CONFLICT,
            "the incarnation counter is exhausted",
            hint="no cluster uses up its numbers: mend the counter with 'corral cluster repair-sequence'",
        )
    return Incarnation(number * RESTARTS_PER_START)


def start_number(incarnation: int) -> int:
    """The start that a run belongs to; its restarts by the node have the same."""
    return incarnation // RESTARTS_PER_START


NODE_STARTS: Final = 2**52
"""Starts that a node has to number itself, because its controller does not, have numbers from here on: no
store ever counts so far."""


def node_incarnation(now_ms: int, *, after: Incarnation | None) -> Incarnation:
    """The incarnation of a start without a number: by the node's clock, so that it is new also where earlier
    runs are unknown, and above the last known run."""
    number = NODE_STARTS + max(0, now_ms)
    if after is not None:
        number = max(number, after // RESTARTS_PER_START + 1)
    return first_incarnation(number)


def restart_incarnation(current: Incarnation) -> Incarnation | None:
    """The next run of the same start; None when its numbers are used up."""
    following = current + 1
    return None if following % RESTARTS_PER_START == 0 else Incarnation(following)


def same_start(one: Incarnation, other: Incarnation) -> bool:
    """Whether two runs belong to one start, the later being a restart by the node."""
    return start_number(one) == start_number(other)
