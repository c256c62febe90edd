"""Summaries of instances, and the list of instances."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Final, Literal

import msgspec

from corral.controller.http.messages.call import ApiCall
from corral.controller.http.messages.list_pages import (
    SORT,
    Choices,
    ListQuery,
    ListSource,
    SortField,
    SummaryPage,
    View,
    chosen,
    list_page,
    moment,
    summary_page,
)
from corral.controller.http.messages.paging import Page
from corral.controller.http.pipeline.summary_cache import SummaryCache, short_text
from corral.controller.http.resources.instances.instance_schemas import (
    InstanceShape,
    InstanceView,
    instance_shape,
)
from corral.controller.http.resources.summary_view import SummaryView
from corral.controller.state.cluster_state import StoredRecord
from corral.controller.workload.service import Workloads
from corral.controller.workload.vitals import Vital
from corral.domain.access import Access
from corral.domain.groups.group import PRIMARY
from corral.domain.groups.instance_records import InstanceRecord, is_lost, is_ready, live
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.permissions import Permission

_SILENT: Final = Vital(incarnation=0)
_NAME_MAX: Final = 63

NameFilter = Annotated[str, msgspec.Meta(max_length=_NAME_MAX)]
InstanceSort = Literal[
    "id", "-id", "group", "-group", "node", "-node", "state", "-state", "players", "-players",
    "memory_mb", "-memory_mb", "restarts", "-restarts", "started_at", "-started_at",
    "created_at", "-created_at",
]  # fmt: skip


class InstanceQuery(ListQuery, frozen=True, kw_only=True):
    group: NameFilter | None = None
    node: NameFilter | None = None
    state: Choices = ()
    wanted: Wanted | None = None
    live: Annotated[bool, msgspec.Meta(description="Only those that have not ended; false: all.")] = False
    sort: Annotated[InstanceSort, msgspec.Meta(description=SORT)] | None = None


class InstanceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """An instance in a list: what it is, how it fares and why, cut to a length. `exit` is the sentence about the end of its
    last run."""

    id: str
    group: str
    node: str
    state: InstanceState
    wanted: Wanted
    ready: bool
    stage: str
    reason: str
    port: int | None
    players: int | None
    max_players: int
    memory_mb: int
    incarnation: int
    restarts: int
    runtime: str
    deployment_revision: int
    static: bool
    warm: bool
    lost: bool
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    exit: str
    revision: int


def instance_summary(view: SummaryView, stored: StoredRecord[InstanceRecord]) -> InstanceSummary:
    """Made of the instance, its group and its last reports, and of nothing else: the list keeps it as long as these stay."""
    record = stored.record
    group, vital = view.state.groups.find(record.group), view.workload.vitals.find(record.id) or _SILENT
    spec = group.record.spec if group is not None else None
    primary = next((each.port for each in record.ports if each.name == PRIMARY), None)
    return InstanceSummary(
        id=record.id,
        group=record.group,
        node=record.node,
        state=record.state,
        wanted=record.wanted,
        ready=is_ready(record),
        stage=vital.stage,
        reason=short_text(vital.waits_for or record.reason),
        port=primary if primary is not None else next((each.port for each in record.ports), None),
        players=vital.players,
        max_players=vital.max_players or (spec.max_players if spec else 0),
        memory_mb=record.memory_mb,
        incarnation=record.incarnation,
        restarts=record.restarts,
        runtime=spec.runtime if spec else "process",
        deployment_revision=record.revision,
        static=spec.static if spec else bool(record.home),
        warm=record.warm,
        lost=is_lost(record),
        started_at=record.started_at,
        ended_at=record.ended_at,
        exit=short_text(record.exit.summary) if record.exit else "",
        revision=stored.revision,
    )


async def list_instances(
    view: InstanceView, parts: SummaryView, summaries: SummaryCache, call: ApiCall[None, InstanceQuery]
) -> Page[InstanceShape] | SummaryPage[msgspec.Raw]:
    query, instances = call.query, view.state.instances
    states = chosen(InstanceState, query.state, field="state")
    source = ListSource(
        mirror=instances,
        texts=lambda record: (record.id, record.group),
        sorts=sorts(view.workload),
        accepts=_accepting(query, states, call.caller.access),
        among=instances.narrowed(group=query.group, node=query.node, states=states),
    )
    if query.view is View.FULL:
        return list_page(source, query, lambda stored: instance_shape(view, stored))
    groups, vitals = view.state.groups, view.workload.vitals

    def encoded(stored: StoredRecord[InstanceRecord]) -> bytes:
        record = stored.record
        basis = stored, groups.find(record.group), vitals.find(record.id)
        return summaries.encoded(record.id, basis, lambda: instance_summary(parts, stored))

    page = summary_page(source, query, encoded)
    summaries.trim(instances)
    return page


def _accepting(
    query: InstanceQuery, states: frozenset[InstanceState], access: Access
) -> Callable[[InstanceRecord], bool] | None:
    """The filter of a query within a scope; None: it leaves nothing out."""
    permission = Permission.INSTANCES_READ
    everywhere = access.allows_everywhere(permission)
    plain = not (query.group or query.node or states or query.wanted or query.live)
    if plain and everywhere:
        return None

    def accepts(record: InstanceRecord) -> bool:
        return (
            query.group in (None, record.group)
            and query.node in (None, record.node)
            and (not states or record.state in states)
            and query.wanted in (None, record.wanted)
            and (live(record.state) or not query.live)
            and (everywhere or access.allows_on_instance(permission, record.group, record.node))
        )

    return accepts


def sorts(workload: Workloads) -> dict[str, SortField[InstanceRecord]]:
    players_of = workload.vitals.players_of
    return {
        "id": SortField(str, lambda record: record.id),
        "group": SortField(str, lambda record: record.group),
        "node": SortField(str, lambda record: record.node),
        "state": SortField(str, lambda record: record.state.value),
        "players": SortField(float, lambda record: players_of(record.id)),
        "memory_mb": SortField(float, lambda record: record.memory_mb),
        "restarts": SortField(float, lambda record: record.restarts),
        "started_at": SortField(float, lambda record: moment(record.started_at)),
        "created_at": SortField(float, lambda record: moment(record.created_at)),
    }
