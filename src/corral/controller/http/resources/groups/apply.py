"""Sets of group documents: checked together, and applied in one transaction or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.pipeline.api_context import InstanceControl
from corral.controller.http.pipeline.route_table import Build, Describe, Route
from corral.controller.http.resources.dry_runs import MOST_DECISIONS, PlannedShape, planned_shape
from corral.controller.http.resources.groups.group_changes import writing
from corral.controller.http.resources.groups.group_schemas import audited
from corral.controller.http.resources.instances.instance_changes import workspace
from corral.controller.instances.group_apply import (
    Action,
    AppliedGroup,
    ApplyOptions,
    GivenDocument,
    apply_set,
    check_set,
    removed_groups,
)
from corral.controller.instances.group_writes import documents_of, stored_groups
from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation, Step, audit
from corral.domain.groups.drift import Drift, drift_of, misplaced
from corral.domain.groups.field_effects import EFFECTS, FieldEffect, effects_of
from corral.domain.groups.instance_records import stays
from corral.domain.permissions import Permission
from corral.domain.planning.planner import PlannedDecision, plan
from corral.errors import Code, Rejected, Retryable

MOST_DOCUMENTS: Final = 1000
MOST_BYTES: Final = 8 * 1024 * 1024
_ATTEMPTS: Final = 3
_SHOWN: Final = 100


class DocumentInput(RequestBody, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    body: Any


class ApplyInput(RequestBody, frozen=True, kw_only=True):
    documents: Annotated[tuple[DocumentInput, ...], msgspec.Meta(min_length=1, max_length=MOST_DOCUMENTS)]
    owner: Annotated[str, msgspec.Meta(pattern="^[a-z0-9]?[a-z0-9._-]{0,62}(?!\\n)$")] = ""
    prune: bool = False
    force: bool = False
    dry_run: bool = False
    confirm: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=63)], ...], msgspec.Meta(max_length=10_000)
    ] = ()


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    effect: FieldEffect
    before: Any
    after: Any


class GroupChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a set of documents makes of one group."""

    name: str
    path: str
    action: Action
    adopted: bool
    changes: tuple[FieldChange, ...]
    outdated: tuple[str, ...]
    outdated_count: int
    placement: tuple[str, ...]
    placement_count: int


class ApplyShape(msgspec.Struct, frozen=True, kw_only=True):
    dry_run: bool
    summary: str
    created: int
    changed: int
    unchanged: int
    deleted: int
    groups: tuple[GroupChange, ...]
    decisions: tuple[PlannedShape, ...]
    decisions_count: int
    unfinished: tuple[str, ...]
    revision: int


async def apply_documents(
    state: ClusterState, instances: InstanceControl, call: ApiCall[ApplyInput, NoQuery]
) -> Describe:
    """Check and describe the set. The part that needs no state is done aside from the loop."""
    body = call.body
    given = [GivenDocument(each.path, each.body) for each in body.documents]
    options = ApplyOptions(
        owner=body.owner,
        prune=body.prune,
        force=body.force,
        confirm=None if body.dry_run else frozenset(body.confirm),
    )
    attempts = 0

    async def describe() -> Mutation:
        nonlocal attempts
        attempts += 1
        if attempts > _ATTEMPTS:
            raise Retryable(
                Code.CONFLICT,
                f"others changed the same groups {_ATTEMPTS} times while this was tried",
                hint="try again",
                retry_after=1.0,
            )
        before = workspace(instances, call, "POST /apply")
        stored = stored_groups(before)
        gone = removed_groups(before.groups(), given, options)
        checked = await asyncio.to_thread(check_set, given, stored, gone)
        ws = workspace(instances, call, "POST /apply")
        if (
            documents_of(ws) != stored.documents
        ):  # the lock of documents is held: something else removed a group
            return await describe()
        return _mutation(state, instances.signals, ws, apply_set(ws, checked, options), call)

    return describe


