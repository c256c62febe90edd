"""Revisions of groups in a transaction: looked up, and made by starts and deployments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import GROUPS, REVISIONS
from corral.domain.groups.deployments import DeploymentRecord
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.instance_records import GroupRecord, live
from corral.domain.groups.pinned_contents import revision_not_kept
from corral.domain.groups.plan_resolution import ResolvedPlan
from corral.domain.groups.revisions import (
    REVISION_BYTES,
    REVISIONS_KEPT,
    RevisionRecord,
    restarted_basis,
    revised_spec,
    revision_id,
)
from corral.errors import Code, Rejected
from corral.store.port import encode

BY_START: Final = "start"
"""The trigger of a revision that a start by the present document made."""
_DROPPED: Final = 20
"""So many revisions at most go with a new one; the sweep takes the rest."""


def find_revision(ws: Workspace, group: str, number: int) -> RevisionRecord | None:
    return ws.document(REVISIONS, revision_id(group, number))


def newest_number(state: ClusterState, group: str) -> int:
    """The number of the last revision that was made of a group; 0: there is none."""
    newest = state.revisions.newest(group)
    return newest.number if newest is not None else 0


def revisions_in_use(state: ClusterState, group: str) -> set[int]:
    """The revisions of a group that are kept however old they are: of live instances, of deployments, and those that it
    would be started by or go back to."""
    live_ones = (each.record for each in state.instances.of_group(group) if live(each.record.state))
    used = {each.revision for each in live_ones}
    deployments = [each.record for each in state.deployments.of_group(group)]
    used |= {number for each in deployments[:1] for number in _named_by(each)}
    used |= {next((each.target for each in deployments if each.brings_document), 0)}
    stored = state.groups.find(group)
    if stored is not None:
        record = stored.record
        used |= {record.stable_revision, record.pinned_revision}
        for id in filter(None, (record.deployment, record.unsettled)):
            found = state.deployments.find(id)
            used |= set(_named_by(found.record)) if found is not None else set()
    return used - {0}


def _named_by(deployment: DeploymentRecord) -> tuple[int, ...]:
    return deployment.target, deployment.stable, deployment.pinned_before


def surplus_revisions(
    state: ClusterState, group: str, *, keep: int = REVISIONS_KEPT
) -> list[StoredRecord[RevisionRecord]]:
    """The revisions of a group that need not be kept any more, beside so many of the newest; of a group that is gone all of
    them."""
    stored = state.revisions.of_group(group)
    if state.groups.find(group) is None:
        return [] if state.quarantine.holds(GROUPS.name, group) else stored
    if len(stored) <= keep:
        return []
    used = revisions_in_use(state, group)
    return [each for each in stored[:-keep] if each.record.number not in used]


def newest_revision(ws: Workspace, group: str) -> RevisionRecord | None:
    """The last revision that was made of a group."""
    found = ws.state.revisions.newest(group)
    number = found.number if found is not None else 0
    while (later := find_revision(ws, group, _next_number(ws, group, number))) is not None:
        found, number = later, later.number
    return find_revision(ws, group, number) if found is not None else None


def revisions_of(ws: Workspace, group: str) -> Iterator[RevisionRecord]:
    """All of them, ascending."""
    newest = newest_revision(ws, group)
    numbers = dict.fromkeys([*ws.state.revisions.numbers(group), *([newest.number] if newest else [])])
    found = (find_revision(ws, group, number) for number in numbers)
    return (each for each in found if each is not None)


def make_revision(
    ws: Workspace, name: str, *, by: str, trigger: str, restart: bool = False
) -> RevisionRecord:
    """The revision of the present document: the newest one if that has the same basis, else a new one. With `restart` a new
    one in any case, of what the group is started by now: of the revision that it is pinned to, if it is. Raises what keeps it
    from being planned; BODY_TOO_LARGE when it is too large to be kept."""
    group = ws.require_group(name)
    pinned = group.pinned_revision if restart else 0
    resolved = resolved_by(ws, group.spec, pinned, draw=lambda _: 0)
    newest = newest_revision(ws, name)
    source = find_revision(ws, name, pinned) if pinned else None
    spec = source.spec if source is not None else group.spec
    made = _revision(ws, spec, resolved, newest, by=by, trigger=trigger, restart=restart)
    if newest is not None and newest.basis == made.basis:
        return newest
    size = len(encode(made))
    if size > REVISION_BYTES:
        raise Rejected(
            Code.BODY_TOO_LARGE,
            f"a revision of group '{name}' would have {size} bytes: its document with the contents that it names",
            hint=f"keep it below {REVISION_BYTES}: put long values into files of a template",
        )
    _record(ws, made)
    return made


def resolved_by(
    ws: Workspace, present: GroupSpec, number: int, *, draw: Callable[[int], int] | None = None
) -> ResolvedPlan:
    """The plan of a start by a revision of a group, or with 0 by its present document. Raises what keeps it from being made.
    `draw`: instead of chance."""
    if not number:
        return ws.resolve(present, draw=draw)
    revision = find_revision(ws, present.name, number)
    if revision is None:
        damaged = ws.state.quarantine.holds(REVISIONS.name, revision_id(present.name, number))
        raise revision_not_kept(present.name, number, unreadable=damaged)
    return ws.plans.resolve_revision(present, revision, draw=draw)


def present_basis(ws: Workspace, spec: GroupSpec) -> str:
    """The basis of a start by this document of a group; empty: it is abstract, or cannot be planned."""
    try:
        basis = "" if spec.abstract else ws.resolve(spec, draw=lambda _: 0).basis
    except Rejected:
        return ""
    newest = newest_revision(ws, spec.name)
    return restarted_basis(basis, newest.restart if newest is not None else 0)


def next_revision(group: GroupRecord, deployment: DeploymentRecord | None) -> int:
    """The revision that the next start of a group is to be made by: where its deployment goes, or where it is pinned; 0: its
    document."""
    if deployment is None or not deployment.active:
        return group.pinned_revision
    return deployment.stable if deployment.going_back and deployment.stable else deployment.target


def next_basis(ws: Workspace, group: GroupRecord) -> str:
    """The basis of the group's next start; empty: it cannot be planned."""
    number = next_revision(group, ws.deployment(group.deployment) if group.deployment else None)
    if not number:
        return present_basis(ws, group.spec)
    revision = find_revision(ws, group.spec.name, number)
    return revision.basis if revision is not None else ""


