"""The documents of the control plane, as stored.

A record is replaced as a whole under compare-and-set; it never holds what belongs to the present session
(load, last contact), and never a secret in the clear.
"""

from __future__ import annotations

import datetime as dt
import enum

import msgspec

from corral.domain.bindings import EVERYTHING, Scope
from corral.domain.ids import CallerId, ClusterId, Incarnation, JoinTokenId, NodeId, TokenId, UserName
from corral.domain.node_claims import RECONNECT_MAX_SECONDS, NodeClaims, NodeSettings, in_force
from corral.domain.node_states import Admission, NodeState
from corral.domain.permissions import Role


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Base of all stored documents: frozen, and ignoring fields a newer version may add."""


class BootMoment(Record, frozen=True, kw_only=True):
    """A moment by the boot clock; valid on one machine until its next boot."""

    boot: str
    seconds: float


class ClusterRecord(Record, frozen=True, kw_only=True):
    """The identity of the cluster; made once."""

    id: ClusterId
    created_at: dt.datetime
    group_format: int = 0
    """The format to which stored groups were migrated."""


class SealedAuthority(Record, frozen=True, kw_only=True):
    """A certificate authority whose key is encrypted with the cluster key."""

    certificate_pem: str
    sealed_key: str
    created_at: dt.datetime


class AuthorityRecord(Record, frozen=True, kw_only=True):
    """The authority that issues, and older ones that are still trusted."""

    active: SealedAuthority
    retiring: tuple[SealedAuthority, ...] = ()


class Renewal(Record, frozen=True, kw_only=True):
    """A certificate that was issued to a node over its stream."""

    key_sha256: str
    certificate_pem: str
    serial: str


class NodeDrain(Record, frozen=True, kw_only=True):
    """An operator's order to empty a node; kept until an operator takes it back."""

    id: str
    by: str
    reason: str
    started_at: dt.datetime
    deadline_seconds: int | None = None
    """As it was asked for; None: there is no deadline."""
    deadline_at: dt.datetime | None = None
    """When everything that is left gets its stop, players or not; None: never."""
    deadline_ends: BootMoment | None = None
    """The same by the boot clock of the controller that leads; the wall clock may be set."""
    shutdown: bool = False
    """The daemon ends when the node is empty."""
    was_cordoned: bool = False
    """It was cordoned before, and is again afterwards."""
    cordon_reason: str = ""
    total: int = 0
    """The instances that lived there at its beginning."""
    decision: str = ""
    """The decision that began it, or changed it last."""
    request: str = ""
    """The id of the request behind that, for log records of what follows."""
    drained_at: dt.datetime | None = None
    """When the last instance there had ended; None: not yet."""
    exit_ordered_at: dt.datetime | None = None
    """When its daemon accepted to end; one that is started again is not ended a second time."""


class NodeRecord(Record, frozen=True, kw_only=True):
    """A host that may connect: its identity, whether it is reachable, whether it accepts instances."""

    id: NodeId
    state: NodeState
    state_since: dt.datetime
    reason: str
    admission: Admission = Admission.OPEN
    admission_reason: str = ""
    enrolled_at: dt.datetime
    serials: tuple[str, ...]
    """Serial numbers of the certificates it may use: the newest, and the last one it has used."""
    machine_id: str = ""
    boot_id: str = ""
    version: str = ""
    address: str = ""
    labels: dict[str, str] = {}
    """Labels, memory, CPUs and runtimes are the effective ones: the claims, as far as the settings allow."""
    memory_mb: int = 0
    cpus: int = 0
    runtimes: tuple[str, ...] = ()
    claims: NodeClaims | None = None
    """Of its last handshake; None: it had none since claims are stored separately, and the effective values
    are its claims."""
    settings: NodeSettings = NodeSettings()
    capabilities: tuple[str, ...] = ()
    """Features that its daemon has proven to work there, such as `cgroup-kill`."""
    host_info: dict[str, str | int] = {}
    worlds: tuple[str, ...] = ()
    """The instances whose static directories lay there when it last connected, as it reported."""
    static_directory: str = ""
    """Where they lie."""
    reconnect_max_seconds: float = RECONNECT_MAX_SECONDS
    """Its longest pause between two attempts to connect, as it reported, within bounds."""
    last_seen: dt.datetime | None = None
    """The last contact in its last session, as far as a leader could store it; None: there was none."""
    lost_at: dt.datetime | None = None
    """When its last session ended, by the clock of the leader that noticed it; None: it is connected, or never was."""
    drain: NodeDrain | None = None
    """While it is draining or drained."""
    log_level: str = ""
    renewal: Renewal | None = None
    """The last renewal: the same key gets the same certificate again, for answers get lost."""

    @property
    def claimed(self) -> NodeClaims:
        if self.claims is not None:
            return self.claims
        return NodeClaims(
            labels=self.labels, memory_mb=self.memory_mb, cpus=self.cpus, runtimes=self.runtimes
        )


