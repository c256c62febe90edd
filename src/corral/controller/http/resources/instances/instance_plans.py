"""Routes of an instance's plan, and of saving its files as a template."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Annotated, Final

import msgspec

from corral.controller.consoles.service import Consoles
from corral.controller.http.messages.call import ApiCall, NoQuery, Query, RequestBody, Text
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.route_handlers import Describe
from corral.controller.http.pipeline.route_table import Build, Read, Route
from corral.controller.http.pipeline.scoping import Scoping, check_scope
from corral.controller.http.pipeline.term_ports import FileDistribution
from corral.controller.http.resources.templates.template_schemas import (
    ChangedTemplate,
    changed,
    making,
    still,
)
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import instance_decisions
from corral.controller.state.ledger import Mutation
from corral.controller.templates import template_changes as changes
from corral.controller.templates.library import TemplateLibrary
from corral.domain.events import Draft, EventType
from corral.domain.file_paths import (
    check_glob,
)
from corral.domain.groups.plans import Plan, read_plan
from corral.domain.ids import MAX_COUNTER
from corral.domain.permissions import Permission
from corral.domain.templates import template_name
from corral.errors import Code, Rejected
from corral.store.port import ReadEngine
from corral.system.aio.keyed_locks import KeyedLocks

_DECISIONS: Final = 50
_PATHS: Final = 100


class PlanShape(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of the present or last run; `hash` is that of its canonical JSON. `picks` are
    the templates that were drawn for it among equals."""

    id: str
    hash: str
    plan: Plan
    picks: list[str]


class PlanQuery(Query, frozen=True, kw_only=True):
    incarnation: (
        Annotated[
            int, msgspec.Meta(ge=1, le=MAX_COUNTER, description="Which run; without it the present or last.")
        ]
        | None
    ) = None


class Save(RequestBody, frozen=True, kw_only=True):
    template: Annotated[str, msgspec.Meta(max_length=127, description="NAME or GROUP/NAME.")]
    paths: Annotated[
        tuple[Annotated[str, msgspec.Meta(min_length=1, max_length=4096)], ...],
        msgspec.Meta(min_length=1, max_length=_PATHS, description="Globs of the files to save."),
    ]
    note: Text = ""
    merge: Annotated[bool, msgspec.Meta(description="Lay them over the template's files.")] = False
    secret_names: Annotated[
        bool,
        msgspec.Meta(
            description="Put %NAME% in place of the values of secrets; else such files are refused."
        ),
    ] = False


async def get_plan(
    state: ClusterState, consoles: Consoles, reads: ReadEngine, call: ApiCall[None, PlanQuery]
) -> PlanShape:
    record = state.instances.require(call.path["id"]).record
    hash, asked = record.plan_hash, call.query.incarnation
    if asked is not None:
        hash = await consoles.runs.plan_hash(record, asked)
    stored = state.plans.find(hash)
    if stored is None:
        raise Rejected(
            Code.NOT_FOUND,
            f"the plan of this run of instance '{record.id}' is not kept any more",
            hint="plans go when no run of the last starts has them",
            field="incarnation" if asked is not None else None,
        )
    plan = stored.record
    picks = await _picks(reads, record.id, hash)
    return PlanShape(id=record.id, hash=plan.hash, plan=read_plan(plan), picks=picks)


async def _picks(reads: ReadEngine, id: str, plan_hash: str) -> list[str]:
    """From the decision that started it, which may be gone: decisions are kept for a while only."""
    journal = instance_decisions(id)
    entries = await reads.entries(journal.name, limit=_DECISIONS, newest=True)
    for decision in (journal.decode(entry.body) for entry in reversed(entries)):
        if decision.inputs.get("plan") == plan_hash:
            return [name for name in str(decision.inputs.get("picks", "")).split(", ") if name]
    return []


async def save_instance(
    state: ClusterState,
    templates: TemplateLibrary,
    distribution: FileDistribution,
    setting: ProcessContext,
    call: ApiCall[Save, NoQuery],
) -> Describe:
    """Fetch the files once; making a version of them may happen again. Who may not read them does not get them by a
    template either."""
    asked = call.body
    authorise(call.caller, Permission.INSTANCES_FILES)
    check_scope(Scoping.INSTANCE, call.caller.access, Permission.INSTANCES_FILES, state, call.path)
    instance = state.instances.require(call.path["id"]).record
    id = instance.id
    template_name(asked.template)
    for number, path in enumerate(asked.paths):
        check_glob(path, field=f"paths/{number}")
    async with distribution.save_files(id, asked.paths, secret_names=asked.secret_names) as archive:
        saved = await templates.intake_archive(archive, any_ratio=True)

    async def describe() -> Mutation:
        intake, stored = saved, state.templates.find(asked.template)
        if stored is not None and asked.merge:
            base = await templates.tree_of(stored.record.version())
            intake = await templates.overlaid(base, saved.manifest)
            still(state, stored.record.name, stored)
        change = changes.new_version(
            state,
            asked.template,
            intake,
            saved_from=instance.group,
            **making(setting, call, asked.note or f"saved from {id}"),
        )
        number = change.record.current
        event = Draft(
            type=EventType.INSTANCE_SAVED,
            subject=id,
            data={
                "template": asked.template,
                "version": number,
                "group": instance.group,
                "node": instance.node,
            },
        )
        return changed(state, "instances.save", change, event, instance=id, paths=list(asked.paths))

    return describe


def _turn(edits: KeyedLocks[str], call: ApiCall[Save, NoQuery]) -> AbstractAsyncContextManager[None]:
    return edits.hold(call.body.template)


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/instances/{id}/plan",
        permission=Permission.INSTANCES_READ,
        summary="Show what an instance was started with",
        query=PlanQuery,
        response=PlanShape,
        handler=get_plan,
    ),
    Build(
        method="POST",
        path="/api/v1/instances/{id}/save",
        permission=Permission.TEMPLATES_MANAGE,
        scope=Scoping.EVERYWHERE,  # a template belongs to no group: what is saved there is started elsewhere
        summary="Save files of an instance as a new version of a template",
        body=Save,
        response=ChangedTemplate,
        handler=save_instance,
        creates=True,
        turn=_turn,
    ),
)
