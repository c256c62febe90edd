"""Summaries of nodes, and the list of nodes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Annotated, Literal

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
    label_texts,
    list_page,
    moment,
    summary_page,
)
from corral.controller.http.messages.paging import Page
from corral.controller.http.pipeline.summary_cache import encoded_summary, short_text
from corral.controller.http.resources.node_schemas import (
    NodeShape,
    memory_in_force,
    node_shape,
    node_within_scope,
)
from corral.controller.http.resources.summary_view import SummaryView
from corral.controller.sessions.live_nodes import LiveNodes
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.domain.access import Access
from corral.domain.node_states import Admission, NodeState
from corral.domain.permissions import Permission
from corral.domain.records import NodeRecord
from corral.errors import Code, Rejected

LabelFilter = Annotated[
    str, msgspec.Meta(max_length=200, description="KEY=VALUE; given several times, all must fit.")
]
NodeSort = Literal[
    "id", "-id", "state", "-state", "instances", "-instances", "memory_mb", "-memory_mb",
    "used_memory_mb", "-used_memory_mb", "cpu_usage", "-cpu_usage", "free_disk_mb", "-free_disk_mb",
    "enrolled_at", "-enrolled_at",
]  # fmt: skip


class NodeQuery(ListQuery, frozen=True, kw_only=True):
    state: Choices = ()
    admission: Admission | None = None
    label: tuple[LabelFilter, ...] = ()
    sort: Annotated[NodeSort, msgspec.Meta(description=SORT)] | None = None


class NodeSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A node in a list: its state, whether it takes instances, and its load while it is connected."""

    id: str
    state: NodeState
    state_since: dt.datetime
    reason: str
    admission: Admission
    admission_reason: str
    labels: dict[str, str]
    address: str
    connected: bool
    memory_mb: int
    reserved_memory_mb: int
    used_memory_mb: int
    cpus: int
    cpu_usage: float
    free_disk_mb: int
    instances: int
    stray_count: int
    version: str
    last_seen: dt.datetime | None
    revision: int


def node_summary(view: SummaryView, stored: StoredRecord[NodeRecord]) -> NodeSummary:
    record, state = stored.record, view.state
    live = view.nodes.live(record.id)
    return NodeSummary(
        id=record.id,
        state=record.state,
        state_since=record.state_since,
        reason=short_text(record.reason),
        admission=record.admission,
        admission_reason=short_text(record.admission_reason),
        labels=record.labels,
        address=record.address,
        connected=live is not None,
        memory_mb=memory_in_force(record, live),
        reserved_memory_mb=state.reservations.usage(record.id).memory_mb,
        used_memory_mb=live.used_memory_mb if live else 0,
        cpus=record.cpus,
        cpu_usage=live.cpu_usage if live else 0.0,
        free_disk_mb=live.free_disk_mb if live else 0,
        instances=state.instances.live_on(record.id),
        stray_count=live.stray_count if live else 0,
        version=record.version,
        last_seen=live.last_seen if live else record.last_seen,
        revision=stored.revision,
    )


async def list_nodes(
    view: SummaryView, call: ApiCall[None, NodeQuery]
) -> Page[NodeShape] | SummaryPage[msgspec.Raw]:
    query, access, state, nodes = call.query, call.caller.access, view.state, view.nodes
    source = ListSource(
        mirror=state.nodes,
        texts=lambda record: (record.id, *label_texts(record.labels)),
        sorts=sorts(state, nodes),
        accepts=_accepting(query, access),
    )
    if query.view is View.FULL:
        return list_page(
            source,
            query,
            lambda stored: node_within_scope(
                access, node_shape(state, nodes, stored, view.workload.vitals.players_of)
            ),
        )
    return summary_page(
        source,
        query,
        lambda stored: encoded_summary(node_summary(view, stored)),
    )


def _accepting(query: NodeQuery, access: Access) -> Callable[[NodeRecord], bool] | None:
    """The filter of a query within a scope; None: it leaves nothing out."""
    permission = Permission.NODES_READ
    everywhere = access.allows_everywhere(permission)
    states, labels = chosen(NodeState, query.state, field="state"), _labels(query.label)
    if everywhere and not (states or labels or query.admission):
        return None

    def accepts(record: NodeRecord) -> bool:
        return (
            (not states or record.state in states)
            and query.admission in (None, record.admission)
            and all(record.labels.get(key) == value for key, value in labels)
            and (everywhere or access.allows_on_node(permission, record.id))
        )

    return accepts


def _labels(filters: tuple[str, ...]) -> list[tuple[str, str]]:
    labels = []
    for text in filters:
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise Rejected(
                Code.INVALID_FIELD,
                f"label filter '{text}' is not KEY=VALUE",
                field="label",
                hint="label=zone=eu",
            )
        labels.append((key, value))
    return labels


def sorts(state: ClusterState, nodes: LiveNodes) -> dict[str, SortField[NodeRecord]]:
    def load(name: str) -> SortField[NodeRecord]:
        """By the load of those that are connected."""
        return SortField(float, lambda record: getattr(nodes.live(record.id), name, None))

    return {
        "id": SortField(str, lambda record: record.id),
        "state": SortField(str, lambda record: record.state.value),
        "instances": SortField(float, lambda record: state.instances.live_on(record.id)),
        "memory_mb": SortField(float, lambda record: memory_in_force(record, nodes.live(record.id))),
        "used_memory_mb": load("used_memory_mb"),
        "cpu_usage": load("cpu_usage"),
        "free_disk_mb": load("free_disk_mb"),
        "enrolled_at": SortField(float, lambda record: moment(record.enrolled_at)),
    }