def with_claims(record: NodeRecord, claims: NodeClaims, settings: NodeSettings) -> NodeRecord:
    """The node with these claims and settings, and the effective values."""
    found = in_force(claims, settings)
    return msgspec.structs.replace(
        record,
        claims=claims,
        settings=settings,
        labels=found.labels,
        memory_mb=found.memory_mb,
        cpus=found.cpus,
        runtimes=found.runtimes,
    )


class SpoolPosition(Record, frozen=True, kw_only=True):
    """How far a node's spool is stored; updated in the transaction of its records."""

    spool_id: str
    sequence: int


class JoinTokenRecord(Record, frozen=True, kw_only=True):
    """Permission to enrol one node, once."""

    id: JoinTokenId
    secret_sha256: str
    node_id: NodeId | None
    replace: bool
    created_at: dt.datetime
    expires_at: dt.datetime
    created_by: str
    labels: dict[str, str] = {}
    """Settings that the node gets from the operator who made the token."""
    used_at: dt.datetime | None = None
    used_by: NodeId | None = None
    used_key_sha256: str = ""
    """The public key it was used with: the same key may repeat the request, for the first answer may have
    been lost."""
    certificate_pem: str = ""


class ApiTokenRecord(Record, frozen=True, kw_only=True):
    """An API token; only the digest of its secret is kept."""

    id: TokenId
    name: str
    secret_sha256: str
    role: Role
    owner: UserName = UserName("admin")
    """Whose rights it has, as far as it does not narrow them; those from before there were users are the first user's."""
    permissions: frozenset[str] | None = None
    """Of those of its role, the ones that it has; None: all of them."""
    scope: Scope = EVERYTHING
    created_at: dt.datetime
    created_by: str
    expires_at: dt.datetime | None = None


class AdminCertificateRecord(Record, frozen=True, kw_only=True):
    """An administrator's certificate. It has the permissions of the token that requested it."""

    serial: str
    name: str
    token_id: TokenId
    expires_at: dt.datetime


class BegunEffect(Record, frozen=True, kw_only=True):
    """An effect of a request outside the store. Stored before it is carried out, so that it is not carried
    out twice."""

    token: CallerId
    """Whose request it is: the id of its credential."""
    id: str = ""
    """Sent with a command to its node, which executes it once."""
    node: NodeId = NodeId("")
    """The node and the run that a command is meant for; other effects have none."""
    incarnation: Incarnation = Incarnation(0)
    undone: bool = False
    """Certainly nothing was done: the effect may be retried."""


class IdempotencyRecord(Record, frozen=True, kw_only=True):
    """The answer to a request that carried an Idempotency-Key, stored with what the request did.

    A request with an effect outside the store is stored with `begun` before that effect, and with its answer after it."""

    request_sha256: str
    status: int
    body: str
    created_at: dt.datetime
    begun: BegunEffect | None = None


class AuditOutcome(enum.StrEnum):
    """What became of an audited act that has an effect outside the store."""

    BEGUN = "begun"
    """Recorded before the effect; a later entry has the outcome."""
    OK = "ok"
    REFUSED = "refused"
    """Nothing was done."""
    FAILED = "failed"
    """It was tried, and an error came of it."""
    UNKNOWN = "unknown"
    """It may have been done: no answer came, or the controller ended in between."""


class AuditEntry(Record, frozen=True, kw_only=True):
    """An entry of the audit: actor, action, target, origin, and changes.

    A change of the store is in the transaction of its entry, which needs no outcome. An act with an effect outside the
    store has two entries: one before the effect, and one with its outcome."""

    actor: str
    action: str
    subject: str
    address: str = ""
    actor_name: str = ""
    before: dict[str, object] | None = None
    after: dict[str, object] | None = None
    request: str = ""
    """The id of the request; empty: there was none, or it was not kept yet."""
    outcome: str = ""
    """A value of `AuditOutcome`; empty: it is a change of the store, which was made with this entry."""
    attempt: str = ""
    """The same in the entry from before the effect and in that of its outcome."""


class CommandRecord(Record, frozen=True, kw_only=True):
    """A line that was written to an instance's input, by whom, and the position of the run's console then."""

    line: str
    by: str
    by_name: str = ""
    incarnation: Incarnation
    node: NodeId
    offset: int | None = None


class LogRecord(Record, frozen=True, kw_only=True):
    """One record of a controller's or daemon's log, as the API shows it."""

    at: dt.datetime
    level: str
    logger: str
    message: str
    thread: str = ""
    throwable: str = ""
    fields: dict[str, str] = {}
    dropped_before: int = 0
