"""How a node finds out that an instance is ready, and how many players it has."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import msgspec

from corral.domain.spec import Argument, Spec


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
