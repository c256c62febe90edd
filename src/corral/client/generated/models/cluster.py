"""Structures of `cluster`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import Struct


class Cluster(Struct, frozen=True, kw_only=True):
    """`commit` is the number of the last change; `nodes` counts those within the scope of the caller by state. `unreadable`
    are documents of the store that cannot be read, for callers without a scope: they are left as they are, and everything
    else works."""

    id: str
    """Id of the cluster, given once."""
    created_at: str
    """When it was made, in UTC."""
    leader: LeaderView
    """The controller that leads."""
    members: tuple[MemberView, ...]
    """All controllers that are known."""
    version: str
    """Version of the controller that answers."""
    store: str
    """Kind of the store: `sqlite` or `postgres`."""
    nodes: dict[str, int]
    """How many nodes there are in each state."""
    commit: int
    """Number of the last change of the store."""
    unreadable: tuple[Unreadable, ...]
    """Documents that cannot be read; they are left as they are."""
    notes: tuple[str, ...]
    """What is not as it should be and does not stop anything; as in `/ready`."""


class LeaderView(Struct, frozen=True, kw_only=True):
    """Who leads, under which epoch, and where it is reached."""

    holder: str
    """Id of the controller."""
    epoch: int
    """Its term; each leader has a higher one than the leader before."""
    http: str
    """Address of its API."""
    grpc: str
    """Address for daemons."""


class MemberView(Struct, frozen=True, kw_only=True):
    """A controller of the cluster."""

    id: str
    """Id of the controller."""
    role: str
    """`leader` or `standby`."""
    http: str
    """Address of its API."""
    grpc: str
    """Address for daemons."""
    version: str
    """Its version."""


class Unreadable(Struct, frozen=True, kw_only=True):
    """An unreadable document of the store, and the reason."""

    collection: str
    """Kind of the document."""
    id: str
    """Key of the document."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""
    reason: str
    """What is wrong with it."""


class Epoch(Struct, frozen=True, kw_only=True):
    """Epoch."""

    epoch: int
    """The new epoch."""


class ShutDownShape(Struct, frozen=True, kw_only=True):
    """The controller that ends now. Another one takes the lead, if there is one; instances go on in any case."""

    holder: str
    """Id of the controller that ends."""
    http: str
    """Its address."""


class SequenceShape(Struct, frozen=True, kw_only=True):
    """`before` is how far the counter had been moved, `highest_used` the highest number of a start that a
    record has; `ignored` records have a number that no cluster reaches."""

    before: int
    """How far the counter had been moved."""
    highest_used: int
    """The highest number of a start that a record has."""
    ignored: int
    """How many records have a number that no cluster reaches."""


class IssuedCertificate(Struct, frozen=True, kw_only=True):
    """Issued certificate."""

    certificate_pem: str
    """The certificate in PEM form."""
    ca_pem: str
    """Certificate of the cluster's authority in PEM form."""
    serial: str
    """Serial number, by which it can be refused."""
    expires_at: str
    """When it stops being valid, in UTC; null: never."""
