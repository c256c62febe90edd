"""The plan of a run: exactly what is started, in a form whose hash both sides compute alike.

A plan holds nothing of a single run (id, ports, token): runs of one group share theirs, unless templates were
chosen at random for them. Secrets are in it by reference only.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from corral.domain.groups.group import Category, ConfigFormat, PatchSpec, StopRungSpec
from corral.domain.groups.instance_records import PlanRecord
from corral.domain.groups.probes import ProbeSpec
from corral.domain.spec import VariableSpec

PLAN_VERSION: Final = 2
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class PlanTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A layer of the working directory."""

    name: str
    version: int
    hash: str
    override: bool = True


class PlanArtifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the node fetches and checks."""

    platform: str = ""
    version: str = ""
    file: str
    """Its place in the working directory."""
    url: str = ""
    """Empty: from the controller, by its digest."""
    sha256: str
    size: int = 0


class PlanExtension(msgspec.Struct, frozen=True, kw_only=True):
    """`artifact.file` is where it goes, its install path included."""

    id: str
    variant: str = ""
    module: str = ""
    artifact: PlanArtifact


class PlanJvm(msgspec.Struct, frozen=True, kw_only=True):
    jar: str
    args: tuple[str, ...] = ()
    java: str = ""
    heap_mb: int = 0
    """0: the virtual machine decides."""


class PlanProbe(ProbeSpec, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=False):
    """A probe as in a plan: without default values, so that a node of an earlier version, which refuses an
    unknown field, refuses only what it cannot do."""


class PlanRestart(msgspec.Struct, frozen=True, kw_only=True):
    """Restarts by the node; see `RestartSpec`."""

    attempts: int = 1
    interval_seconds: int = 300
    delay_ms: int = 0
    max_delay_ms: int = 60_000


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a run's start."""

    version: int = PLAN_VERSION
    group: str
    runtime: str
    command: tuple[str, ...]
    """Empty: `jvm` has the program."""
    args: tuple[str, ...]
    env: dict[str, str]
    variables: dict[str, str]
    """All layers that are known before a start, merged; of a secret only its reference."""
    variable_types: dict[str, VariableSpec] = {}
    strict_variables: bool = False
    substitute: tuple[str, ...] = ()
    templates: tuple[PlanTemplate, ...] = ()
    """Parents included, in the order in which they are laid."""
    merge: tuple[str, ...] = ()
    patches: tuple[PatchSpec, ...] = ()
    artifact: PlanArtifact | None = None
    extensions: tuple[PlanExtension, ...] = ()
    jvm: PlanJvm | None = None
    warm_paths: tuple[str, ...] = ()
    category: Category = Category.NONE
    config_format: ConfigFormat = ConfigFormat.NONE
    static: bool = False
    protected_paths: tuple[str, ...] = ()
    probes: tuple[PlanProbe, ...] = ()
    memory_mb: int
    cpu: float
    pids: int
    disk_mb: int = 0
    console_mb: int
    max_players: int
    host_address: str = ""
    """May hold `%NAME%`; empty: the node's."""
    run_as: str
    isolate: str
    stdin: str
    tty: bool
    line_buffered: bool
    stop: tuple[StopRungSpec, ...]
    startup_timeout_seconds: int
    min_alive_ms: int
    max_lifetime_seconds: int
    crash_keep_seconds: int
    restart: PlanRestart
    restart_on: str = "always"
    """Separate from `restart`, in which a node of an earlier version refuses an unknown field."""
    clean_exit_codes: tuple[int, ...] = ()
    stop_after_seconds: int = 0
    """Without a controller for so long, its node stops it; 0: never."""


def encode_plan(plan: Plan) -> PlanRecord:
    """As canonical JSON (sorted keys, no white space) with its SHA-256."""
    body = _ENCODER.encode(plan)
    return PlanRecord(hash=plan_hash(body), body=body.decode())


def plan_hash(body: bytes) -> str:
    """Of the canonical JSON; computed by the controller and again by the node."""
    return hashlib.sha256(body).hexdigest()


def read_plan(record: PlanRecord) -> Plan:
    """Ignores fields that a newer version may add."""
    return msgspec.json.decode(record.body, type=Plan)
