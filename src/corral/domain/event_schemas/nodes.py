"""Schemas of events about nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final

from msgspec import UNSET, UnsetType, field

from corral.domain.event_schemas.schema import By, Decision, EventData, EventSchema, Reason, said
from corral.domain.events import EventType
from corral.domain.node_states import Admission, NodeState

Drain = Annotated[str, said("Id of the drain; empty: one of an earlier version.", "drn-01JD4ZK7")]
Before = Annotated[NodeState, said("The state it was in before.", "ONLINE")]
Shutdown = Annotated[bool, said("Whether its daemon is shut down when it is empty.", False)]
Deadline = Annotated[
    str | None, said("When what is left is stopped; null: never.", "2026-01-01T13:00:00+00:00")
]
Total = Annotated[int, said("The instances that lived there at the beginning.", 7)]


class NodeEnrolledData(EventData, frozen=True, kw_only=True):
    """How a node came in."""

    replaced: Annotated[bool, said("Whether it took over an id.", False)]


class NodeOnlineData(EventData, frozen=True, kw_only=True):
    """The session that opened."""

    session: Annotated[str, said("Id of the session.", "ses-01JD4ZK7")]
    version: Annotated[str, said("Version of its daemon.", "0.1.0")]
    from_: Before = field(name="from")
    rebooted: Annotated[bool, said("Whether the host started anew since the last session.", False)]


class NodeAwayData(EventData, frozen=True, kw_only=True):
    """Why a node is away."""

    reason: Reason
    from_: Before = field(name="from")


class NodeReasonData(EventData, frozen=True, kw_only=True):
    """Why an operator did it."""

    reason: Reason


class NodeRemovedData(EventData, frozen=True, kw_only=True):
    """The state a forgotten node was in."""

    state: Annotated[NodeState, said("The state it was in.", "DISCONNECTED")]


class NodeDrainingData(EventData, frozen=True, kw_only=True):
    """A drain as it was ordered."""

    drain: Drain
    by: By
    reason: Reason
    deadline_at: Deadline
    shutdown: Shutdown
    total: Total
    decision: Decision


class NodeDrainProgressData(EventData, frozen=True, kw_only=True):
    """How far a drain is; each instance that has not ended is counted once."""

    drain: Drain
    total: Total
    moved: Annotated[int, said("Those of them that have ended.", 3)]
    waiting_players: Annotated[int, said("They take no more players, and still have some.", 2)]
    waiting_room: Annotated[int, said("No node has room for a replacement.", 0)]
    waiting_turn: Annotated[int, said("Their replacements start, or others come first.", 1)]
    stopping: Annotated[int, said("They are being stopped.", 1)]
    unreachable: Annotated[int, said("The node is out of reach: it is not known whether they live.", 0)]
    deadline_at: Deadline


class NodeDrainedData(EventData, frozen=True, kw_only=True):
    """The drain that is finished."""

    drain: Drain
    shutdown: Shutdown
    decision: Decision


class NodeUndrainedData(EventData, frozen=True, kw_only=True):
    """The drain that is ended."""

    drain: Drain
    reason: Reason
    admission: Annotated[
        Admission, said("Whether it takes instances now; `cordoned` if it was before.", "open")
    ]
    decision: Decision


class NodeClaimsChangedData(EventData, frozen=True, kw_only=True):
    """By field, what the node claimed before and claims now; a field that is the same is left out."""

    labels: (
        Annotated[list[dict[str, str]], said("Labels, before and now.", [{}, {"zone": "a"}])] | UnsetType
    ) = UNSET
    memory_mb: Annotated[list[int], said("Memory in MiB, before and now.", [16000, 24000])] | UnsetType = (
        UNSET
    )
    cpus: Annotated[list[int], said("Processors, before and now.", [4, 8])] | UnsetType = UNSET
    runtimes: (
        Annotated[list[list[str]], said("Runtimes, before and now.", [["process"], ["process", "tmux"]])]
        | UnsetType
    ) = UNSET


class NodeConfiguredData(EventData, frozen=True, kw_only=True):
    """An operator's settings as they are now; one that is not set is left out."""

    labels: (
        Annotated[dict[str, str], said("Labels that it has, whatever it claims.", {"zone": "a"})] | UnsetType
    ) = UNSET
    withheld: (
        Annotated[list[str], said("Keys of labels that it does not have, whatever it claims.", ["gpu"])]
        | UnsetType
    ) = UNSET
    memory_mb: Annotated[int, said("At most so many MiB of memory count.", 16000)] | UnsetType = UNSET
    cpus: Annotated[int, said("At most so many processors count.", 4)] | UnsetType = UNSET
    runtimes: Annotated[list[str], said("Only these runtimes count.", ["process"])] | UnsetType = UNSET


class NodeCertificateRenewedData(EventData, frozen=True, kw_only=True):
    """The new certificate."""

    not_after: Annotated[str, said("When it ends.", "2026-02-01T12:00:00+00:00")]


class NodeErrorReportedData(EventData, frozen=True, kw_only=True):
    """What a node reported."""

    code: Annotated[str, said("Code of the error.", "DISK_FULL")]
    message: Annotated[str, said("What happened, as the node says it.", "no space left in the cache")]
    context: Annotated[str, said("Where it happened.", "template sync")]
    suppressed_before: Annotated[int, said("How many reports were left out before this one, as too many.", 0)]


_T = EventType
SCHEMAS: Final[Mapping[EventType, EventSchema]] = {
    _T.NODE_ENROLLED: EventSchema("A host exchanged a join token.", NodeEnrolledData),
    _T.NODE_ONLINE: EventSchema("A session opened.", NodeOnlineData),
    _T.NODE_DISCONNECTED: EventSchema("A node's stream ended.", NodeAwayData),
    _T.NODE_UNREACHABLE: EventSchema("A node left too many pings unanswered.", NodeAwayData),
    _T.NODE_REVOKED: EventSchema("A node's certificates are refused from now on.", NodeReasonData),
    _T.NODE_REMOVED: EventSchema("A node was forgotten.", NodeRemovedData),
    _T.NODE_CORDONED: EventSchema("A node takes no new instances.", NodeReasonData),
    _T.NODE_UNCORDONED: EventSchema("A node takes new instances again.", NodeReasonData),
    _T.NODE_DRAINING: EventSchema(
        "A node is emptied. Once more when an operator changes something of the drain.", NodeDrainingData
    ),
    _T.NODE_DRAIN_PROGRESS: EventSchema(
        "Instances have left a node that is emptied, or wait for something else. At most one every five seconds for a node.",
        NodeDrainProgressData,
    ),
    _T.NODE_DRAINED: EventSchema("The last instance on a node that was emptied has ended.", NodeDrainedData),
    _T.NODE_UNDRAINED: EventSchema("A node is not emptied any more.", NodeUndrainedData),
    _T.NODE_CLAIMS_CHANGED: EventSchema(
        "A node connected and reports other values than the last time.", NodeClaimsChangedData
    ),
    _T.NODE_CONFIGURED: EventSchema("An operator set labels or limits of a node.", NodeConfiguredData),
    _T.NODE_CERTIFICATE_RENEWED: EventSchema("A node got a new certificate.", NodeCertificateRenewedData),
    _T.NODE_ERROR_REPORTED: EventSchema("A node reported trouble.", NodeErrorReportedData),
}
