"""`corral import universe`: the groups and templates of a Universe node, taken over together or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from corral.cli.api.session import ApiSession, api_command
from corral.cli.apply import apply_set, send_set
from corral.cli.failure import CommandFailure, CommandRefused, note
from corral.cli.terminal.confirmation import yes_option
from corral.cli.universe.folder import UniverseFolder
from corral.cli.universe.import_plan import ImportPlan, import_plan
from corral.cli.universe.report import ImportResult, show_result
from corral.cli.universe.template_trees import TemplateTree, TemplateUpload, compared, read_trees, uploaded
from corral.cli.universe.tokens import made_token, planned_tokens
from corral.cli.universe.worlds import PlannedWorld, copied, planned_copy, planned_worlds, reserve
from corral.domain.universe.configurations import origin_of
from corral.domain.universe.field_reports import FieldFault
from corral.system.document_sets import DocumentSet, FileDocument, FileFault

OWNER: Final = "universe"


@click.group("import")
def import_() -> None:
    """Take over what another system has."""


@import_.command()
@click.argument("directory", metavar="DIR")
@click.option(
    "--dry-run", is_flag=True, help="Only show what would become of each field, and what would follow."
)
@click.option("--force", is_flag=True, help="Undo edits since the last time; take over from other owners.")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="[INSTANCE=]NODE",
    help="Copy static directories to this node, or that of one instance; several times.",
)
@click.option("--replace", is_flag=True, help="With --node: write over files that differ there.")
@yes_option
@api_command
def universe(
    session: ApiSession,
    directory: str,
    dry_run: bool,
    force: bool,
    nodes: tuple[str, ...],
    replace: bool,
    yes: bool,
) -> None:
    """Import a Universe folder: configurations become groups.

    Each field is reported: taken, mapped to something of Corral, or dropped. One error anywhere in the folder refuses all
    of it. The folder itself is not changed. Static directories are copied to a node with --node, and otherwise left to you.
    """
    folder = UniverseFolder(directory)
    plan = import_plan(folder)
    faults = list(plan.faults)
    trees = read_trees(folder.templates, faults)
    found = _documents(plan, faults)
    options = {"owner": OWNER, "force": force}
    answer = _checked(session, found, {**options, **_first(trees)})
    changes = compared(session.client, trees)
    tokens = planned_tokens(session) if plan.has_database else []
    worlds = planned_worlds(session, plan, nodes, replace=replace)
    done = [planned_copy(each) for each in worlds]
    if not dry_run:
        changes = _upload(session, changes)
        if found.documents:
            answer = _applied(
                session, found, answer, worlds, lambda each: _apply(session, each, options, changes, yes=yes)
            )
        tokens = [made_token(session, each) for each in tokens]
        done = [copied(session, each, replace=replace) for each in worlds]
    show_result(session, ImportResult(dry_run, plan, changes, answer, tokens, done))


def _applied(
    session: ApiSession,
    found: DocumentSet,
    planned: Any,
    worlds: Sequence[PlannedWorld],
    apply: Callable[[DocumentSet], Any],
) -> Any:
    """Apply the set, with the places of worlds reserved before their instances could start: a new group has none at first."""
    created = {each["name"] for each in planned["groups"] if each["action"] == "created"}
    new = [each for each in worlds if each.copy.group in created]
    for each in worlds:
        if each not in new and each.found is None:
            reserve(session, each)
    waiting = {each.copy.group for each in new}
    first = [
        each._replace(body={**each.body, "min": 0}) if each.body.get("name") in waiting else each
        for each in found.documents
    ]
    answer = apply(DocumentSet(first, found.faults))
    for each in new:
        reserve(session, each)
    if new:
        apply(found)
    return answer


def _documents(plan: ImportPlan, faults: Sequence[FieldFault]) -> DocumentSet:
    """The documents of all configurations without a fault; of several with one name, which is a fault, the first."""
    sound = {each.name: each for each in reversed(plan.configurations) if not each.faults}
    documents = [FileDocument(each.file, each.document, each.file, {}) for each in reversed(sound.values())]
    return DocumentSet(documents, [FileFault(each.file, each.sentence(), each.file) for each in faults])


def _checked(session: ApiSession, found: DocumentSet, options: dict[str, Any]) -> Any:
    """What the controller would make of the set; every fault of the folder, and of the set, refuses it."""
    try:
        return send_set(session, found, options, field_name=origin_of)
    except CommandRefused as refusal:
        if refusal.code == "DOCUMENTS_INVALID":
            refusal.hint = "nothing was changed; correct what is listed and import again"
        raise


def _first(trees: Sequence[TemplateTree]) -> dict[str, Any]:
    """Options of the dry run that comes first, before the templates are there."""
    return {"dry_run": True, "new_templates": [each.source.name for each in trees]}


def _upload(session: ApiSession, changes: Sequence[TemplateUpload]) -> list[TemplateUpload]:
    done: list[TemplateUpload] = []
    try:
        for each in changes:
            done.append(uploaded(session.client, each))
    except CommandFailure:
        _note_uploaded(done)
        raise
    return done


def _apply(
    session: ApiSession,
    found: DocumentSet,
    options: dict[str, Any],
    changes: Sequence[TemplateUpload],
    *,
    yes: bool,
) -> Any:
    try:
        return apply_set(session, found, options, yes=yes)
    except (CommandFailure, click.Abort):
        _note_uploaded(changes)
        raise


def _note_uploaded(changes: Sequence[TemplateUpload]) -> None:
    """What was done before a failure."""
    names = [each.tree.source.name for each in changes if each.action != "unchanged"]
    if names:
        note(f"uploaded before: {', '.join(names)}; the next import does not upload them again")