def recorded_revision(ws: Workspace, group: GroupRecord, resolved: ResolvedPlan) -> tuple[int, str]:
    """The number of the revision that a start by the present document belongs to, and its basis. A new one is recorded where
    the document or what it names has changed; one that is too large is not, and has the number 0."""
    name = group.spec.name
    newest = newest_revision(ws, name)
    basis = restarted_basis(resolved.basis, newest.restart if newest is not None else 0)
    if newest is not None and newest.basis == basis:
        return newest.number, basis
    made = _revision(ws, group.spec, resolved, newest, by=ws.by, trigger=BY_START)
    if len(encode(made)) > REVISION_BYTES:
        return 0, basis
    _record(ws, made)
    return made.number, basis


def _record(ws: Workspace, made: RevisionRecord) -> None:
    """Store a revision; what it makes one too many goes with it, not with the next sweep: a group that is deployed again
    and again would fill the store meanwhile."""
    ws.put_document(REVISIONS, revision_id(made.group, made.number), made)
    for each in surplus_revisions(ws.state, made.group, keep=REVISIONS_KEPT - 1)[:_DROPPED]:
        ws.put_document(REVISIONS, revision_id(made.group, each.record.number), None)


def drop_revisions(ws: Workspace, name: str) -> None:
    """Remove every revision of a group that goes: one with the same name begins with 1."""
    for each in list(revisions_of(ws, name)):
        ws.put_document(REVISIONS, revision_id(name, each.number), None)


def _revision(
    ws: Workspace,
    spec: GroupSpec,
    resolved: ResolvedPlan,
    newest: RevisionRecord | None,
    *,
    by: str,
    trigger: str,
    restart: bool = False,
) -> RevisionRecord:
    name = spec.name
    number = _next_number(ws, name, newest.number if newest is not None else 0)
    restarted = number if restart else newest.restart if newest is not None else 0
    return RevisionRecord(
        group=name,
        number=number,
        spec=revised_spec(spec),
        pins=resolved.pins,
        basis=restarted_basis(resolved.document_basis, restarted),
        created_at=ws.now,
        by=by,
        trigger=trigger,
        restart=restarted,
    )


def _next_number(ws: Workspace, group: str, number: int) -> int:
    """The number after this one that no unreadable revision has."""
    number += 1
    while ws.state.quarantine and ws.state.quarantine.holds(REVISIONS.name, revision_id(group, number)):
        number += 1
    return number
