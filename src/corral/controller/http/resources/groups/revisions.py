"""Revisions of a group: what its instances were started by, the newest first."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.messages.paging import Page, PageQuery, page_of_sorted
from corral.controller.http.pipeline.route_table import Read, Route
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_documents import changed_fields
from corral.domain.groups.instance_records import live
from corral.domain.groups.plans import PlanArtifact, PlanExtension, PlanTemplate
from corral.domain.groups.revisions import RevisionRecord, revised_spec
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

_KIND: Final = "revisions"
_LAST: Final = 10**12


class RevisionShape(msgspec.Struct, frozen=True, kw_only=True):
    """A revision of a group without its document. `changed` names what differs from the revision before."""

    group: str
    number: int
    created_at: dt.datetime
    by: str
    trigger: str
    restart: int
    basis: str
    stable: bool
    pinned: bool
    instances: int
    changed: tuple[str, ...]


class RevisionDocument(RevisionShape, frozen=True, kw_only=True):
    """A revision with its document and the contents that this named. `maintenance`, `nodes`, `schedules` and
    `static_names` are always those of the present document: a revision has none."""

    document: GroupSpec
    templates: tuple[PlanTemplate, ...]
    artifact: PlanArtifact | None
    extensions: tuple[PlanExtension, ...]


async def list_revisions(state: ClusterState, call: ApiCall[None, PageQuery]) -> Page[RevisionShape]:
    name = state.groups.require(call.path["name"]).record.spec.name
    known = [stored.record for stored in state.revisions.of_group(name)]
    before = dict(zip((each.number for each in known[1:]), known, strict=False))
    counts = _instances(state, name)
    return page_of_sorted(
        list(reversed(known)),
        call.query,
        kind=_KIND,
        key=lambda each: f"{_LAST - each.number:013d}",
        shape=lambda each: _shape(state, each, before.get(each.number), counts[each.number]),
    )


async def get_revision(state: ClusterState, call: ApiCall[None, NoQuery]) -> RevisionDocument:
    name, written = state.groups.require(call.path["name"]).record.spec.name, call.path["number"]
    number = int(written) if written.isascii() and written.isdecimal() and len(written) < 13 else 0
    record = state.revisions.numbered(name, number)
    if record is None:
        raise Rejected(
            Code.NOT_FOUND,
            f"group '{name}' has no revision '{written[:20]}'",
            hint=f"'corral group revisions {name}' lists those that are kept",
        )
    earlier = [each for each in state.revisions.numbers(name) if each < number]
    before = state.revisions.numbered(name, earlier[-1]) if earlier else None
    shape = _shape(state, record, before, _instances(state, name)[number])
    return RevisionDocument(
        **msgspec.structs.asdict(shape),
        document=revised_spec(record.spec),
        templates=record.pins.templates,
        artifact=record.pins.artifact,
        extensions=record.pins.extensions,
    )


def _instances(state: ClusterState, group: str) -> Counter[int]:
    """How many live instances of a group were started by each revision."""
    records = (stored.record for stored in state.instances.of_group(group))
    return Counter(each.revision for each in records if live(each.state))


def _shape(
    state: ClusterState, record: RevisionRecord, before: RevisionRecord | None, instances: int
) -> RevisionShape:
    group = state.groups.require(record.group).record
    return RevisionShape(
        group=record.group,
        number=record.number,
        created_at=record.created_at,
        by=record.by,
        trigger=record.trigger,
        restart=record.restart,
        basis=record.basis,
        stable=group.stable_revision == record.number,
        pinned=group.pinned_revision == record.number,
        instances=instances,
        changed=tuple(_changed(before, record)) if before is not None else (),
    )


def _changed(before: RevisionRecord, after: RevisionRecord) -> Iterable[str]:
    yield from changed_fields(revised_spec(before.spec), revised_spec(after.spec))
    old = {each.name: each.hash for each in before.pins.templates}
    new = {each.name: each.hash for each in after.pins.templates}
    yield from (f"template {name}" for name in sorted(new) if new[name] != old.get(name))
    if before.spec.artifact == after.spec.artifact and before.pins.artifact != after.pins.artifact:
        yield "program"
    if before.spec.extensions == after.spec.extensions and before.pins.extensions != after.pins.extensions:
        yield "extension files"
    if before.restart != after.restart:
        yield "restart"


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/groups/{name}/revisions",
        permission=Permission.GROUPS_READ,
        summary="List the revisions of a group, the newest first",
        query=PageQuery,
        response=Page[RevisionShape],
        handler=list_revisions,
    ),
    Read(
        method="GET",
        path="/api/v1/groups/{name}/revisions/{number}",
        permission=Permission.GROUPS_READ,
        summary="Show a revision of a group with its document and the contents that this named",
        response=RevisionDocument,
        handler=get_revision,
    ),
)
