"""Structures of `probes`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct, field


class Health(Struct, frozen=True, kw_only=True):
    """Health."""

    status: str
    """`ok`: the process is alive."""


class Ready(Struct, frozen=True, kw_only=True):
    """Ready."""

    status: str
    """`ready`: a write would be taken."""
    role: str
    """`leader`; a standby answers with an error."""
    epoch: int
    """Term of this leader."""
    notes: tuple[str, ...] = ()
    """What is not as it should be and does not stop anything."""


class Ping(Struct, frozen=True, kw_only=True):
    """`status`, `node_id`, `cluster_name` and `master` are Universe's names."""

    pong: bool
    """Always true."""
    version: str
    """Version of the controller."""
    build: str
    """Differs between two builds of the program, also under one version: a page that was loaded from another one should be loaded anew."""
    cluster: str | None
    """Id of the cluster; null: this controller does not lead."""
    status: str
    """Always `ok`, for clients of Universe."""
    node_id: str = field(name="nodeId")
    """Name of this controller, under which it holds the lease when it leads."""
    cluster_name: str | None = field(name="clusterName")
    """The same as `cluster`, for clients of Universe."""
    master: bool
    """Whether this controller leads."""
