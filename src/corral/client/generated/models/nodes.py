"""Structures of `nodes`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType, field

from corral.client.enums import OpenEnum
from corral.client.generated.models.shared import (
    Admission,
    InstanceState,
    ModuleIntent,
    ModulePhase,
    ModuleUsage,
    NodeState,
    NodeSummary,
)


class JoinTokenState(OpenEnum):
    """Join token state."""

    EXPIRED = "expired"
    USABLE = "usable"
    USED = "used"


class DrainWaitFor(OpenEnum):
    """What an instance on a node that is emptied waits for."""

    NODE = "node"
    PLAYERS = "players"
    ROOM = "room"
    STOP = "stop"
    TURN = "turn"


class JoinTokenPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[JoinToken, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class JoinToken(Struct, frozen=True, kw_only=True):
    """A join token without its secret."""

    id: str
    """Id of the join token, `join-…`."""
    node_id: str | None
    """The only node id it may be used for; null: the host chooses."""
    state: JoinTokenState
    """Whether it can still be used."""
    replace: bool
    """true: a host that joins with it takes the place of the one that has this id."""
    labels: dict[str, str]
    """Labels that the node gets when it joins; they count before its own claims."""
    created_at: str
    """When it was made, in UTC."""
    created_by: str
    """Who made it, for example `token:tok-…`."""
    expires_at: str
    """When it stops being valid, in UTC; null: never."""
    used_at: str | None
    """When it was used, in UTC; null: it was not."""
    used_by: str | None
    """Node that used it; null: none did."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class NewJoinToken(Struct, frozen=True, kw_only=True):
    """A join token with its text, which is shown this once, and the command that uses it."""

    id: str
    """Id of the join token, `join-…`."""
    node_id: str | None
    """The only node id it may be used for; null: the host chooses."""
    expires_at: str
    """When it stops being valid, in UTC; null: never."""
    replace: bool
    """true: a host that joins with it takes the place of the one that has this id."""
    token: str
    """Its text, shown this once."""
    command: str
    """The command for the new host."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class NodePage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Node, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Node(Struct, frozen=True, kw_only=True):
    """A node: what is stored about it, and its load while it is connected."""

    id: str
    """Id of the node, unique in the cluster."""
    state: NodeState
    """Whether the controller can reach it."""
    state_since: str
    """When it came into this state, in UTC."""
    reason: str
    """Why it is in this state."""
    admission: Admission
    """Whether it takes new instances: `open`, `cordoned`, `draining` or `drained`."""
    admission_reason: str
    """Why it takes none, as given with the change."""
    labels: dict[str, str]
    """Words about the node by key, for `node_labels` of groups and as `%LABEL_KEY%`. At most 64, of 63 characters each and 255 a value."""
    address: str
    """Host name or address at which players reach it."""
    memory_mb: int
    """Memory that counts for placement, in MiB."""
    reserved_memory_mb: int
    """Memory of `memory_mb` that is reserved for its instances, in MiB; the rest is free for placement."""
    used_memory_mb: int
    """Memory in use on the whole host, by whatever runs there, in MiB; 0 while it is not connected. No limit of operators concerns it."""
    cpus: int
    """Processor cores that count for placement."""
    cpu_usage: float
    """Share of all cores in use, from 0 to 1."""
    free_disk_mb: int
    """Free space on the disk of its data directory, in MiB."""
    instances: int
    """How many instances it has that have not ended."""
    used_ports: tuple[int, ...]
    """Ports that its instances hold."""
    runtimes: tuple[str, ...]
    """Runtimes that it offers."""
    capabilities: tuple[str, ...]
    """What its daemon has proven to hold there, for `node_capabilities` of groups: `memory-limit`, `cgroup-kill`, …."""
    session: str | None
    """Id of its present session; null: it is not connected. `state` follows as soon as the store has it."""
    last_seen: str | None
    """Time of its last message, in UTC, also after it has gone; null: there was none."""
    version: str
    """Version of its daemon."""
    host: dict[str, str | int]
    """Facts that the host reports: kernel, processor, operating system."""
    machine_id: str
    """Id of the host's installation, by which a copied node is found."""
    enrolled_at: str
    """When it joined, in UTC."""
    log_level: str
    """Log level that was switched on at run time; empty: that of its configuration."""
    claims: NodeClaims
    """Values that the node reports; the fields above are those in effect."""
    settings: NodeSettings
    """What operators decided about it; it counts before the claims."""
    stray_count: int
    """How many runs it has that nothing proves to be of this cluster."""
    strays: tuple[StrayRun, ...]
    """The first of these runs; they are left alone."""
    drain: NodeDrain | None
    """The order to empty it, until it is undrained; null: there is none."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class NodeClaims(Struct, frozen=True, kw_only=True):
    """Of one handshake."""

    labels: dict[str, str] = field(default_factory=dict)
    """Labels of the node's configuration."""
    memory_mb: int = 0
    """Memory that the node reports, in MiB."""
    cpus: int = 0
    """Cores that the node reports."""
    runtimes: tuple[str, ...] | UnsetType = UNSET
    """Runtimes that the node reports."""


