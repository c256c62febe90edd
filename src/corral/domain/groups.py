"""What an operator says about a group: the document of the API, of files and of the store.

Parsed strictly, an unknown key is an error. What the types cannot say is checked by `check_group`.
"""

from __future__ import annotations

import enum
from typing import Annotated, Final

import msgspec

from corral.domain.ids import group_name, node_id
from corral.errors import Code, Rejected, unknown_choice

Count = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
Seconds = Annotated[int, msgspec.Meta(ge=0, le=31_536_000)]
Milliseconds = Annotated[int, msgspec.Meta(ge=0, le=86_400_000)]
PortNumber = Annotated[int, msgspec.Meta(ge=1, le=65_535)]
Argument = Annotated[str, msgspec.Meta(max_length=131_072)]

PRIMARY: Final = "primary"
BLOCKED_VARIABLES: Final = frozenset({"LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"})
"""Refused in `env`: they change what other programs of the run load before they can say no."""
RESERVED_PREFIX: Final = "CORRAL_"
SIGNALS: Final = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGKILL")
_MAX_ARGUMENT: Final = 128 * 1024
_MAX_NAME: Final = 56
"""So that `NAME-NUMBER` is a valid instance id."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """Base of the parts of a group document."""


class PortProtocol(enum.StrEnum):
    TCP = "tcp"
    UDP = "udp"
    BOTH = "both"


class PortSpec(Spec, frozen=True, kw_only=True):
    """A port each instance needs: any one of a range, or this one."""

    range: tuple[PortNumber, PortNumber] | None = None
    port: PortNumber | None = None
    protocol: PortProtocol = PortProtocol.BOTH

    def bounds(self) -> tuple[int, int]:
        if self.port is not None:
            return self.port, self.port
        assert self.range is not None
        return self.range


class StopRungSpec(Spec, frozen=True, kw_only=True):
    """One step of the stop ladder: say or signal something, then wait for the end."""

    command: Annotated[str, msgspec.Meta(max_length=4095)] | None = None
    signal: str | None = None
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 30.0


DEFAULT_LADDER: Final = (
    StopRungSpec(command="stop", wait_seconds=30.0),
    StopRungSpec(signal="SIGTERM", wait_seconds=10.0),
)
"""What follows the last rung is always the same: everything of the run is killed."""


class RestartSpec(Spec, frozen=True, kw_only=True):
    """Restarts on the same node, made by the node itself."""

    attempts: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 1
    """How many within `interval_seconds`; beyond that the controller decides."""
    interval_seconds: Seconds = 300
    delay_ms: Milliseconds = 0
    """Before the first; doubles with each, with jitter. 0: the first at once, the second after 1 s."""
    max_delay_ms: Milliseconds = 60_000


class CrashLoopSpec(Spec, frozen=True, kw_only=True):
    """When the controller stops trying for a while."""

    failures: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 3
    within_seconds: Seconds = 300
    pause_seconds: Seconds = 60
    """The first pause; doubles with each that follows, up to `max_pause_seconds`."""
    max_pause_seconds: Seconds = 3600


class Isolation(enum.StrEnum):
    SHARED = "shared"
    UID = "uid"


class StdinMode(enum.StrEnum):
    FIFO = "fifo"
    NONE = "none"


class GroupSpec(Spec, frozen=True, kw_only=True):
    """A group as its operator wants it."""

    name: str
    runtime: str = "process"
    command: tuple[Argument, ...] = ()
    args: tuple[Argument, ...] = ()
    env: dict[str, Argument] = {}
    variables: dict[str, Argument] = {}
    templates: tuple[str, ...] = ()
    min: Count = 0
    max: Count | None = None
    """None: no upper bound."""
    memory_mb: Annotated[int, msgspec.Meta(ge=0, le=16_777_216)] = 0
    """Reserved on the node and enforced there; 0: neither."""
    cpu: Annotated[float, msgspec.Meta(ge=0, le=4096)] = 0.0
    pids: Annotated[int, msgspec.Meta(ge=0, le=4_194_304)] = 0
    console_mb: Annotated[int, msgspec.Meta(ge=1, le=1_048_576)] = 256
    ports: dict[str, PortSpec] = {}
    max_players: Count = 0
    nodes: tuple[str, ...] = ()
    """Only on these nodes; empty: on any."""
    node_labels: dict[str, str] = {}
    run_as: str = ""
    isolate: Isolation = Isolation.SHARED
    stdin: StdinMode = StdinMode.FIFO
    tty: bool = False
    line_buffered: bool = False
    stop: tuple[StopRungSpec, ...] = DEFAULT_LADDER
    startup_timeout_seconds: Seconds = 60
    min_alive_ms: Milliseconds = 0
    max_lifetime_seconds: Seconds = 0
    crash_keep_seconds: Seconds = 3600
    restart: RestartSpec = RestartSpec()
    crash_loop: CrashLoopSpec = CrashLoopSpec()
    labels: dict[str, str] = {}
    properties: dict[str, str] = {}


def check_group(spec: GroupSpec) -> GroupSpec:
    """Refuse what cannot work, naming the field."""
    group_name(spec.name)
    if len(spec.name) > _MAX_NAME:
        raise _invalid("name", f"it has {len(spec.name)} characters", f"use at most {_MAX_NAME}")
    if spec.runtime != "process":
        raise unknown_choice(
            "runtime", spec.runtime[:80], ("process",), code=Code.INVALID_FIELD, field="runtime"
        )
    if not spec.command:
        raise _invalid("command", "a group needs a command", 'for example ["python3", "server.py"]')
    _check_texts(spec)
    if spec.templates:
        raise _invalid("templates", f"template '{spec.templates[0][:80]}' does not exist", "leave it out")
    if spec.max is not None and spec.max < spec.min:
        raise _invalid("max", f"max {spec.max} is less than min {spec.min}", "raise max, or leave it out")
    _check_ports(spec)
    _check_stop(spec)
    for position, id in enumerate(spec.nodes):
        node_id(id, field=f"nodes/{position}")
    if spec.startup_timeout_seconds and spec.min_alive_ms >= spec.startup_timeout_seconds * 1000:
        raise _invalid(
            "min_alive_ms", "no instance could be ready before startup_timeout_seconds", "make it shorter"
        )
    return spec


def _check_texts(spec: GroupSpec) -> None:
    for field, values in (("command", spec.command), ("args", spec.args)):
        for position, value in enumerate(values):
            _check_text(f"{field}/{position}", value)
    if not spec.command[0]:
        raise _invalid("command/0", "the program has no name", "name a program or its path")
    for name, value in spec.env.items():
        if not name or "=" in name or "\0" in name or len(name) > 256:
            raise _invalid("env", f"'{name[:80]}' cannot be the name of a variable", "use A-Z, 0-9 and _")
        if name in BLOCKED_VARIABLES or name.startswith(RESERVED_PREFIX):
            raise _invalid(f"env/{name[:80]}", f"'{name[:80]}' may not be set", "choose another name")
        _check_text(f"env/{name}", value)


def _check_text(field: str, value: str) -> None:
    if "\0" in value:
        raise _invalid(field, "it holds a NUL character", "leave it out")
    if len(value.encode(errors="surrogatepass")) > _MAX_ARGUMENT:
        raise _invalid(field, "it is longer than 128 KiB", "put long values into a file")


def _check_ports(spec: GroupSpec) -> None:
    for name, port in spec.ports.items():
        field = f"ports/{name[:80]}"
        group_name(name, field=field)
        if (port.range is None) == (port.port is None):
            raise _invalid(field, "a port is either a range or a number", '{"range": [30000, 30100]}')
        low, high = port.bounds()
        if low > high:
            raise _invalid(f"{field}/range", f"{low} is above {high}", "the lower bound comes first")


def _check_stop(spec: GroupSpec) -> None:
    for position, rung in enumerate(spec.stop):
        field = f"stop/{position}"
        if (rung.command is None) == (rung.signal is None):
            raise _invalid(field, "a rung is either a command or a signal", '{"signal": "SIGTERM"}')
        if rung.signal is not None and rung.signal not in SIGNALS:
            raise unknown_choice(
                "signal", rung.signal[:80], SIGNALS, code=Code.INVALID_FIELD, field=f"{field}/signal"
            )
        if rung.command is not None and ("\n" in rung.command or "\0" in rung.command):
            raise _invalid(f"{field}/command", "a command is one line", "use one rung a line")


def _invalid(field: str, why: str, hint: str) -> Rejected:
    return Rejected(Code.INVALID_FIELD, f"{field}: {why}", hint=hint, field=field)
