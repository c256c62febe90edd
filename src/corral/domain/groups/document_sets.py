"""Sets of group documents that are checked together: every fault of every document, not only the first."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from corral.domain.groups.document_faults import check_size, type_faults
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_checks import group_faults
from corral.domain.groups.group_documents import merged, typed_group
from corral.domain.groups.inheritance import (
    MAX_CHAIN,
    NOT_INHERITED,
    Document,
    GroupFault,
    chain_of,
    descendants_of,
    family_of,
    merged_document,
    of_descendant,
    parent_of,
    with_origin,
)
from corral.domain.groups.pattern_limit import check_patterns
from corral.domain.groups.placement_checks import faults_of_references
from corral.errors import Code, Rejected

FAULTS_OF_DOCUMENT: Final = 20
"""The most faults of one document that are collected."""
_SOME_NAME: Final = "name"
_CHECKED_TOGETHER: Final = (
    frozenset({"command", "jvm", "artifact", "memory_mb"}),
    frozenset({"ports", "probes"}),
    frozenset({"variables", "variable_types"}),
    frozenset({"min", "max"}),
    frozenset({"disconnect", "stop", "static"}),
    frozenset({"update", "static"}),
)
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class ResolvedSet(NamedTuple):
    """Groups and their descendants, resolved anew, and what is wrong with the others."""

    specs: dict[str, GroupSpec]
    faults: list[GroupFault]


def name_of(body: Any) -> str:
    """The name of the group of a document; empty: it has none, or one that is no text."""
    name = body.get("name") if isinstance(body, Mapping) else None
    return name if isinstance(name, str) else ""


def document_digest(document: Document) -> str:
    """The SHA-256 of a written document, whatever the order of its keys."""
    return hashlib.sha256(_ENCODER.encode(document)).hexdigest()


def differing_fields(old: Document, new: Document) -> list[str]:
    """The top-level fields that are not written alike; a null that is written is not a field that is left out."""
    return sorted(
        key for key in old.keys() | new.keys() if (key in old, old.get(key)) != (key in new, new.get(key))
    )


def resolve_set(names: Collection[str], documents: Mapping[str, Document]) -> ResolvedSet:
    """Resolve these groups and their descendants among all `documents`. A fault that descendants inherit from one of
    `names` is only listed there; a fault of a group that is not among `names` carries its name. Too many patterns are the
    only fault there is then."""
    try:
        check_patterns(family_of(names, documents))
    except Rejected as error:
        return ResolvedSet({}, [GroupFault(next(iter(names)), error)])
    specs: dict[str, GroupSpec] = {}
    faults: list[GroupFault] = []
    wrong: set[str] = set()
    for name in names:
        found = field_faults(documents[name])
        if found:
            wrong.add(name)
            found += _other_faults(name, documents, found)
            faults += [GroupFault(name, each) for each in found[:FAULTS_OF_DOCUMENT]]
    depths = _depths(names, documents)
    merged_ones = sorted(names, key=lambda name: depths[name])
    for name in [*merged_ones, *descendants_of(names, documents)]:
        if name in wrong or not wrong.isdisjoint(_ancestors(name, documents)):  # inherited, and listed there
            wrong.add(name)
            continue
        spec, found = _resolved(name, documents)
        if spec is not None and not found:
            specs[name] = spec
            continue
        wrong.add(name)
        own = name in names
        faults += [GroupFault(name, each if own else of_descendant(name, each)) for each in found]
    return ResolvedSet(specs, faults)


def field_faults(document: Document) -> list[Rejected]:
    """What is wrong with a written document by itself, as far as its size and types go: each of its fields is looked at,
    unless it is too large. What is missing in it may come from its parent."""
    try:
        check_size(document)
    except Rejected as error:
        return [error]
    faults: list[Rejected] = []
    for key, value in document.items():
        if value is None and key in GroupSpec.__struct_fields__:
            continue
        found = type_faults({_SOME_NAME: _SOME_NAME, key: merged(None, value)})
        faults += itertools.islice(found, FAULTS_OF_DOCUMENT - len(faults))
        if len(faults) == FAULTS_OF_DOCUMENT:
            break
    return faults


def _other_faults(name: str, documents: Mapping[str, Document], found: Sequence[Rejected]) -> list[Rejected]:
    """What the checks of a document find beside the fields that have wrong types, and those that are checked with
    these."""
    wrong = {_top(each) for each in found}
    wrong |= {field for together in _CHECKED_TOGETHER if wrong & together for field in together}
    if wrong & set(NOT_INHERITED):
        return []
    left = {key: value for key, value in documents[name].items() if key not in wrong}
    return [each for each in _resolved(name, {**documents, name: left})[1] if _top(each) not in wrong]


def _top(error: Rejected) -> str:
    return (error.field or "").partition("/")[0]


def _depths(names: Iterable[str], documents: Mapping[str, Document]) -> dict[str, int]:
    """How many ancestors each of these has, as far as they exist; a cycle begins anywhere. Each is looked at once."""
    depths: dict[str, int] = {}
    for name in names:
        path: dict[str, None] = {}
        here = name
        while here in documents and here not in depths and here not in path:
            path[here] = None
            here = parent_of(documents[here])
        first = depths.get(here, -1) + 1
        depths.update((each, depth) for depth, each in enumerate(reversed(path), first))
    return depths


def _ancestors(name: str, documents: Mapping[str, Document]) -> Iterator[str]:
    """As far as they exist, and no more than a chain may have."""
    here = name
    for _ in range(MAX_CHAIN):
        here = parent_of(documents[here])
        if here not in documents:
            return
        yield here


def _resolved(name: str, documents: Mapping[str, Document]) -> tuple[GroupSpec | None, list[Rejected]]:
    try:
        chain = chain_of(name, documents)
        spec = typed_group(merged_document(name, documents))
    except Rejected as error:
        return None, [error]
    found = itertools.islice(group_faults(spec), FAULTS_OF_DOCUMENT)
    return spec, [with_origin(each, chain, documents) for each in found]


def reference_faults(
    specs: Mapping[str, GroupSpec], names: Iterable[str], gone: Iterable[str]
) -> list[GroupFault]:
    """The faults of `check_references`, the first of each of these groups."""
    found = faults_of_references(specs, [*names, *gone])
    return [GroupFault(name, error) for name, error in found.items()]


def orphan_faults(documents: Mapping[str, Any], gone: Collection[str]) -> list[GroupFault]:
    """Groups that keep a parent which is removed."""
    return [
        GroupFault(
            name,
            Rejected(
                Code.CONFLICT,
                f"group '{name}' has the parent '{parent}', which would be deleted",
                hint="give it another parent, delete it too, or keep the parent",
                field="parent",
            ),
        )
        for name, document in documents.items()
        if (parent := parent_of(document)) in gone
    ]
