"""A scenario as values: nodes, groups, how instances start, how many players come, what fails, and what is expected."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Mapping
from typing import Any, Final

import msgspec

MOST_NODES: Final = 1_000
MOST_GROUPS: Final = 200
MOST_FAULTS: Final = 10_000
LONGEST_SECONDS: Final = 10 * 366 * 86_400
MOST_STEPS: Final = 5_000_000
"""Changes of the number of players in one run, of all groups."""
START: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts of a scenario."""


class RunSettings(Value, frozen=True, kw_only=True):
    seconds: int
    seed: int = 1
    start: dt.datetime = START


class NodeModel(Value, frozen=True, kw_only=True):
    """One node."""

    id: str
    memory_mb: int
    cpus: int
    disk_mb: int | None = None
    """None: more than anything needs."""
    labels: dict[str, str] = {}
    capabilities: tuple[str, ...] = ()
    runtimes: tuple[str, ...] = ()


class BootModel(Value, frozen=True, kw_only=True):
    """How instances of a group start."""

    seconds: tuple[float, float] = (10.0, 10.0)
    """From the order to start until it is ready: at least, at most."""
    crash: float = 0.0
    """How likely it is that a start ends in a crash before it is ready."""


class Seating(enum.StrEnum):
    """Which instances players choose."""

    PACK = "pack"
    """The fullest that has room; they leave the emptiest."""
    SPREAD = "spread"
    """The emptiest; they leave the fullest."""


class LoadModel(Value, frozen=True, kw_only=True):
    """How many players want to be on the instances of a group."""

    points: tuple[tuple[int, float], ...]
    """Seconds since the start, and the number then; in between it changes evenly."""
    noise: float = 0.0
    """By which share of the number it differs at most."""
    players: Seating = Seating.PACK
    step_seconds: int = 60
    """How often the number changes between two points."""
    repeat_seconds: int = 0
    """After so long the points begin anew; 0: they do not, and the last number stays."""


class FaultKind(enum.StrEnum):
    CUT = "cut"
    """A node loses its connection; what runs there goes on."""
    KILL = "kill"
    """A node loses its power; what runs there is gone."""
    LEADER = "leader"
    """Another controller leads: what is kept in memory only begins anew."""
    DRAIN = "drain"
    """An operator has a node emptied."""
    UNDRAIN = "undrain"
    """An operator lets a node take instances again."""
    DEPLOY = "deploy"
    """An operator deploys another version of a group."""


class Fault(Value, frozen=True, kw_only=True):
    """What breaks, or what an operator orders."""

    kind: FaultKind
    at: int
    node: str = ""
    group: str = ""
    boot: BootModel | None = None
    """How instances of a deployed version start; None: as those before."""
    seconds: int | None = None
    """How long; None: until the end. Of a drain, after how long what is left is stopped; None: players are waited for."""


class ExpectedBound(Value, frozen=True, kw_only=True):
    """The most that is expected of a figure."""

    figure: str
    group: str = ""
    """Empty: of all groups together."""
    most: float


class GroupFile(Value, frozen=True, kw_only=True):
    """A document of a group, and where it is written."""

    place: str
    body: Any
    file: str = ""
    """Its own file; empty: it is within the scenario, at `path`."""
    lines: Mapping[str, int] = {}
    """The lines of its top-level fields in that file, where they are known."""
    path: tuple[str | int, ...] = ()


class Scenario(Value, frozen=True, kw_only=True):
    run: RunSettings
    nodes: tuple[NodeModel, ...]
    groups: tuple[GroupFile, ...]
    boot: dict[str, BootModel] = {}
    load: dict[str, LoadModel] = {}
    faults: tuple[Fault, ...] = ()
    expect: tuple[ExpectedBound, ...] = ()
