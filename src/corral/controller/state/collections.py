"""The collections of the store with the type each one holds, and how to write to them."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import msgspec

from corral.domain.accounts.records import RoleRecord, SessionRecord, UserRecord
from corral.domain.groups.artifacts import CatalogRecord
from corral.domain.groups.crash_records import CrashRecord
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.instance_records import (
    DecisionRecord,
    GroupRecord,
    InstanceRecord,
    NodeLedger,
    PlanRecord,
    Reservation,
    SequenceRecord,
)
from corral.domain.groups.revisions import RevisionRecord
from corral.domain.modules.records import ModuleCursor, NodeModuleState, PackageRecord
from corral.domain.records import (
    AdminCertificateRecord,
    ApiTokenRecord,
    AuditEntry,
    AuthorityRecord,
    ClusterRecord,
    CommandRecord,
    IdempotencyRecord,
    JoinTokenRecord,
    LogRecord,
    NodeRecord,
    Record,
    SpoolPosition,
)
from corral.domain.templates import TemplateRecord
from corral.errors import Code, Rejected
from corral.store.port import CHAINED_JOURNAL, Append, Delete, Put, encode

R = TypeVar("R", bound=Record)

_SHOWN: Final = 200


class Typed(Generic[R]):
    """A named place of the store that holds records of one type."""

    def __init__(self, name: str, type: type[R]) -> None:
        self.name = name
        self.type = type
        self._decoder = msgspec.json.Decoder(type)

    def decode(self, body: bytes) -> R:
        return self._decoder.decode(body)


class StateCollection(Typed[R]):
    """Documents by id."""

    def put(self, id: str, record: R, *, expect: int | None) -> Put:
        """INVALID_FIELD for what could be stored and never be read again: bounds of fields hold for what is read, not for
        what is constructed, and memory is read from what was stored."""
        body = encode(record)
        try:
            self.decode(body)
        except msgspec.ValidationError as error:
            raise Rejected(
                Code.INVALID_FIELD,
                f"{self.name}/{id[:_SHOWN]} cannot be stored: {error}",
                hint="use shorter or fewer values",
            ) from error
        return Put(collection=self.name, id=id, body=body, expect=expect)

    def delete(self, id: str, *, expect: int | None) -> Delete:
        return Delete(collection=self.name, id=id, expect=expect)


class Journal(Typed[R]):
    """An append-only stream."""

    def append(self, record: R) -> Append:
        return Append(journal=self.name, body=encode(record))


CLUSTER: Final = StateCollection("cluster", ClusterRecord)
AUTHORITY: Final = StateCollection("authority", AuthorityRecord)
NODES: Final = StateCollection("nodes", NodeRecord)
SPOOLS: Final = StateCollection("spools", SpoolPosition)
JOIN_TOKENS: Final = StateCollection("join_tokens", JoinTokenRecord)
TOKENS: Final = StateCollection("tokens", ApiTokenRecord)
USERS: Final = StateCollection("users", UserRecord)
ROLES: Final = StateCollection("roles", RoleRecord)
USER_SESSIONS: Final = StateCollection("user_sessions", SessionRecord)
ADMIN_CERTIFICATES: Final = StateCollection("admin_certificates", AdminCertificateRecord)
IDEMPOTENCY: Final = StateCollection("idempotency", IdempotencyRecord)
GROUPS: Final = StateCollection("groups", GroupRecord)
INSTANCES: Final = StateCollection("instances", InstanceRecord)
NODE_LEDGERS: Final = StateCollection("node_ledgers", NodeLedger)
RESERVATIONS: Final = StateCollection("reservations", Reservation)
"""By `NODE/INSTANCE`."""
PLANS: Final = StateCollection("plans", PlanRecord)
REVISIONS: Final = StateCollection("revisions", RevisionRecord)
"""By `GROUP/NUMBER`."""
CRASHES: Final = StateCollection("crashes", CrashRecord)
TEMPLATES: Final = StateCollection("templates", TemplateRecord)
CATALOG: Final = StateCollection("catalog", CatalogRecord)
DEPLOYMENTS: Final = StateCollection("deployments", DeploymentRecord)
SEQUENCES: Final = StateCollection("sequences", SequenceRecord)
MODULE_PACKAGES: Final = StateCollection("module_packages", PackageRecord)
MODULE_CURSORS: Final = StateCollection("module_cursors", ModuleCursor)
"""By `MODULE/NAME` of the durable subscription."""
MODULE_NODE_STATES: Final = StateCollection("module_node_states", NodeModuleState)
"""By `NODE/MODULE`."""

ONLY: Final = "only"
"""The id of the single document in CLUSTER and in AUTHORITY."""

AUDIT: Final = Journal(CHAINED_JOURNAL, AuditEntry)

NODE_LOG_PREFIX: Final = "log:node:"


def node_log(node_id: str) -> Journal[LogRecord]:
    """The journal of the newest part of a daemon's log."""
    return Journal(NODE_LOG_PREFIX + node_id, LogRecord)


COMMANDS_PREFIX: Final = "commands:"


def instance_commands(id: str) -> Journal[CommandRecord]:
    """The journal of lines that were written to the input of an instance."""
    return Journal(COMMANDS_PREFIX + id, CommandRecord)


DECISIONS_PREFIX: Final = "decisions:"
INSTANCE_DECISIONS_PREFIX: Final = "decisions:instance/"
GROUP_DECISIONS_PREFIX: Final = "decisions:group/"
NODE_DECISIONS_PREFIX: Final = "decisions:node/"
DEPLOYMENT_DECISIONS_PREFIX: Final = "decisions:deployment/"


EVERY_DECISION: Final = Journal(DECISIONS_PREFIX, DecisionRecord)
"""Reads the journals of all decisions; nothing is appended to it."""


def instance_decisions(id: str) -> Journal[DecisionRecord]:
    """The journal of decisions about an instance: why it is placed where it is and in the state it is in."""
    return Journal(INSTANCE_DECISIONS_PREFIX + id, DecisionRecord)


def group_decisions(name: str) -> Journal[DecisionRecord]:
    """The journal of decisions about a group: why it has the instances that it has."""
    return Journal(GROUP_DECISIONS_PREFIX + name, DecisionRecord)


def node_decisions(id: str) -> Journal[DecisionRecord]:
    """The journal of decisions about a node: what was placed there, and why."""
    return Journal(NODE_DECISIONS_PREFIX + id, DecisionRecord)


def deployment_decisions(id: str) -> Journal[DecisionRecord]:
    """The journal of decisions about a deployment: its phases, and what it started and retired."""
    return Journal(DEPLOYMENT_DECISIONS_PREFIX + id, DecisionRecord)
