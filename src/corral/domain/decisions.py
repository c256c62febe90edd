"""Decisions: a value with a reason, and the alternatives that were not chosen."""

from __future__ import annotations

import datetime as dt
import enum

import msgspec

from corral.domain.ids import DecisionId, Epoch


class DecisionKind(enum.StrEnum):
    START = "start"
    STOP = "stop"
    SKIP = "skip"
    PLACE = "place"
    SCALE = "scale"
    RESTART = "restart"
    REFUSE = "refuse"


class Alternative(msgspec.Struct, frozen=True, kw_only=True):
    """Something that was considered and not done."""

    subject: str
    reason: str


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded before it is executed; `cause` names the event, request or decision behind it."""

    id: DecisionId
    cause: str
    kind: DecisionKind
    subject: str
    reason: str
    epoch: Epoch
    at: dt.datetime
    inputs: dict[str, str | int | float | bool] = {}
    rejected: tuple[Alternative, ...] = ()
    request: str = ""
    """The id of the request behind it, as in log records; empty: no request."""

    def explain(self) -> str:
        """One paragraph for `corral why`."""
        lines = [f"{self.kind} {self.subject}: {self.reason} (cause {self.cause})"]
        lines += [f"  not {other.subject}: {other.reason}" for other in self.rejected]
        return "\n".join(lines)
