"""Reloading of a directory of group documents: what is right is applied in one transaction, what is wrong is reported by
file and keeps its group, and nothing is deleted unless that is asked for."""

from __future__ import annotations

import asyncio
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import structlog

from corral.controller.instances.document_checks import DocumentChecks
from corral.controller.instances.group_apply import (
    Action,
    AppliedGroup,
    ApplyOptions,
    CheckedSet,
    GivenDocument,
    apply_set,
    check_set,
)
from corral.controller.instances.group_folder import OWNER, GroupFolder
from corral.controller.instances.group_writes import StoredGroups
from corral.controller.instances.refused_documents import (
    ROUNDS,
    faults_of_documents,
    given_up,
    without,
)
from corral.controller.instances.workspace import Workspace
from corral.controller.state.ledger import Actor, Ledger, audit
from corral.domain.groups.document_sets import name_of
from corral.domain.groups.instance_records import GroupRecord
from corral.errors import Code, DocumentFault, DocumentsRejected, Rejected, Retryable
from corral.store.port import Append
from corral.store.store_errors import Conflict
from corral.system.document_sets import DocumentSet, FileDocument

_ATTEMPTS: Final = 3
_log = structlog.get_logger("corral.controller.groups")


class Reloaded(NamedTuple):
    applied: list[AppliedGroup]
    faults: list[DocumentFault]
    gone: list[str]
    """Groups of the directory whose file is gone: they stay."""


async def reload_groups(
    folder: GroupFolder,
    workspace: Callable[[], Workspace],
    ledger: Ledger,
    *,
    actor: Actor,
    prune: bool = False,
    confirm: frozenset[str] = frozenset(),
) -> Reloaded:
    """Read the directory and apply it. Rejected: it is empty or cannot be read; a prune that cannot be done. The caller
    holds the lock of documents."""
    found = await folder.read()
    for _ in range(_ATTEMPTS):
        try:
            done = await _reload(found, workspace, ledger, actor=actor, prune=prune, confirm=confirm)
            folder.gone = frozenset(done.gone)
            return done
        except Conflict:
            continue
    raise Retryable(
        Code.CONFLICT, "others changed the same groups meanwhile", hint="try again", retry_after=1.0
    )


async def _reload(
    found: DocumentSet,
    workspace: Callable[[], Workspace],
    ledger: Ledger,
    *,
    actor: Actor,
    prune: bool,
    confirm: frozenset[str],
) -> Reloaded:
    faults = [
        DocumentFault(each.path, "", Rejected(Code.INVALID_FIELD, each.message, hint="correct the file"))
        for each in found.faults
    ]
    given = [GivenDocument(each.path, each.body) for each in found.documents]
    places = {each.path: each for each in found.documents}
    gone = _gone(workspace().groups(), given) if not faults else []
    if prune and faults:
        raise DocumentsRejected(
            Code.DOCUMENTS_INVALID,
            "files cannot be read, so it is not known which groups have none",
            faults,
            hint="nothing was changed; correct them, then prune",
        )
    given, owned = _of_others(workspace().groups(), given)
    faults += owned
    options = ApplyOptions(owner=OWNER, confirm=confirm)
    removed = tuple(gone) if prune else ()
    for attempt in itertools.count(1):
        ws, plans, checked = await DocumentChecks(workspace, most=None).run(
            functools.partial(_checked, given, removed), lambda found: found.resolved.specs.values()
        )
        try:
            applied = apply_set(ws, plans, checked, options)
            break
        except DocumentsRejected as error:
            if prune:
                raise
            fresh = faults_of_documents(checked, error.faults, ws.groups())
            given = without(given, fresh, checked)
            faults += fresh
            if attempt == ROUNDS:
                faults += given_up(given)
                given = []
    if steps := await asyncio.to_thread(ws.pending_steps()):
        entries = [_entry(ws, actor, each) for each in applied if each.action is not Action.UNCHANGED]
        await ledger.commit(*steps, *entries)
    faults = [_with_line(each, places) for each in faults]
    for fault in faults:
        _log.warning("group_file.refused", file=fault.path, group=fault.group, reason=str(fault.error))
    left = [] if prune else gone
    if left:
        _log.warning("group_file.lost", groups=left, reason="the file is gone; the group stays")
    return Reloaded(applied, faults, left)


def _checked(given: list[GivenDocument], removed: tuple[str, ...], stored: StoredGroups) -> CheckedSet:
    return check_set(given, stored, removed)


def _with_line(fault: DocumentFault, places: Mapping[str, FileDocument]) -> DocumentFault:
    """The fault with the line of its field, where that is known."""
    place = places.get(fault.path)
    line = place.lines.get((fault.error.field or "").partition("/")[0]) if place else None
    return fault._replace(path=f"{place.file}:{line}") if place and line else fault


def _entry(ws: Workspace, actor: Actor, each: AppliedGroup) -> Append:
    return audit(
        actor,
        "groups.reload",
        each.name,
        after={"action": each.action, "changed": list(each.fields)},
        request=ws.request,
    )


def _gone(groups: Mapping[str, GroupRecord], given: list[GivenDocument]) -> list[str]:
    named = {name_of(each.body) for each in given}
    if "" in named:  # the document of any group
        return []
    return sorted(
        name
        for name, record in groups.items()
        if record.owner == OWNER and name not in named and not record.deleting
    )


def _of_others(
    groups: Mapping[str, GroupRecord], given: list[GivenDocument]
) -> tuple[list[GivenDocument], list[DocumentFault]]:
    """The documents without those of groups that have another owner, and a fault for each of these: what its owner
    applied stays."""
    left, faults = [], []
    for each in given:
        name = name_of(each.body)
        owner = groups[name].owner if name in groups else ""
        if owner in ("", OWNER):
            left.append(each)
            continue
        error = Rejected(
            Code.CONFLICT,
            f"group '{name}' belongs to the owner '{owner}', whose document stays",
            hint=f"take it out of the directory; or give the group to the directory: "
            f"'corral apply -f FILE --owner {OWNER} --force'",
        )
        faults.append(DocumentFault(each.path, name, error))
    return left, faults
