"""Applying a set of group documents: all of them are checked together, and written in one transaction or not at all.

A document replaces what was written before; the number of instances, a pause and a hold are not in it and stay. Each
group remembers the digest of the document that was applied last, so an edit since then is not undone by mistake.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from corral.controller.instances.confirmations import before_group_goes
from corral.controller.instances.group_changes import end_group
from corral.controller.instances.group_writes import (
    GroupWrite,
    StoredGroups,
    check_write,
    planned_write,
    store_write,
)
from corral.controller.instances.instance_changes import refuse_deleting
from corral.controller.instances.plan_checks import PlanChecks
from corral.controller.instances.workspace import Workspace
from corral.domain.groups.document_sets import (
    ResolvedSet,
    differing_fields,
    document_digest,
    field_faults,
    name_of,
    orphan_faults,
    reference_faults,
    resolve_set,
)
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.inheritance import Document, GroupFault, of_descendant, parent_of, written_document
from corral.domain.groups.instance_records import GroupRecord
from corral.errors import (
    Code,
    DocumentFault,
    DocumentsRejected,
    Guesses,
    Rejected,
    counted,
    limited_guesses,
    short_list,
)

MAX_FAULTS: Final = 1000
_SHOWN: Final = 20
_NAME_SHOWN: Final = 40


class GivenDocument(NamedTuple):
    """A document, and where its author has it."""

    path: str
    body: Any


class ApplyOptions(msgspec.Struct, frozen=True, kw_only=True):
    owner: str = ""
    """Whose set it is; empty: nobody's, and owners stay as they are."""
    prune: bool = False
    """Delete groups of this owner that are not in the set."""
    force: bool = False
    """Undo edits since the last time, and take groups over from other owners."""
    confirm: frozenset[str] | None = frozenset()
    """Groups whose instances and worlds may be given up; None: all, for a dry run."""

    def confirmation(self, group: str) -> str:
        """The name of the group, if that is confirmed."""
        return group if self.confirm is None or group in self.confirm else ""


