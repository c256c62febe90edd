"""Decisions about an instance or a group: the result, its reasons, and the rejected alternatives."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Final

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.messages.paging import Page, TimedPageQuery, newest_entries
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import (
    DECISIONS_PREFIX,
    EVERY_DECISION,
    Journal,
    deployment_decisions,
    group_decisions,
    instance_decisions,
    node_decisions,
)
from corral.domain.access import ANY, Access
from corral.domain.decisions import Alternative, DecisionKind
from corral.domain.groups.instance_records import DecisionRecord
from corral.domain.permissions import Permission
from corral.domain.planning.refusals import sentence
from corral.errors import Code, Rejected
from corral.store.port import Entry, ReadEngine

_RECENT: Final = 20
_NAMED: Final = 3
"""Most instances that are not ready whose reason is shown with their group."""
_INSTANCE: Final = "instance/"
_GROUP: Final = "group/"

Subject = Annotated[
    str,
    msgspec.Meta(
        max_length=80,
        description="`instance/ID`, `group/NAME` or `node/ID`.",
        extra_json_schema={"pattern": "^(instance|group|node)/[a-z0-9._-]+$"},
    ),
]


class DecisionShape(msgspec.Struct, frozen=True, kw_only=True):
    """One decision; `rejected` is what was considered and not done."""

    number: int
    id: str
    at: dt.datetime
    kind: DecisionKind
    subject: str
    reason: str
    cause: str
    epoch: int
    inputs: dict[str, str | int | float | bool]
    rejected: list[Alternative]
    request: str
    rule: str
    node: str
    deployment: str
    rejected_counts: dict[str, int]
    ties: list[str]
    causes: list[str]
    root: str
    wake_at: dt.datetime | None


class DecisionQuery(TimedPageQuery, frozen=True, kw_only=True):
    subject: Subject | None = None


_JOURNALS: Final = {
    "instance": instance_decisions,
    "group": group_decisions,
    "node": node_decisions,
    "deployment": deployment_decisions,
}


def _journal(subject: str) -> Journal[DecisionRecord]:
    kind, _, id = subject.partition("/")
    if id and kind in _JOURNALS:
        return _JOURNALS[kind](id)
    raise Rejected(
        Code.INVALID_FIELD,
        f"'{subject}' is no subject of decisions",
        hint="use instance/ID, group/NAME, node/ID or deployment/ID",
        field="subject",
    )


async def list_decisions(
    state: ClusterState, reads: ReadEngine, call: ApiCall[None, DecisionQuery]
) -> Page[DecisionShape]:
    """The newest first, about one subject or about all. What was decided about things that are gone stays for
    a while."""
    query, access = call.query, call.caller.access
    journal = EVERY_DECISION if query.subject is None else _journal(query.subject)
    accepts = None if access.allows_everywhere(Permission.DECISIONS_READ) else _covered(state, access)
    found, following = await newest_entries(
        reads, journal.name, query, prefix=query.subject is None, once=_decision_id, accepts=accepts
    )
    return Page(items=[decision_shape(journal, entry) for entry in found], next=following)


class _Outline(msgspec.Struct, frozen=True):
    id: str
    subject: str
    node: str = ""


_OUTLINE: Final = msgspec.json.Decoder(_Outline)


def _decision_id(entry: Entry) -> str:
    """A decision is appended to the journals of its instance, its group and its node, one after the other."""
    return _OUTLINE.decode(entry.body).id


def _covered(state: ClusterState, access: Access) -> Callable[[Entry], bool]:
    def covers(entry: Entry) -> bool:
        outline = _OUTLINE.decode(entry.body)
        return covers_decision(state, access, entry.journal, outline.subject, outline.node)

    return covers


def covers_decision(state: ClusterState, access: Access, journal: str, subject: str, node: str) -> bool:
    """Whether a decision in a journal is within the scope of a caller: by what the journal is of, and by the instance that
    the decision is about. Of one that is gone only the journal of its group tells whose it was."""
    permission = Permission.DECISIONS_READ
    kind, _, id = journal.removeprefix(DECISIONS_PREFIX).partition("/")
    if kind == "node" and subject == id:
        return access.allows_on_node(permission, id)
    group = id if kind == "group" else _group_of(state, kind, subject, id)
    if not group:
        return kind == "node" and access.allows_on_instance(permission, ANY, id)
    if subject == group and access.allows_on_group(permission, group):
        return True
    stored = state.instances.find(subject)
    return access.allows_on_instance(permission, group, node or (stored.record.node if stored else ANY))


def _group_of(state: ClusterState, kind: str, subject: str, id: str) -> str:
    """The group that a decision is about, as far as the journal, which is not a group's, tells it."""
    if kind == "deployment":
        deployment = state.deployments.find(id)
        return deployment.record.group if deployment is not None else ""
    stored = state.instances.find(subject)
    if stored is not None:
        return stored.record.group
    return subject if state.groups.find(subject) is not None else ""


def decision_shape(journal: Journal[DecisionRecord], entry: Entry) -> DecisionShape:
    record = journal.decode(entry.body)
    return DecisionShape(
        number=entry.number,
        id=record.id,
        at=record.at,
        kind=record.kind,
        subject=record.subject,
        reason=record.reason,
        cause=record.cause,
        epoch=record.epoch,
        inputs=record.inputs,
        rejected=[worded(each) for each in record.rejected],
        request=record.request,
        rule=record.rule,
        node=record.node,
        deployment=record.deployment,
        rejected_counts=record.rejected_counts,
        ties=list(record.ties),
        causes=list(record.causes),
        root=record.root,
        wake_at=record.wake_at,
    )


def worded(other: Alternative) -> Alternative:
    """With its sentence, which is not stored where there is a code."""
    reason = other.reason or sentence(other.code, other.numbers)
    return msgspec.structs.replace(other, reason=reason)


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/decisions",
        permission=Permission.DECISIONS_READ,
        scope=Scoping.FILTERS,
        summary="List decisions about an instance, a group or a node, the newest first",
        query=DecisionQuery,
        response=Page[DecisionShape],
        handler=list_decisions,
    ),
)
