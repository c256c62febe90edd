"""The registry of a group: the instances that proxies may send players to, whether the group is closed, and where players
go instead.

It is read often. Instances come from an index, and nothing is searched: the time it takes grows with the page alone.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec

from corral.controller.http.messages.call import SharedCall
from corral.controller.http.messages.paging import PageQuery, page_of
from corral.controller.http.pipeline.route_table import ProxyRead, Route
from corral.controller.http.resources.groups.group_schemas import MaintenanceShape
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.workload.service import Workloads
from corral.controller.workload.vitals import Vital
from corral.domain.access import Access
from corral.domain.groups.group import PRIMARY
from corral.domain.groups.instance_records import GroupRecord, InstanceRecord
from corral.domain.permissions import Permission
from corral.domain.planning.schedules import scheduled
from corral.system.addresses import usable_host

_MOST: Final = 5000
_COUNTED: Final = 250
"""Every so many instances of a page count as one request more."""
_FALLBACKS: Final = 32
"""The most groups of a chain that are followed."""
_NAMED: Final = 100


class RegistryQuery(PageQuery, frozen=True, kw_only=True):
    limit: Annotated[int, msgspec.Meta(ge=1, le=_MOST, description="Most instances of a page.")] = 1000


class RegistryInstance(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that takes players."""

    id: str
    node: str
    address: str
    port: int | None
    ports: dict[str, int]
    players: int | None
    max_players: int


class FallbackShape(msgspec.Struct, frozen=True, kw_only=True):
    """A group that takes the players of one that cannot."""

    group: str
    ready: int
    maintenance: bool


class RegistryShape(msgspec.Struct, frozen=True, kw_only=True):
    """The instances of a group that take players: ready, and neither warm nor about to stop. A held group has none: those
    that still run are to become empty."""

    group: str
    held: bool
    maintenance: MaintenanceShape
    fallback: tuple[FallbackShape, ...]
    ready: int
    instances: list[RegistryInstance]
    without_address: list[str]
    next: str | None


async def get_registry(
    state: ClusterState, workload: Workloads, call: SharedCall[RegistryQuery]
) -> RegistryShape:
    group = state.groups.require(call.path["name"]).record
    taking = _taking(state, call.access, group)
    nowhere: list[str] = []

    def has_address(record: InstanceRecord) -> bool:
        address = record.host_address or _address(state, record.node)
        if not address:
            nowhere.append(record.id)
        return bool(address)

    def shape(stored: StoredRecord[InstanceRecord]) -> RegistryInstance:
        record = stored.record
        vital = workload.vitals.find(record.id) or Vital(incarnation=record.incarnation)
        return RegistryInstance(
            id=record.id,
            node=record.node,
            address=record.host_address or _address(state, record.node),
            port=next((each.port for each in record.ports if each.name == PRIMARY), None),
            ports={each.name: each.port for each in record.ports},
            players=vital.players,
            max_players=vital.max_players or group.spec.max_players,
        )

    page = page_of(state.instances, call.query, accepts=has_address, shape=shape, among=taking)
    return RegistryShape(
        group=group.spec.name,
        held=group.hold is not None,
        maintenance=MaintenanceShape.of(scheduled(group.spec, call.now)),
        fallback=tuple(
            FallbackShape(
                group=each.spec.name,
                ready=len(_taking(state, call.access, each)),
                maintenance=scheduled(each.spec, call.now).maintenance.enabled,
            )
            for each in fallback_chain(state, group)
            if _is_seen(call.access, each)
        ),
        ready=len(taking),
        instances=page.items,
        without_address=nowhere[:_NAMED],
        next=page.next,
    )


def fallback_chain(state: ClusterState, group: GroupRecord) -> Iterator[GroupRecord]:
    """The groups that take the players of this one, the nearest first; each once."""
    seen = {group.spec.name}
    while (name := group.spec.fallback_group) and name not in seen and len(seen) <= _FALLBACKS:
        stored = state.groups.find(name)
        if stored is None:
            return
        seen.add(name)
        group = stored.record
        yield group


def _is_seen(access: Access | None, group: GroupRecord) -> bool:
    return access is None or access.allows_on_group(Permission.GROUPS_READ, group.spec.name)


def _taking(state: ClusterState, access: Access | None, group: GroupRecord) -> Sequence[str]:
    """The instances that players may be sent to, in order: those within the scope of a caller, for a workload all."""
    if group.hold is not None:
        return ()
    name, permission = group.spec.name, Permission.GROUPS_READ
    found = state.instances.counts(name).open.in_order()
    if access is None or access.allows_everywhere(permission):
        return found
    nodes = {id: state.instances.require(id).record.node for id in found}
    return [id for id in found if access.allows_on_instance(permission, name, nodes[id])]


def _address(state: ClusterState, node: str) -> str:
    stored = state.nodes.find(node)
    return _checked(stored.record.address) if stored is not None else ""


@functools.lru_cache(maxsize=4096)
def _checked(address: str) -> str:
    """The address that a node gives as its own, if somebody can be sent there."""
    return usable_host(address) if address else ""


ROUTES: Final[tuple[Route, ...]] = (
    ProxyRead(
        method="GET",
        path="/api/v1/groups/{name}/registry",
        permission=Permission.GROUPS_READ,
        summary="The instances of a group that take players, for proxies",
        query=RegistryQuery,
        response=RegistryShape,
        handler=get_registry,
        items_a_request=_COUNTED,
    ),
)
