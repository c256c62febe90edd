"""Probes: how a node detects that an instance is ready and how many players it has, and the check of probes
that could never succeed."""

from __future__ import annotations

import enum
from collections.abc import Collection, Sequence
from typing import Annotated, Final, Literal

import msgspec

from corral.domain.patterns import compile_bytes
from corral.domain.spec import Argument, Spec, invalid
from corral.errors import Code, unknown_choice


class ProbeKind(enum.StrEnum):
    LOG = "log"
    """A line of the console matches `pattern`."""
    TCP = "tcp"
    """`port` accepts a connection."""
    HTTP = "http"
    """GET `path` at `port` answers with a status of `statuses`."""
    MINECRAFT = "minecraft"
    """`port` answers a server list ping; gives player counts, also after the instance is ready."""
    COMMAND = "command"
    """`command`, run beside the workload with its user, directory and environment, exits with 0."""
    LISTEN = "listen"
    """A process of the run has a socket on `port`: for TCP and UDP, without a word to it."""
    WORKLOAD = "workload"
    """The workload itself calls POST /api/v1/workload/ready."""


PRIMARY: str = "primary"


class ProbeSpec(Spec, frozen=True, kw_only=True):
    """One probe. An instance is ready once each of its probes has succeeded."""

    kind: ProbeKind
    pattern: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Of a `log` probe; RE2."""
    port: Annotated[str, msgspec.Meta(max_length=63)] = PRIMARY
    """The name of the port."""
    protocol: Literal["tcp", "udp"] | None = None
    """Of a `listen` probe; none: that of the port, of which one suffices where it is `both`."""
    path: Annotated[str, msgspec.Meta(max_length=2048)] = "/"
    statuses: tuple[Annotated[int, msgspec.Meta(ge=100, le=599)], ...] = ()
    """Empty: 200 to 399."""
    command: tuple[Argument, ...] = ()
    interval_ms: Annotated[int, msgspec.Meta(ge=50, le=3_600_000)] = 500
    timeout_ms: Annotated[int, msgspec.Meta(ge=10, le=600_000)] = 5000
    """Of one attempt."""


MAX_PROBES: Final = 32
_WITH_PORT: Final = frozenset({ProbeKind.TCP, ProbeKind.HTTP, ProbeKind.MINECRAFT, ProbeKind.LISTEN})


def check_probes(probes: Sequence[ProbeSpec], ports: Collection[str], *, field: str = "probes") -> None:
    """`ports`: the names of the group's ports."""
    if len(probes) > MAX_PROBES:
        raise invalid(field, f"{len(probes)} probes are more than {MAX_PROBES}", "leave some out")
    for position, probe in enumerate(probes):
        _check_probe(probe, ports, f"{field}/{position}")


def _check_probe(probe: ProbeSpec, ports: Collection[str], field: str) -> None:
    kind = probe.kind
    if kind is ProbeKind.LOG:
        if not probe.pattern:
            raise invalid(f"{field}/pattern", "a log probe needs a pattern", r'for example "Done \\("')
        compile_bytes(probe.pattern, field=f"{field}/pattern")
    elif probe.pattern:
        raise invalid(f"{field}/pattern", f"a {kind} probe has no pattern", "leave it out")
    if kind is ProbeKind.COMMAND:
        if not probe.command or not probe.command[0]:
            raise invalid(
                f"{field}/command", "a command probe needs a command", 'for example ["test", "-f", "up"]'
            )
        if any("\0" in argument for argument in probe.command):
            raise invalid(f"{field}/command", "it holds a NUL character", "leave it out")
    elif probe.command:
        raise invalid(f"{field}/command", f"a {kind} probe has no command", "leave it out")
    if probe.protocol is not None and kind is not ProbeKind.LISTEN:
        raise invalid(f"{field}/protocol", f"a {kind} probe has no protocol", "leave it out")
    if kind is ProbeKind.HTTP:
        _check_http_path(probe.path, f"{field}/path")
    if kind in _WITH_PORT and probe.port not in ports:
        if not ports:
            raise invalid(
                f"{field}/port", f"a {kind} probe needs a port, the group has none", "add it to ports"
            )
        raise unknown_choice("port", probe.port, ports, code=Code.INVALID_FIELD, field=f"{field}/port")


def _check_http_path(path: str, field: str) -> None:
    if not path.startswith("/"):
        raise invalid(field, f"{path[:80]!r} does not begin with '/'", 'for example "/health"')
    if not path.isascii() or any(sign <= " " or sign == "\x7f" for sign in path):
        raise invalid(
            field, "it holds a space, a control character or one beyond ASCII", "write it percent-encoded"
        )
