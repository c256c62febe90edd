"""What is left of a set when some of its documents are refused: with them go the documents that cannot do without them,
however long the chain is."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from corral.controller.instances.group_apply import CheckedSet, GivenDocument
from corral.domain.groups.document_sets import name_of
from corral.domain.groups.inheritance import parent_of
from corral.errors import Code, DocumentFault, Rejected

ROUNDS: Final = 8
"""How often a set is checked again without what was refused, since that may show other faults."""


def faults_of_documents(
    checked: CheckedSet, listed: Collection[DocumentFault], stored: Collection[str]
) -> list[DocumentFault]:
    """The faults of a set that are `listed`, at least one of each document that has any, and one of each that needs a
    group which is refused and not `stored`."""
    found = list(listed)
    bad = _paths(found, checked)
    for each in checked.faults:
        if each.path and each.path not in bad:
            bad.add(each.path)
            found.append(each)
    refused = {name: each.path for name, each in checked.documents.items() if each.path in bad}
    users = _users(checked)
    left = [name for name in refused if name not in stored]
    while left:
        for user, field in users.get(name := left.pop(), ()):
            if user in refused:
                continue
            path = refused[user] = checked.documents[user].path
            found.append(DocumentFault(path, user, _needs(name, refused[name], field)))
            if user not in stored:
                left.append(user)
    return found


def without(
    given: list[GivenDocument], faults: Collection[DocumentFault], checked: CheckedSet
) -> list[GivenDocument]:
    """The documents that have none of these faults, nor are inherited by a group that has; none at all, if that is not
    clear."""
    bad = _paths(faults, checked)
    left = [each for each in given if each.path not in bad]
    return left if len(left) < len(given) else []


def given_up(given: list[GivenDocument]) -> list[DocumentFault]:
    """The refusal of all of these, after too many rounds."""
    error = Rejected(
        Code.CONFLICT,
        "it was not applied: whether it can be depends on other files that are refused",
        hint="correct these first, then reload",
    )
    return [DocumentFault(each.path, name_of(each.body), error) for each in given]


def _paths(faults: Collection[DocumentFault], checked: CheckedSet) -> set[str]:
    """Where the faults come from; a group that is not in the set has them from its ancestors."""
    bad = {fault.path for fault in faults if fault.path}
    seen: set[str] = set()
    for fault in faults:
        here = "" if fault.path else fault.group
        while here in checked.every and here not in seen:
            seen.add(here)
            here = parent_of(checked.every[here])
            if here in checked.documents:
                bad.add(checked.documents[here].path)
    return bad


def _users(checked: CheckedSet) -> dict[str, list[tuple[str, str]]]:
    """By group, the documents that name it, and in which field."""
    found: dict[str, list[tuple[str, str]]] = {}
    for user in checked.documents:
        for name, field in _named(checked, user):
            found.setdefault(name, []).append((user, field))
    return found


def _named(checked: CheckedSet, user: str) -> Iterator[tuple[str, str]]:
    yield parent_of(checked.every[user]), "parent"
    spec = checked.resolved.specs.get(user)
    if spec is not None:
        yield spec.fallback_group, "fallback_group"
        for position, each in enumerate(spec.depends_on):
            yield each.group, f"depends_on/{position}/group"


def _needs(name: str, path: str, field: str) -> Rejected:
    return Rejected(
        Code.INVALID_FIELD,
        f"{field}: group '{name}' does not exist, and its document in {path} is refused",
        hint="correct that one first",
        field=field,
    )