def _mutation(
    state: ClusterState,
    signals: PlanSignals,
    ws: Workspace,
    applied: Sequence[AppliedGroup],
    call: ApiCall[ApplyInput, NoQuery],
) -> Mutation:
    steps: tuple[Step, ...] = ws.steps()
    shape = _shape(state, signals, ws, applied, dry_run=call.body.dry_run)
    if call.body.dry_run or not steps:
        return Mutation(action="groups.apply", subject="groups", steps=(), body=shape, remembered=False)
    entries = [
        audit(
            call.caller.actor,
            f"groups.{_VERBS[each.action]}",
            each.name,
            before=audited(each.before) if each.before else None,
            after=audited(each.after) if each.after else None,
            request=call.request,
        )
        for each in applied
        if each.action is not Action.UNCHANGED
    ]
    return Mutation(
        action="groups.apply",
        subject=call.body.owner or "groups",
        steps=(*steps, *entries),
        body=shape,
        after={
            "summary": shape.summary,
            "prune": call.body.prune,
            "force": call.body.force,
            "confirm": sorted(call.body.confirm),
        },
    )


_VERBS: Final = {Action.CREATED: "create", Action.CHANGED: "update", Action.DELETED: "delete"}


def _shape(
    state: ClusterState,
    signals: PlanSignals,
    ws: Workspace,
    applied: Sequence[AppliedGroup],
    *,
    dry_run: bool,
) -> ApplyShape:
    counts = _counts(applied)
    changes = tuple(group_change(ws, each) for each in applied)
    decisions: tuple[PlannedDecision, ...] = ()
    unfinished: tuple[str, ...] = ()
    if dry_run:
        names = [each.name for each in applied if each.action is not Action.UNCHANGED]
        result = plan(signals.view(ws), names)
        decisions, unfinished = result.decisions, result.unfinished
    return ApplyShape(
        dry_run=dry_run,
        summary=summary(applied),
        created=counts[Action.CREATED],
        changed=counts[Action.CHANGED],
        unchanged=counts[Action.UNCHANGED],
        deleted=counts[Action.DELETED],
        groups=changes,
        decisions=tuple(planned_shape(each) for each in decisions[:MOST_DECISIONS]),
        decisions_count=len(decisions),
        unfinished=unfinished,
        revision=state.number,
    )


def _counts(applied: Sequence[AppliedGroup]) -> dict[Action, int]:
    return {action: sum(each.action is action for each in applied) for action in Action}


def summary(applied: Sequence[AppliedGroup]) -> str:
    """Of how many groups what becomes."""
    counts = _counts(applied)
    total = len(applied)
    noun = "group" if total == 1 else "groups"
    parts = [
        f"{count} {action}" for action, count in counts.items() if count and action is not Action.UNCHANGED
    ]
    return f"{total} {noun}, {', '.join(parts) or 'nothing changed'}"


def group_change(ws: Workspace, each: AppliedGroup) -> GroupChange:
    touched = _touched(ws, each)
    outdated, placement = touched.get(Drift.OUTDATED, []), touched.get(Drift.PLACEMENT, [])
    return GroupChange(
        name=each.name,
        path=each.path,
        action=each.action,
        adopted=each.adopted,
        changes=_field_changes(each),
        outdated=tuple(outdated[:_SHOWN]),
        outdated_count=len(outdated),
        placement=tuple(placement[:_SHOWN]),
        placement_count=len(placement),
    )


def _field_changes(each: AppliedGroup) -> tuple[FieldChange, ...]:
    if each.before is None or each.after is None:
        return ()
    old, new = each.before.spec, each.after.spec
    return tuple(
        FieldChange(field=name, effect=EFFECTS[name], before=getattr(old, name), after=getattr(new, name))
        for name in each.fields
    )


def _touched(ws: Workspace, each: AppliedGroup) -> dict[Drift, list[str]]:
    """The instances that would not run as the new document says, if the change is one that they cannot take over."""
    found: dict[Drift, list[str]] = {}
    if each.after is None or effects_of(each.fields) <= {FieldEffect.NOW}:
        return found
    spec = each.after.spec
    try:
        basis = "" if spec.abstract else ws.resolve(spec, draw=lambda _: 0).basis
    except Rejected:
        basis = ""
    for record in ws.instances_of(each.name):
        node = ws.state.nodes.find(record.node) if stays(record) else None
        if not stays(record):
            continue
        elsewhere = node is not None and misplaced(spec, node.record)
        found.setdefault(drift_of(record.basis, basis, elsewhere=elsewhere), []).append(record.id)
    return found


ROUTES: Final[tuple[Route, ...]] = (
    Build(
        method="POST",
        path="/api/v1/apply",
        permission=Permission.GROUPS_MANAGE,
        summary="Apply a set of group documents, all of them or none",
        body=ApplyInput,
        body_limit=MOST_BYTES,
        response=ApplyShape,
        handler=apply_documents,
        turn=writing,
    ),
)
