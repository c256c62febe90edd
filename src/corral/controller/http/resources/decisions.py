"""Decisions about an instance or a group: the result, its reasons, and the rejected alternatives."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Annotated, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.messages.paging import Page, TimedPageQuery, newest_entries
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.instances.group_format_upgrade import isolation_hint
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import (
    EVERY_DECISION,
    Journal,
    group_decisions,
    instance_decisions,
    node_decisions,
)
from corral.controller.workload.service import Workloads
from corral.domain.decisions import Alternative, DecisionKind
from corral.domain.groups.instance_records import DecisionRecord, GroupRecord, InstanceRecord, is_ready, live
from corral.domain.ids import same_start
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
    rejected_counts: dict[str, int]
    ties: list[str]
    causes: list[str]
    root: str
    wake_at: dt.datetime | None


class RestartShape(msgspec.Struct, frozen=True, kw_only=True):
    """A restart by the node itself, with the crash behind it."""

    at: dt.datetime
    crash: str
    incarnation: int
    restarted_as: int
    uptime_ms: int
    reason: str


class WhyShape(msgspec.Struct, frozen=True, kw_only=True):
    """Why something is as it is: one sentence, and the decisions behind it, the newest first."""

    subject: str
    state: str
    summary: str
    files_kept: list[str]
    decisions: list[DecisionShape]
    restarts: list[RestartShape] = []


class DecisionQuery(TimedPageQuery, frozen=True, kw_only=True):
    subject: Subject | None = None


_JOURNALS: Final = {"instance": instance_decisions, "group": group_decisions, "node": node_decisions}


def _journal(subject: str) -> Journal[DecisionRecord]:
    kind, _, id = subject.partition("/")
    if id and kind in _JOURNALS:
        return _JOURNALS[kind](id)
    raise Rejected(
        Code.INVALID_FIELD,
        f"'{subject}' is no subject of decisions",
        hint="use instance/ID, group/NAME or node/ID",
        field="subject",
    )


async def list_decisions(reads: ReadEngine, call: ApiCall[None, DecisionQuery]) -> Page[DecisionShape]:
    """The newest first, about one subject or about all. What was decided about things that are gone stays for
    a while."""
    query = call.query
    journal = EVERY_DECISION if query.subject is None else _journal(query.subject)
    found, following = await newest_entries(
        reads, journal.name, query, prefix=query.subject is None, once=_decision_id
    )
    return Page(items=[_shape(journal, entry) for entry in found], next=following)


class _Identified(msgspec.Struct, frozen=True):
    id: str


_IDENTIFIED: Final = msgspec.json.Decoder(_Identified)


def _decision_id(entry: Entry) -> str:
    """A decision is appended to the journals of its instance, its group and its node, one after the other."""
    return _IDENTIFIED.decode(entry.body).id


def _shape(journal: Journal[DecisionRecord], entry: Entry) -> DecisionShape:
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
        rejected=[_worded(each) for each in record.rejected],
        request=record.request,
        rule=record.rule,
        node=record.node,
        rejected_counts=record.rejected_counts,
        ties=list(record.ties),
        causes=list(record.causes),
        root=record.root,
        wake_at=record.wake_at,
    )


def _worded(other: Alternative) -> Alternative:
    """With its sentence, which is not stored where there is a code."""
    reason = other.reason or sentence(other.code, other.numbers)
    return msgspec.structs.replace(other, reason=reason)


async def _recent(reads: ReadEngine, journal: Journal[DecisionRecord]) -> list[DecisionShape]:
    found = await reads.entries(journal.name, limit=_RECENT, newest=True)
    return [_shape(journal, entry) for entry in reversed(found)]


async def why_instance(
    state: ClusterState,
    workload: Workloads,
    reads: ReadEngine,
    setting: ProcessContext,
    call: ApiCall[None, NoQuery],
) -> WhyShape:
    record = state.instances.require(call.path["id"]).record
    vital = workload.vitals.find(record.id)
    restarts = _restarts(state, record)
    summary = _instance_summary(record, vital.waits_for if vital else "")
    if restarts and live(record.state):
        ago = _span(setting.clock.now() - restarts[0].at)
        summary += f"; restarted {ago} ago by its node: {restarts[0].reason}, crash {restarts[0].crash}"
    return WhyShape(
        subject=f"{_INSTANCE}{record.id}",
        state=record.state.value,
        summary=summary,
        restarts=restarts,
        files_kept=list(record.files_kept),
        decisions=await _recent(reads, instance_decisions(record.id)),
    )


def _restarts(state: ClusterState, record: InstanceRecord) -> list[RestartShape]:
    """Restarts that its node made since its present start, the newest first."""
    crashes = state.crashes
    found = (crashes.require(id).record for id in reversed(crashes.of_node(record.node)))
    of_it = (
        crash
        for crash in found
        if crash.instance == record.id
        and crash.restarted_as
        and same_start(crash.incarnation, record.incarnation)
    )
    return [
        RestartShape(
            at=crash.at,
            crash=crash.id,
            incarnation=crash.incarnation,
            restarted_as=crash.restarted_as,
            uptime_ms=crash.uptime_ms,
            reason=crash.exit.summary,
        )
        for crash in itertools.islice(of_it, _RECENT)
    ]


def _span(length: dt.timedelta) -> str:
    """A duration for people: 2 s, 28 min, 5 h, 3 d."""
    seconds = max(0, int(length.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def _instance_summary(record: InstanceRecord, waits_for: str) -> str:
    summary = f"instance '{record.id}' of group '{record.group}' is {record.state} on node '{record.node}'"
    if record.start_failure is not None and not record.started_at:
        failure = record.start_failure
        summary += f"; its start failed at {failure.stage} with {failure.code}: {failure.message}"
    elif record.exit is not None and not live(record.state):
        summary += f"; it ended: {record.exit.summary}"
    if reason := waits_for or record.reason:
        summary += f"; {reason}"
    return summary


async def why_group(
    state: ClusterState, workload: Workloads, reads: ReadEngine, call: ApiCall[None, NoQuery]
) -> WhyShape:
    record = state.groups.require(call.path["name"]).record
    name = record.spec.name
    there = [each.record for each in state.instances.of_group(name)]
    present = sum(live(each.state) for each in there)
    return WhyShape(
        subject=f"{_GROUP}{name}",
        state="PAUSED" if record.paused else "SHORT" if present < record.desired_count else "MET",
        summary=_group_summary(record, present) + _not_ready(workload, there),
        files_kept=[],
        decisions=await _recent(reads, group_decisions(name)),
    )


def _group_summary(record: GroupRecord, present: int) -> str:
    summary = f"group '{record.spec.name}' wants {record.desired_count} instances and has {present}"
    if record.paused is not None:
        until = record.paused.until.isoformat(timespec="seconds")
        summary += f"; it is crash-looping and left alone until {until}: {record.paused.reason}"
    if record.reason:
        summary += f"; {record.reason}"
    if hint := isolation_hint(record):
        summary += f"; {hint}"
    return summary


def _not_ready(workload: Workloads, there: list[InstanceRecord]) -> str:
    """The reported reasons why live instances are not ready."""
    found = []
    for record in there:
        if not live(record.state) or is_ready(record):
            continue
        vital = workload.vitals.find(record.id)
        failure = record.start_failure if not record.started_at else None
        reason = failure.message if failure else (vital.waits_for if vital else "") or record.reason
        if reason:
            found.append(f"; '{record.id}' is {record.state}: {reason}")
    return "".join(found[:_NAMED])


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/decisions",
        permission=Permission.DECISIONS_READ,
        summary="List decisions about an instance, a group or a node, the newest first",
        query=DecisionQuery,
        response=Page[DecisionShape],
        handler=list_decisions,
    ),
    Read(
        method="GET",
        path="/api/v1/instances/{id}/why",
        permission=Permission.DECISIONS_READ,
        summary="Why an instance is as it is",
        response=WhyShape,
        handler=why_instance,
    ),
    Read(
        method="GET",
        path="/api/v1/groups/{name}/why",
        permission=Permission.DECISIONS_READ,
        summary="Why a group has as many instances as it has",
        response=WhyShape,
        handler=why_group,
    ),
)
