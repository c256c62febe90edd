"""Sets of group documents: checked together, and applied in one transaction or not at all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, RequestBody
from corral.controller.http.pipeline.caller_limits import RequestRates
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Build, Route
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.dry_runs import MOST_DECISIONS, PlannedShape, planned_shape
from corral.controller.http.resources.groups.group_changes import writing
from corral.controller.http.resources.groups.group_schemas import audited
from corral.controller.http.resources.instances.instance_changes import workspace
from corral.controller.instances.document_checks import DocumentChecks
from corral.controller.instances.group_apply import (
    Action,
    AppliedGroup,
    ApplyOptions,
    CheckedSet,
    GivenDocument,
    apply_set,
    check_set,
    removed_groups,
)
from corral.controller.instances.group_writes import StoredGroups
from corral.controller.instances.plan_signals import PlanSignals
from corral.controller.instances.plans import StateSources, awaited_template
from corral.controller.instances.revisions import present_basis
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation, Step, audit
from corral.domain.groups.drift import Drift, drift_of, misplaced
from corral.domain.groups.field_effects import FieldEffect, effect_of
from corral.domain.groups.instance_records import live, stays
from corral.domain.permissions import Permission
from corral.domain.planning.plan_results import PlanResult
from corral.domain.planning.planner import SHOWN_LIMITS, plan
from corral.domain.spec import invalid
from corral.errors import counted

MOST_DOCUMENTS: Final = 1000
MOST_BYTES: Final = 8 * 1024 * 1024
MOST_ENTRIES: Final = 200_000
"""Of all lists and objects of a set together."""
DOCUMENTS_A_REQUEST: Final = 20
"""Every so many documents count as one request more."""
_SHOWN: Final = 100
_VALUES: Final = 1024 * 1024
"""The most bytes of changed values in an answer."""
_OWNER: Final = re.compile("[a-z0-9]?[a-z0-9._-]{0,62}")


class DocumentInput(RequestBody, frozen=True, kw_only=True):
    path: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    body: Any


class ApplyInput(RequestBody, frozen=True, kw_only=True):
    documents: Annotated[tuple[DocumentInput, ...], msgspec.Meta(min_length=1, max_length=MOST_DOCUMENTS)]
    owner: Annotated[str, msgspec.Meta(extra_json_schema={"pattern": f"^{_OWNER.pattern}(?!\\n)$"})] = ""
    prune: bool = False
    force: bool = False
    dry_run: bool = False
    confirm: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=63)], ...], msgspec.Meta(max_length=10_000)
    ] = ()
    new_templates: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=127)], ...], msgspec.Meta(max_length=10_000)
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
    stopped: tuple[str, ...]
    stopped_count: int
    held: bool


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
    state: ClusterState, instances: InstanceControl, rates: RequestRates, call: ApiCall[ApplyInput, NoQuery]
) -> Describe:
    """Check and describe the set. The part that needs no state is done aside from the loop."""
    body = call.body
    rates.admit_part(call.caller, len(body.documents) // DOCUMENTS_A_REQUEST)
    if body.new_templates and not body.dry_run:
        raise invalid(
            "new_templates", "only a dry run counts templates that are not there", "upload them first"
        )
    new = {name: awaited_template(name, call.now) for name in body.new_templates}
    if _OWNER.fullmatch(body.owner) is None:
        raise invalid(
            "owner",
            f"{body.owner[:80]!r} is not a valid owner",
            "use up to 63 of a-z, 0-9, '.', '_' and '-'",
        )
    given = [GivenDocument(each.path, each.body) for each in body.documents]
    options = ApplyOptions(
        owner=body.owner,
        prune=body.prune,
        force=body.force,
        confirm=None if body.dry_run else frozenset(body.confirm),
    )

    def begin() -> Workspace:
        ws = workspace(instances, call, "POST /apply")
        ws.plans.sources = StateSources(state, new)
        return ws

    checks = DocumentChecks(begin)

    def check(stored: StoredGroups) -> CheckedSet:
        return check_set(given, stored, removed_groups(stored.records, given, options))

    async def describe() -> Mutation:
        ws, plans, checked = await checks.run(check, lambda found: found.resolved.specs.values())
        applied = apply_set(ws, plans, checked, options)
        outcome = _outcome(state, instances.signals, ws, applied, dry_run=body.dry_run)
        return await asyncio.to_thread(_mutation, outcome, ws.pending_steps(), call)

    return describe


class _Outcome(NamedTuple):
    """What a set does, as far as the state is needed to say it."""

    applied: Sequence[AppliedGroup]
    touched: Mapping[str, TouchedInstances]
    planned: PlanResult
    """Of a dry run."""
    revision: int


def _outcome(
    state: ClusterState,
    signals: PlanSignals,
    ws: Workspace,
    applied: Sequence[AppliedGroup],
    *,
    dry_run: bool,
) -> _Outcome:
    touched = {each.name: touched_instances(ws, each) for each in applied}
    planned = PlanResult(decisions=(), groups={})
    if dry_run:
        names = [each.name for each in applied if each.action is not Action.UNCHANGED]
        planned = plan(signals.view(ws), names, SHOWN_LIMITS)
    return _Outcome(applied, touched, planned, state.number)


def _mutation(
    outcome: _Outcome, encode: Callable[[], tuple[Step, ...]], call: ApiCall[ApplyInput, NoQuery]
) -> Mutation:
    """Pure: it takes a while for many groups."""
    shape = _shape(outcome, dry_run=call.body.dry_run)
    steps = () if call.body.dry_run else encode()
    if not steps:
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
        for each in outcome.applied
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


def _shape(outcome: _Outcome, *, dry_run: bool) -> ApplyShape:
    counts, decisions = _counts(outcome.applied), outcome.planned.decisions
    return ApplyShape(
        dry_run=dry_run,
        summary=summary(outcome.applied),
        created=counts[Action.CREATED],
        changed=counts[Action.CHANGED],
        unchanged=counts[Action.UNCHANGED],
        deleted=counts[Action.DELETED],
        groups=_group_changes(outcome),
        decisions=tuple(planned_shape(each) for each in decisions[:MOST_DECISIONS]),
        decisions_count=len(decisions),
        unfinished=outcome.planned.unfinished,
        revision=outcome.revision,
    )


def _group_changes(outcome: _Outcome) -> tuple[GroupChange, ...]:
    """What becomes of each group. Values are left out once they would make the answer too large: a field that a parent
    changes is in each of its descendants, and the answer is kept for as long as the request may be repeated."""
    left, shown = _VALUES, []
    for each in outcome.applied:
        found = group_change(each, outcome.touched[each.name])
        left -= sum(len(msgspec.json.encode((change.before, change.after))) for change in found.changes)
        if left < 0:
            bare = tuple(msgspec.structs.replace(change, before=None, after=None) for change in found.changes)
            found = msgspec.structs.replace(found, changes=bare)
        shown.append(found)
    return tuple(shown)


def _counts(applied: Sequence[AppliedGroup]) -> dict[Action, int]:
    return {action: sum(each.action is action for each in applied) for action in Action}


def summary(applied: Sequence[AppliedGroup]) -> str:
    """Of how many groups what becomes."""
    counts = _counts(applied)
    total = len(applied)
    parts = [
        f"{count} {action}" for action, count in counts.items() if count and action is not Action.UNCHANGED
    ]
    return f"{counted(total, 'group')}, {', '.join(parts) or 'nothing changed'}"


def group_change(each: AppliedGroup, touched: TouchedInstances) -> GroupChange:
    outdated, placement, stopped = touched.outdated, touched.placement, touched.stopped
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
        stopped=tuple(stopped[:_SHOWN]),
        stopped_count=len(stopped),
        held=each.after is not None and each.after.hold is not None,
    )


def _field_changes(each: AppliedGroup) -> tuple[FieldChange, ...]:
    if each.before is None or each.after is None:
        return ()
    old, new = each.before.spec, each.after.spec
    return tuple(
        FieldChange(field=name, effect=effect_of(name, before, after), before=before, after=after)
        for name in each.fields
        for before, after in [(getattr(old, name), getattr(new, name))]
    )


class TouchedInstances(NamedTuple):
    """The ids of instances that a change concerns."""

    outdated: Sequence[str] = ()
    placement: Sequence[str] = ()
    stopped: Sequence[str] = ()


def touched_instances(ws: Workspace, each: AppliedGroup) -> TouchedInstances:
    """The instances that would not run as the new document says, if the change is one that they cannot take over, and
    those that are stopped with their group."""
    if each.after is None:
        return TouchedInstances(stopped=[one.id for one in ws.instances_of(each.name) if live(one.state)])
    if {change.effect for change in _field_changes(each)} <= {FieldEffect.NOW}:
        return TouchedInstances()
    found: dict[Drift, list[str]] = {}
    staying = [record for record in ws.instances_of(each.name) if stays(record)]
    basis = present_basis(ws, each.after.spec) if staying else ""
    for record in staying:
        node = ws.state.nodes.find(record.node)
        elsewhere = node is not None and misplaced(each.after.spec, node.record)
        found.setdefault(drift_of(record.basis, basis, elsewhere=elsewhere), []).append(record.id)
    return TouchedInstances(outdated=found.get(Drift.OUTDATED, ()), placement=found.get(Drift.PLACEMENT, ()))


ROUTES: Final[tuple[Route, ...]] = (
    Build(
        method="POST",
        path="/api/v1/apply",
        permission=Permission.GROUPS_MANAGE,
        summary="Apply a set of group documents, all of them or none",
        body=ApplyInput,
        body_limit=MOST_BYTES,
        most_values=MOST_ENTRIES,
        response=ApplyShape,
        handler=apply_documents,
        turn=writing,
    ),
)
