"""Groups with the fields of their parents: which document each value was written in."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.inheritance import chain_of, parent_of, value_origins, written_document
from corral.domain.permissions import Permission


class ResolvedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """The document that instances of a group are made by, and the place of each of its values. `origins` has the path of a
    value and the group in whose document it was written; what is not in it is a default."""

    name: str
    ancestors: list[str]
    document: GroupSpec
    origins: dict[str, str]
    revision: int


async def get_resolved(state: ClusterState, call: ApiCall[None, NoQuery]) -> ResolvedGroup:
    stored = state.groups.require(call.path["name"])
    name = stored.record.spec.name
    documents = _written_chain(state, name)
    return ResolvedGroup(
        name=name,
        ancestors=chain_of(name, documents)[1:],
        document=stored.record.spec,
        origins=value_origins(name, documents),
        revision=stored.revision,
    )


def _written_chain(state: ClusterState, name: str) -> dict[str, dict[str, object]]:
    """The written documents of a group and its ancestors: a stored chain has no cycle and no missing parent."""
    documents: dict[str, dict[str, object]] = {}
    while name:
        documents[name] = written_document(state.groups.require(name).record)
        name = parent_of(documents[name])
    return documents


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/groups/{name}/resolved",
        permission=Permission.GROUPS_READ,
        summary="The document of a group with the fields of its parents and all defaults, and where each value was written",
        response=ResolvedGroup,
        handler=get_resolved,
    ),
)