class NodeSettings(Struct, frozen=True, kw_only=True):
    """Settings of operators; everything empty: the node's claims apply."""

    labels: dict[str, str] = field(default_factory=dict)
    """Labels that operators set."""
    withheld: tuple[str, ...] | UnsetType = UNSET
    """Keys of labels that the node has not, whatever it claims."""
    memory_mb: int = 0
    """Bound of the memory that counts, in MiB; 0: as claimed."""
    cpus: int = 0
    """Bound of the cores that count; 0: as claimed."""
    runtimes: tuple[str, ...] | UnsetType = UNSET
    """The only runtimes that count; empty: as claimed."""


class StrayRun(Struct, frozen=True, kw_only=True):
    """A run on a node that nothing proves to be one of this cluster's."""

    instance: str
    """Id of the instance."""
    group: str
    """Name of the group."""
    incarnation: int
    """Number of the run. Each run of an instance has another one, and none is used twice."""
    reason: str
    """Why it does not count as one of this cluster's."""


class NodeDrain(Struct, frozen=True, kw_only=True):
    """An order to empty a node, kept until the node is undrained."""

    id: str
    """Id of the drain; a second order for the same node keeps it."""
    by: str
    """Who ordered it."""
    reason: str
    """Why, as the operator wrote it."""
    started_at: str
    """When it was ordered, in UTC."""
    deadline_at: str | None
    """When what is left is stopped, players or not, in UTC; null: never."""
    shutdown: bool
    """Whether the daemon ends when the node is empty."""
    was_cordoned: bool
    """Whether the node was cordoned before, and is again when it is undrained."""
    drained_at: str | None
    """When the last instance there had ended, in UTC; null: not yet."""
    exit_ordered_at: str | None
    """When the daemon accepted to end, in UTC; null: it did not."""
    progress: DrainProgress
    """How many instances have gone, and what the others wait for."""
    instances: tuple[DrainLine, ...]
    """The first 200 instances that are still there."""
    ack: DrainAck | None
    """The node's own answer to the drain; null: it is not connected, or has not answered."""


class DrainProgress(Struct, frozen=True, kw_only=True):
    """The instances of a node that is emptied: each that has not ended is counted once."""

    total: int = 0
    """How many instances lived there at the beginning."""
    moved: int = 0
    """How many of them have ended."""
    waiting_players: int = 0
    """How many take no more players, and wait for those they have to leave."""
    waiting_room: int = 0
    """How many wait for room for a replacement on another node."""
    waiting_turn: int = 0
    """How many wait for a replacement that starts, or for others that come first."""
    stopping: int = 0
    """How many are being stopped."""
    unreachable: int = 0
    """How many are out of reach with their node."""
    deadline_at: str | None = None
    """When what is left is stopped, in UTC; null: never."""


class DrainLine(Struct, frozen=True, kw_only=True):
    """One instance that is still on a node that is emptied."""

    id: str
    """Id of the instance."""
    group: str
    """Its group."""
    state: InstanceState
    """State of the instance."""
    players: int | None
    """How many players it has; null: not known."""
    waits_for: DrainWaitFor
    """What it waits for: its `players` to leave, `room` on another node, its `turn`, its `stop`, or its `node`, which is out of reach."""
    last_copy: bool
    """Whether every instance of its group is on nodes that are emptied."""
    empty_at: str | None = None
    """Where it waits for players and their number is not known, as after a start of the controller: when it counts as empty; else null. Not in the list of nodes."""