class Action(enum.StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    DELETED = "deleted"


class AppliedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What a set of documents makes of one group."""

    name: str
    path: str = ""
    """Empty: it is not in the set, and inherits a change or is deleted."""
    action: Action
    fields: tuple[str, ...] = ()
    """The fields of the resolved document that differ."""
    before: GroupRecord | None = None
    after: GroupRecord | None = None
    adopted: bool = False
    """Its owner or the mark of the last apply changes."""


class DocumentDigests(NamedTuple):
    """The digests of documents by the names of their groups."""

    given: dict[str, str]
    stored: dict[str, str]
    """Of those that the given ones replace."""


class CheckedSet(NamedTuple):
    """A set as far as it can be checked without the cluster's state; see `check_set`."""

    documents: dict[str, GivenDocument]
    """By the name of the group."""
    every: dict[str, Document]
    """These and the stored ones, without those that are to be deleted."""
    gone: tuple[str, ...]
    resolved: ResolvedSet
    digests: DocumentDigests
    faults: list[DocumentFault]
    guesses: Guesses
    """What is left of those of the answer."""


def removed_groups(
    groups: Mapping[str, GroupRecord], documents: Iterable[GivenDocument], options: ApplyOptions
) -> tuple[str, ...]:
    """The groups of the owner that are not in the set, with `prune`."""
    if not options.prune:
        return ()
    if not options.owner:
        raise Rejected(
            Code.INVALID_FIELD,
            "prune needs an owner: only groups of one owner are deleted",
            hint="give the owner of this set (--owner NAME)",
            field="prune",
        )
    named = {name_of(each.body) for each in documents}
    return tuple(
        sorted(
            name
            for name, record in groups.items()
            if record.owner == options.owner and name not in named and not record.deleting
        )
    )


def check_set(given: Sequence[GivenDocument], stored: StoredGroups, gone: tuple[str, ...]) -> CheckedSet:
    """Check the documents with each other and with the stored ones. Pure, and may take a while."""
    documents: dict[str, GivenDocument] = {}
    faults: list[DocumentFault] = []
    doubled: set[str] = set()
    for each in given:
        error, name = _unnamed(each), name_of(each.body)
        if error is not None:
            faults.append(DocumentFault(each.path, name, error))
        elif name in documents:  # neither is better than the other
            first = documents[name]
            if name not in doubled:
                faults.append(DocumentFault(first.path, name, _twice(name, each)))
            doubled.add(name)
            faults += [
                DocumentFault(each.path, name, fault)
                for fault in (_twice(name, first), *field_faults(each.body))
            ]
        else:
            documents[name] = each
    left = frozenset(gone)
    every: dict[str, Document] = {name: each for name, each in stored.documents.items() if name not in left}
    every |= {name: each.body for name, each in documents.items()}
    guesses = Guesses()
    with limited_guesses(guesses):
        specs = {name: each.spec for name, each in stored.records.items()}
        resolved, found = _resolved(documents, every, specs, gone)
    faults += [_located(each, documents) for each in found]
    right = {name: each for name, each in documents.items() if name in resolved.specs}
    return CheckedSet(documents, every, gone, resolved, _digests(right, stored), faults, guesses)


def _digests(documents: Mapping[str, GivenDocument], stored: StoredGroups) -> DocumentDigests:
    there = {name: each for name, each in stored.documents.items() if name in documents}
    return DocumentDigests(
        given={name: document_digest(each.body) for name, each in documents.items()},
        stored={name: document_digest(each) for name, each in there.items()},
    )


def _resolved(
    documents: Mapping[str, GivenDocument],
    every: Mapping[str, Document],
    specs: Mapping[str, GroupSpec],
    gone: tuple[str, ...],
) -> tuple[ResolvedSet, list[GroupFault]]:
    resolved = resolve_set(documents, every)
    others = {name: each for name, each in every.items() if name not in documents}
    found = [*resolved.faults, *orphan_faults(others, frozenset(gone))]
    known = {name: specs.get(name) or GroupSpec(name=name) for name in every}
    found += reference_faults(known | resolved.specs, resolved.specs, gone)
    return resolved, [_of_pruned(each, every, gone) for each in found]


def _unnamed(each: GivenDocument) -> Rejected | None:
    """The refusal of what is no document, or has no name."""
    if not isinstance(each.body, Mapping):
        return Rejected(
            Code.INVALID_FIELD,
            "it is no document: an object is expected",
            hint="write 'name: lobby' and so on",
        )
    name = each.body.get("name")
    if not isinstance(name, str) or not name:
        if isinstance(name, int | float):
            problem, hint = "field 'name' is no text", f'put it in quotes: name: "{str(name)[:_NAME_SHOWN]}"'
            return Rejected(Code.INVALID_FIELD, problem, hint=hint, field="name")
        code = Code.INVALID_FIELD if "name" in each.body else Code.MISSING_FIELD
        problem = "field 'name' is no text" if "name" in each.body else "field 'name' is missing"
        return Rejected(code, problem, hint="a document is one group: name it", field="name")
    return None


def _twice(name: str, other: GivenDocument) -> Rejected:
    return Rejected(
        Code.ALREADY_EXISTS,
        f"group '{name}' is in {other.path or 'another document'}, too",
        hint="leave one of them out",
        field="name",
    )


def _of_pruned(fault: GroupFault, every: Mapping[str, Document], gone: Collection[str]) -> GroupFault:
    """The fault of a group whose parent is only missing because it would be pruned, in these words."""
    parent = parent_of(every.get(fault.group, {}))
    if fault.error.field != "parent" or parent not in gone:
        return fault
    error = Rejected(
        fault.error.code,
        f"parent: group '{parent}' is not in this set, so the prune would delete it",
        hint="add its document to the set, or name another parent",
        field="parent",
    )
    return GroupFault(fault.group, error)


def _located(fault: GroupFault, documents: Mapping[str, GivenDocument]) -> DocumentFault:
    given = documents.get(fault.group)
    return DocumentFault(given.path if given else "", fault.group, fault.error)


def apply_set(
    ws: Workspace, plans: PlanChecks, checked: CheckedSet, options: ApplyOptions
) -> list[AppliedGroup]:
    """Add the whole set to the transaction, or refuse it with every fault of every document."""
    groups = ws.groups()
    specs = checked.resolved.specs
    faults = list(checked.faults)
    found: list[GroupFault] = []
    writes: dict[str, GroupWrite] = {}
    for name, spec in specs.items():
        try:
            with limited_guesses(checked.guesses):
                write = _planned(ws, plans, name, spec, checked, options)
            if write is not None:
                writes[name] = write
        except Rejected as error:
            found.append(GroupFault(name, error if name in checked.documents else of_descendant(name, error)))
    for name in checked.gone:
        try:
            before_group_goes(ws.state, name, options.confirmation(name))
        except Rejected as error:
            found.append(GroupFault(name, error))
    faults += [_located(each, checked.documents) for each in found]
    if faults:
        unnamed = {each.path for each in faults} - {each.path for each in checked.documents.values()} - {""}
        raise _refusal(faults, len(checked.documents) + len(unnamed))
    applied = [_written(ws, name, checked, writes.get(name), options) for name in specs]
    for name in checked.gone:
        record = groups[name]
        end_group(ws, record)
        applied.append(AppliedGroup(name=name, action=Action.DELETED, before=record))
    return sorted((each for each in applied if each is not None), key=lambda each: each.name)


def _planned(
    ws: Workspace,
    plans: PlanChecks,
    name: str,
    spec: GroupSpec,
    checked: CheckedSet,
    options: ApplyOptions,
) -> GroupWrite | None:
    before = ws.group(name)
    given = checked.documents.get(name)
    if before is not None and given is not None:
        refuse_deleting(before)
        if not options.force:
            _refuse_live_edit(before, checked.digests.stored[name], given.body)
            _refuse_other_owner(before, options.owner)
    write = planned_write(ws, name, spec, dict(given.body) if given else None)
    if write is not None:
        check_write(ws, plans, write, options.confirmation(name), by=name)
    return write


def _refuse_live_edit(before: GroupRecord, digest: str, body: Document) -> None:
    """Refuse to undo what was changed since the last apply. `digest`: of the document that is there."""
    if before.applied_sha256 in ("", digest):
        return
    written = written_document(before)
    name = before.spec.name
    fields = differing_fields(written, body)
    if fields:
        raise Rejected(
            Code.LIVE_EDIT,
            f"group '{name}' was edited since it was applied, and this would undo it: "
            f"{short_list((repr(each) for each in fields), _SHOWN)}",
            hint=f"take the edit into the file ('corral export {name}' prints it), or undo it with force (--force)",
            field=fields[0],
        )


def _refuse_other_owner(before: GroupRecord, owner: str) -> None:
    if owner and before.owner and before.owner != owner:
        raise Rejected(
            Code.CONFLICT,
            f"group '{before.spec.name}' belongs to the owner '{before.owner}'",
            hint="leave it out, or take it over with force (--force)",
        )


def _written(
    ws: Workspace, name: str, checked: CheckedSet, write: GroupWrite | None, options: ApplyOptions
) -> AppliedGroup | None:
    """Store one group, unless it is as it was; None: it is not in the set, and nothing of it changes."""
    given = checked.documents.get(name)
    before = ws.group(name)
    after = write.after if write else before
    assert after is not None, "what is not written exists"
    if given is not None:
        digests = checked.digests.given if write else checked.digests.stored
        after = msgspec.structs.replace(
            after, owner=options.owner or after.owner, applied_sha256=digests[name]
        )
    elif write is None:
        return None
    marks = (after.owner, after.applied_sha256)
    adopted = before is not None and marks != (before.owner, before.applied_sha256)
    path = given.path if given else ""
    if write is None and not adopted:
        return AppliedGroup(name=name, path=path, action=Action.UNCHANGED, before=before, after=after)
    if write is not None:
        store_write(ws, msgspec.structs.replace(write, after=after))
    else:
        ws.put_group(after)
    action = Action.CREATED if before is None else Action.CHANGED
    fields = write.changed if write else ()
    return AppliedGroup(
        name=name,
        path=path,
        action=action,
        fields=fields,
        before=before,
        after=after,
        adopted=adopted and not fields,
    )


def _refusal(faults: list[DocumentFault], total: int) -> DocumentsRejected:
    codes = {each.error.code for each in faults}
    where = short_list(dict.fromkeys(each.path or f"group '{each.group}'" for each in faults), 3)
    more = "" if len(faults) <= MAX_FAULTS else f"; the first {MAX_FAULTS} are listed"
    read = (
        f" in {counted(total, 'document')}" if total else ""
    )  # else it is about groups that would be deleted
    text = f"{counted(len(faults), 'error')}{read} ({where}){more}"
    if codes == {Code.CONFIRMATION_REQUIRED}:
        hint = "nothing was done; say it again with confirm naming these groups (--yes) if that is meant"
        return DocumentsRejected(Code.CONFIRMATION_REQUIRED, text, faults[:MAX_FAULTS], hint=hint)
    if codes <= {Code.LIVE_EDIT, Code.CONFIRMATION_REQUIRED}:
        hint = "nothing was changed; take the edits into the files, or undo them with force (--force)"
        return DocumentsRejected(Code.LIVE_EDIT, text, faults[:MAX_FAULTS], hint=hint)
    hint = "nothing was changed; correct what is listed and apply again"
    return DocumentsRejected(Code.DOCUMENTS_INVALID, text, faults[:MAX_FAULTS], hint=hint)
