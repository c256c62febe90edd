"""The controller's memory of the cluster: a fold over the commits of the store, so that it serves only what
is stored.

`apply` is the only mutator. It runs once per commit, in commit order: on a leader right after the commit, on
a follower from the same log.
"""

from __future__ import annotations

from typing import Final, TypeVar

import structlog

from corral.controller.state.collections import (
    ADMIN_CERTIFICATES,
    AUTHORITY,
    CATALOG,
    CLUSTER,
    GROUPS,
    JOIN_TOKENS,
    MODULE_CURSORS,
    MODULE_PACKAGES,
    NODE_LEDGERS,
    ONLY,
    PLANS,
    ROLES,
    SEQUENCES,
    SPOOLS,
    TOKENS,
    USER_SESSIONS,
    USERS,
)
from corral.controller.state.indexed_mirrors import (
    CrashMirror,
    DeploymentMirror,
    NodeMirror,
    NodeStateMirror,
    ReservationMirror,
    RevisionMirror,
    TemplateMirror,
)
from corral.controller.state.instance_mirror import InstanceMirror
from corral.controller.state.mirrors import IdempotencyMirror, Mirror, StoredRecord
from corral.controller.state.quarantine import Quarantine, unreadable
from corral.domain.records import AuthorityRecord, ClusterRecord, Record
from corral.errors import Bug
from corral.store.port import Commit, Document, Snapshot

R = TypeVar("R", bound=Record)

_ESSENTIAL: Final = frozenset({CLUSTER.name, AUTHORITY.name, SEQUENCES.name})
"""Collections without which the start is refused: the cluster's identity, the authority that nodes trust, and
the sequence numbers that were given out. None of them can be guessed."""
_log = structlog.get_logger("corral.controller.state")

__all__ = ["ClusterState", "Mirror", "StoredRecord"]


class ClusterState:
    """Everything that the controller serves, as of commit `number`."""

    def __init__(self) -> None:
        self.number = 0
        self.quarantine: Final = Quarantine()
        self.cluster: Final = Mirror(CLUSTER, "cluster")
        self.authority: Final = Mirror(AUTHORITY, "authority")
        self.nodes: Final = NodeMirror()
        self.spools: Final = Mirror(SPOOLS, "spool")
        self.join_tokens: Final = Mirror(JOIN_TOKENS, "join token")
        self.tokens: Final = Mirror(TOKENS, "token")
        self.users: Final = Mirror(USERS, "user")
        self.roles: Final = Mirror(ROLES, "role")
        self.user_sessions: Final = Mirror(USER_SESSIONS, "session")
        self.admin_certificates: Final = Mirror(ADMIN_CERTIFICATES, "administrator's certificate")
        self.idempotency: Final = IdempotencyMirror()
        self.groups: Final = Mirror(GROUPS, "group")
        self.instances: Final = InstanceMirror()
        self.node_ledgers: Final = Mirror(NODE_LEDGERS, "ledger")
        self.reservations: Final = ReservationMirror()
        self.plans: Final = Mirror(PLANS, "plan")
        self.revisions: Final = RevisionMirror()
        self.crashes: Final = CrashMirror()
        self.templates: Final = TemplateMirror()
        self.catalog: Final = Mirror(CATALOG, "catalog entry")
        self.deployments: Final = DeploymentMirror()
        self.sequences: Final = Mirror(SEQUENCES, "sequence")
        self.modules: Final = Mirror(MODULE_PACKAGES, "module")
        self.module_cursors: Final = Mirror(MODULE_CURSORS, "cursor")
        self.module_node_states: Final = NodeStateMirror()
        mirrors: tuple[Mirror[Record], ...] = (  # type: ignore[assignment]  # each folds its own type
            self.cluster,
            self.authority,
            self.nodes,
            self.spools,
            self.join_tokens,
            self.tokens,
            self.users,
            self.roles,
            self.user_sessions,
            self.admin_certificates,
            self.idempotency,
            self.groups,
            self.instances,
            self.node_ledgers,
            self.reservations,
            self.plans,
            self.revisions,
            self.crashes,
            self.templates,
            self.catalog,
            self.deployments,
            self.sequences,
            self.modules,
            self.module_cursors,
            self.module_node_states,
        )
        self._mirrors = {mirror.collection.name: mirror for mirror in mirrors}

    @property
    def collections(self) -> list[str]:
        """The collections held in memory; a snapshot to load from needs no others."""
        return list(self._mirrors)

    def load(self, snapshot: Snapshot) -> None:
        """Fill this empty state from a snapshot of the store."""
        if self.number:
            raise Bug("a cluster state is loaded once; build a new one to start over")
        for document in snapshot.documents:
            self._load(document)
        self.number = snapshot.head.commit

    def _load(self, document: Document) -> None:
        """Load one document. An unreadable one is set aside in the quarantine; one of the essential
        collections refuses the start."""
        try:
            self._fold(document.collection, document.id, document.revision, document.body)
        except Exception as error:
            found = self.quarantine.add(document.collection, document.id, document.revision, error)
            if document.collection in _ESSENTIAL:
                raise unreadable(found) from error
            _log.error("store_document.skipped", document=str(found), reason=found.reason)

    def apply(self, commit: Commit) -> None:
        if commit.number != self.number + 1:
            raise Bug(f"commit {commit.number} cannot follow commit {self.number}")
        for change in commit.changes:
            self._fold(change.collection, change.id, change.revision, change.body)
        self.number = commit.number

    def _fold(self, collection: str, id: str, revision: int, body: bytes | None) -> None:
        mirror = self._mirrors.get(collection)
        if mirror is not None:
            mirror.fold(id, revision, body)
            self.quarantine.release(collection, id)

    def replaced_revision(self, mirror: Mirror[R], id: str) -> int:
        """The revision for a compare-and-set that may replace an unreadable document."""
        damaged = self.quarantine.revision(mirror.collection.name, id)
        return mirror.revision(id) if damaged is None else damaged

    @property
    def identity(self) -> ClusterRecord:
        return self.cluster.require(ONLY).record

    @property
    def authorities(self) -> AuthorityRecord:
        return self.authority.require(ONLY).record