class DrainAck(Struct, frozen=True, kw_only=True):
    """Drain ack."""

    running_instances: int
    """How many instances run there, strays included."""
    estimated_seconds: int
    """How long their stops take at most, by the longest stop ladder."""


class NodeSummaryPage(Struct, frozen=True, kw_only=True):
    """Some summaries of a list; `total` counts all that the query finds and the caller may see, on all pages."""

    items: tuple[NodeSummary, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""
    total: int
    """How many items there are on all pages together."""


class CacheReport(Struct, frozen=True, kw_only=True):
    """A node's cache, as the node reported it."""

    node: str
    """Id of the node."""
    total_bytes: int
    """Size of the cache, in bytes."""
    quota_bytes: int
    """Size above which the node removes what nothing needs, in bytes."""
    templates: tuple[CachedTemplate, ...] | UnsetType = UNSET
    """Template versions that are there."""
    artifacts: tuple[CachedArtifact, ...] | UnsetType = UNSET
    """Programs and extensions that are there."""
    bootstraps: tuple[CachedBootstrap, ...] | UnsetType = UNSET
    """Kept results of first runs."""
    failures: tuple[CacheTrouble, ...] | UnsetType = UNSET
    """What the node was asked to fetch and could not."""


class CachedTemplate(Struct, frozen=True, kw_only=True):
    """Cached template."""

    name: str
    """Name of the template."""
    hash: str
    """Hash of the version's files."""
    version: int | None
    """Number of the version; null: the controller has it no more."""
    size: int
    """Size in bytes."""
    last_used: str | None
    """When a start last used it, in UTC."""


class CachedArtifact(Struct, frozen=True, kw_only=True):
    """Cached artifact."""

    platform: str
    """Name of the program, such as `paper`."""
    version: str
    """Version of the program."""
    file: str
    """File name that it gets in working directories."""
    size: int
    """Size in bytes; 0: not known yet."""
    sha256: str
    """SHA-256 of the content, 64 hexadecimal digits."""
    cached_at: str | None
    """When it was fetched, in UTC."""


class CachedBootstrap(Struct, frozen=True, kw_only=True):
    """The files that a first run of a program made."""

    config_format: str
    """Label for the family of configuration files the program reads."""
    version: str
    """Version of the program."""
    size: int
    """Size in bytes."""


class CacheTrouble(Struct, frozen=True, kw_only=True):
    """Something that a node should fetch and could not."""

    subject: str
    """What was to be fetched."""
    code: str
    """Error code, as in docs/reference/errors.md."""
    message: str
    """What happened and why, for people."""


class ModuleOnNodePage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[ModuleOnNode, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class ModuleOnNode(Struct, frozen=True, kw_only=True):
    """A module of a node; `installed` is null when the node shall not have it (any more)."""

    node: str
    """Id of the node."""
    connected: bool
    """Whether the node is connected now."""
    phase: ModulePhase | None
    """Phase of the module there; null: the node has reported nothing yet."""
    version: str
    """Version that the node has; empty: none."""
    sha256: str
    """SHA-256 of the archive that the node has."""
    intent: ModuleIntent | None
    """The intent as the node has it; null: it has reported nothing yet."""
    reason: str
    """Why, as a sentence for people; empty: there is none."""
    error: str
    """The error there; empty for callers that may not read logs."""
    current: bool
    """Whether the node has the installed archive."""
    refused: bool
    """true: the installed archive did not come up there, and is not sent again before an operator recovers it."""
    declined: bool
    """true: it runs, but not with the settings or signature that it was given last."""
    pending: tuple[str, ...]
    """Requests of an operator that the node has not done yet."""
    settled: bool
    """Whether nothing of it is under way."""
    progress: str
    """While an archive is on its way: `offered`, `fetching 12 of 40 MB`, `ordered`."""
    updated_at: str | None
    """Time of the node's last report about it, in UTC; null: there was none."""
    live: ModuleUsage | None
    """What its process there uses, as the node reported last; null: it has none, or the node is not connected."""
    module: str
    """Id of the module."""
    installed: str | None
    """Version that the node shall have; null: it shall have none."""
