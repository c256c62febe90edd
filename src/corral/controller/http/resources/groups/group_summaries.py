"""Summaries of groups, and the list of groups."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Literal

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.messages.list_pages import (
    SORT,
    ListQuery,
    ListSource,
    SortField,
    SummaryPage,
    View,
    label_texts,
    list_page,
    moment,
    summary_page,
)
from corral.controller.http.messages.paging import Page
from corral.controller.http.pipeline.summary_cache import encoded_summary, short_text
from corral.controller.http.resources.groups.group_schemas import GroupShape, away_text, group_shape
from corral.controller.http.resources.summary_view import SummaryView
from corral.controller.instances.group_folder import GroupFolder
from corral.controller.instances.revisions import newest_number
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.groups.scaling_spec import ScalingMode
from corral.domain.permissions import Permission

GroupSort = Literal[
    "name", "-name", "instances", "-instances", "ready", "-ready", "priority", "-priority",
    "created_at", "-created_at", "updated_at", "-updated_at",
]  # fmt: skip


class GroupQuery(ListQuery, frozen=True, kw_only=True):
    sort: Annotated[GroupSort, msgspec.Meta(description=SORT)] | None = None


class GroupSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A group in a list: how many instances it has and shall have, and what keeps it from that. `paused_until` is null
    unless its instances failed again and again."""

    name: str
    parent: str
    abstract: bool
    runtime: str
    category: str
    static: bool
    labels: dict[str, str]
    mode: ScalingMode
    min: int
    max: int | None
    wanted: int
    states: dict[str, int]
    instances: int
    ready: int
    warm: int
    lost: int
    draining: int
    players: int
    max_players: int
    memory_mb: int
    reason: str
    held: bool
    paused: bool
    paused_until: dt.datetime | None
    closed: bool
    deleting: bool
    deployment: str
    deployment_revision: int
    stable_revision: int
    owner: str
    updated_at: dt.datetime
    revision: int


def group_summary(view: SummaryView, stored: StoredRecord[GroupRecord]) -> GroupSummary:
    record, spec, state = stored.record, stored.record.spec, view.state
    scaling, counts = view.instances.signals.scaling(record), state.instances.counts(spec.name)
    return GroupSummary(
        name=spec.name,
        parent=spec.parent,
        abstract=spec.abstract,
        runtime=spec.runtime,
        category=spec.category,
        static=spec.static,
        labels=spec.labels,
        mode=scaling.values.mode,
        min=scaling.values.min,
        max=scaling.values.max,
        wanted=scaling.wanted,
        states={each.value: number for each, number in counts.by_state.items()},
        instances=counts.live - counts.warm - counts.lost,
        ready=counts.serving_ready,
        warm=counts.warm,
        lost=counts.lost,
        draining=counts.draining,
        players=scaling.load.players + scaling.load.above,
        max_players=spec.max_players,
        memory_mb=spec.memory_mb,
        reason=short_text(record.reason or away_text(counts.away)),
        held=record.hold is not None,
        paused=record.paused is not None,
        paused_until=record.paused.until if record.paused else None,
        closed=scaling.values.maintenance.enabled,
        deleting=record.deleting,
        deployment=record.deployment,
        deployment_revision=newest_number(state, spec.name),
        stable_revision=record.stable_revision,
        owner=record.owner,
        updated_at=record.updated_at,
        revision=stored.revision,
    )


async def list_groups(
    view: SummaryView, group_folder: GroupFolder | None, call: ApiCall[None, GroupQuery]
) -> Page[GroupShape] | SummaryPage[msgspec.Raw]:
    query, access, state, signals = call.query, call.caller.access, view.state, view.instances.signals
    permission = Permission.GROUPS_READ
    source = ListSource(
        mirror=state.groups,
        texts=lambda record: (record.spec.name, *label_texts(record.spec.labels)),
        sorts=sorts(state),
        accepts=None
        if access.allows_everywhere(permission)
        else lambda record: access.allows_on_group(permission, record.spec.name),
    )
    if query.view is View.FULL:
        return list_page(
            source, query, lambda stored: group_shape(state, stored, signals, folder=group_folder)
        )
    return summary_page(source, query, lambda stored: encoded_summary(group_summary(view, stored)))


def sorts(state: ClusterState) -> dict[str, SortField[GroupRecord]]:
    counts = state.instances.counts
    return {
        "name": SortField(str, lambda record: record.spec.name),
        "instances": SortField(float, lambda record: counts(record.spec.name).live),
        "ready": SortField(float, lambda record: counts(record.spec.name).serving_ready),
        "priority": SortField(float, lambda record: record.spec.priority),
        "created_at": SortField(float, lambda record: moment(record.created_at)),
        "updated_at": SortField(float, lambda record: moment(record.updated_at)),
    }
