"""Claims of a node about itself, and the settings of operators that override them.

Labels, memory, CPUs and runtimes in a handshake are claims. The holder of a node's certificate may claim
anything, so what must not be claimed has label keys that begin with `trusted.`: only operators set those.

Labels have one rule, for the configuration that sets them and the controller that accepts them. Times that
nodes report are bounded by the clock of the controller, for a node's clock may be wrong.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from corral.errors import Code, Rejected

TRUSTED: Final = "trusted."
MOST_MEMORY_MB: Final = 2**30
MOST_CPUS: Final = 2**16
MOST_PLAYERS: Final = 1_000_000
"""Of one instance, whoever reports them."""
RECONNECT_MAX_SECONDS: Final = 15.0
"""Of a node that does not report it: the default of its configuration."""
_LONGEST_RECONNECT_SECONDS: Final = 300.0
"""A node is waited for three times as long before its instances are replaced: it must not hold that up for ever."""


class NodeClaims(msgspec.Struct, frozen=True, kw_only=True):
    """Of one handshake."""

    labels: dict[str, str] = {}
    memory_mb: int = 0
    cpus: int = 0
    runtimes: tuple[str, ...] = ()


RUNTIMES: Final = ("process", "screen", "tmux")
"""The runtimes of Corral itself; nodes may have others."""


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of operators; everything empty: the node's claims apply."""

    labels: dict[str, str] = {}
    withheld: tuple[str, ...] = ()
    """Keys of labels that the node does not have, whatever it claims."""
    memory_mb: int = 0
    """Upper bound; 0: as claimed."""
    cpus: int = 0
    runtimes: tuple[str, ...] = ()
    """Only these apply; empty: all that are claimed."""


def checked_claims(
    labels: Mapping[str, str], *, memory_mb: int, cpus: int, runtimes: tuple[str, ...]
) -> tuple[NodeClaims, tuple[str, ...]]:
    """The claims that a node may make, and the keys of those labels that it may not."""
    refused = tuple(sorted(key for key in labels if key.startswith(TRUSTED)))
    claims = NodeClaims(
        labels={key: value for key, value in labels.items() if key not in refused},
        memory_mb=min(max(0, memory_mb), MOST_MEMORY_MB),
        cpus=min(max(0, cpus), MOST_CPUS),
        runtimes=runtimes,
    )
    return claims, refused


def in_force(claims: NodeClaims, settings: NodeSettings) -> NodeClaims:
    """The effective values of both."""
    claimed = {key: value for key, value in claims.labels.items() if key not in settings.withheld}
    allowed = settings.runtimes or claims.runtimes
    return NodeClaims(
        labels={**claimed, **settings.labels},
        memory_mb=min(claims.memory_mb, settings.memory_mb) if settings.memory_mb else claims.memory_mb,
        cpus=min(claims.cpus, settings.cpus) if settings.cpus else claims.cpus,
        runtimes=tuple(name for name in claims.runtimes if name in allowed),
    )


def differences(old: NodeClaims, new: NodeClaims) -> dict[str, Any]:
    """By field, the old and the new claim; empty when they are the same."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    return {field: [before[field], after[field]] for field in after if before[field] != after[field]}


_MAX_LABELS: Final = 64
_KEY: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,61}[A-Za-z0-9])?")
_MAX_VALUE: Final = 255


def check_labels(labels: Mapping[str, str], *, field: str = "labels") -> None:
    """Refuse labels that could not be selected by: invalid keys, huge values, too many."""
    problem = ""
    if len(labels) > _MAX_LABELS:
        problem = f"{len(labels)} labels are more than {_MAX_LABELS}"
    for key, value in labels.items():
        if _KEY.fullmatch(key) is None:
            problem = f"{key[:80]!r} is not a label"
        elif len(value) > _MAX_VALUE or not value.isprintable():
            problem = f"the value of label {key!r} is longer than {_MAX_VALUE} or not printable"
    if problem:
        raise Rejected(
            Code.INVALID_FIELD,
            problem,
            hint="a key has 1 to 63 letters, digits, '.', '_', '-' and '/', with a letter or digit at both ends",
            field=field,
        )


_OLDEST: Final = dt.timedelta(days=3650)
"""No run on a node is older."""


def reported_reconnect_max(milliseconds: int) -> float:
    """A node's longest pause between two attempts to connect, in seconds, as far as it is plausible."""
    if milliseconds <= 0:
        return RECONNECT_MAX_SECONDS
    return min(milliseconds / 1000, _LONGEST_RECONNECT_SECONDS)


def reported_players(count: int) -> int:
    """A number of players of one instance, as far as it is plausible."""
    return min(max(0, count), MOST_PLAYERS)


def reported_time(milliseconds: int, now: dt.datetime) -> dt.datetime | None:
    """A reported time in milliseconds since 1970, not after now; None for none, and for an impossible one."""
    if milliseconds <= 0:
        return None
    try:
        at = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    except (OverflowError, ValueError, OSError):
        return now
    return min(at, now) if at > now - _OLDEST else None
