"""Inheritance of group documents: each has at most one parent, and is merged into it (RFC 7396).

Written documents are merged, from the first ancestor down: objects by key, lists and all else replace, and null goes back
to the default, whatever an ancestor has there. `name`, `parent` and `abstract` are of one document alone. The result is
checked as any document is; a refusal names the document of the chain in which the value was written.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_documents import brief_document, merged, parse_group
from corral.domain.groups.instance_records import GroupRecord
from corral.domain.groups.pattern_limit import check_patterns
from corral.domain.groups.placement_checks import missing_group
from corral.domain.spec import invalid
from corral.errors import Rejected

MAX_CHAIN: Final = 8
"""The most documents of a chain, the group's own included."""
NOT_INHERITED: Final = ("name", "parent", "abstract")

Document = Mapping[str, Any]


class GroupFault(NamedTuple):
    """A group whose document cannot be taken, and why."""

    group: str
    error: Rejected


def written_document(record: GroupRecord) -> dict[str, Any]:
    """The document of a group as it was written; of a group from before this was kept, the fields that differ from the
    defaults."""
    return brief_document(record.spec) if record.written is None else record.written


def parent_of(document: Document) -> str:
    """The name of its parent; empty: none, or no name."""
    parent = document.get("parent")
    return parent if isinstance(parent, str) else ""


def chain_of(name: str, documents: Mapping[str, Document]) -> list[str]:
    """The names of a group and its ancestors, the group first. Refused with the field `parent`: one that does not exist,
    a cycle, and more than `MAX_CHAIN` documents."""
    chain = [name]
    while parent := parent_of(documents[chain[-1]]):
        if parent in chain:
            shown = " -> ".join([*chain[chain.index(parent) :], parent])
            raise invalid("parent", f"a cycle: {shown}", "leave one of these references out")
        if parent not in documents:
            raise _of_ancestor(missing_group(documents, parent, "parent", besides=chain), chain)
        chain.append(parent)
        if len(chain) > MAX_CHAIN:
            raise invalid(
                "parent",
                f"more than {MAX_CHAIN} documents follow each other: {' -> '.join(chain)}",
                "name a parent that is nearer to the first",
            )
    return chain


def _of_ancestor(error: Rejected, chain: list[str]) -> Rejected:
    return error if len(chain) == 1 else _with_message(error, f"{error.message} (written in '{chain[-1]}')")


def merged_document(name: str, documents: Mapping[str, Document]) -> dict[str, Any]:
    """The document of a group merged into those of its ancestors."""
    result: Any = {}
    for each in reversed(chain_of(name, documents)):
        document = documents[each]
        if each != name:
            document = {key: value for key, value in document.items() if key not in NOT_INHERITED}
        result = merged(result, document)
    return {"name": name, **result}


def value_origins(name: str, documents: Mapping[str, Document]) -> dict[str, str]:
    """The document in which each value of a group was written, by the path of the value (`ports/primary/range`): the
    group's own or an ancestor's. What is not in it is a default. Lists are one value."""
    origins: dict[str, str] = {}
    for each in reversed(chain_of(name, documents)):
        hidden = NOT_INHERITED if each != name else ()
        written = {key: value for key, value in documents[each].items() if key not in hidden}
        _note_origins(origins, written, each, prefix="")
    return dict(sorted(origins.items()))


def _note_origins(origins: dict[str, str], written: Document, document: str, *, prefix: str) -> None:
    """As `merged` takes them: a null removes what ancestors have there, and so does anything in place of an object."""
    for key, value in written.items():
        path = f"{prefix}{key}"
        nested = isinstance(value, Mapping)
        origins.pop(path, None)
        if not nested:
            for inner in [known for known in origins if known.startswith(f"{path}/")]:
                del origins[inner]
        if nested:
            _note_origins(origins, value, document, prefix=f"{path}/")
        elif value is not None:
            origins[path] = document


def resolve_group(name: str, documents: Mapping[str, Document]) -> GroupSpec:
    """The group that a document and its ancestors describe; a refusal names the document that has the value."""
    chain = chain_of(name, documents)
    try:
        return parse_group(merged_document(name, documents))
    except Rejected as error:
        raise with_origin(error, chain, documents) from None


def with_origin(error: Rejected, chain: list[str], documents: Mapping[str, Document]) -> Rejected:
    """The refusal of a merged document with the name of the one that has the value, if there are several."""
    origin = _origin(error.field or "", chain, documents) if len(chain) > 1 else ""
    return _with_message(error, f"{error.message} (written in '{origin}')") if origin else error


def _origin(field: str, chain: Iterable[str], documents: Mapping[str, Document]) -> str:
    """The document nearest to the group that has a value at this path; empty: none has."""
    steps = field.split("/")
    return next((each for each in chain if field and _holds(documents[each], steps)), "")


def _holds(value: Any, steps: list[str]) -> bool:
    for step in steps:
        if isinstance(value, list | tuple):
            return True
        if not isinstance(value, Mapping):
            return False
        if step not in value:
            return False
        value = value[step]
    return True


def _with_message(error: Rejected, message: str) -> Rejected:
    return Rejected(error.code, message, hint=error.hint, field=error.field)


def descendants_of(names: Iterable[str], documents: Mapping[str, Document]) -> list[str]:
    """The groups that have one of these as an ancestor, without these, in the order of their names."""
    children: dict[str, list[str]] = {}
    for name, document in documents.items():
        if parent := parent_of(document):
            children.setdefault(parent, []).append(name)
    named = set(names)
    found: set[str] = set()
    pending = list(named)
    while pending:
        fresh = [each for each in children.get(pending.pop(), ()) if each not in found]
        found.update(fresh)
        pending += fresh
    return sorted(found - named)


def family_of(names: Collection[str], documents: Mapping[str, Document]) -> list[Document]:
    """The documents of these groups, of their descendants, and of those that they inherit."""
    found = {*names, *descendants_of(names, documents)}
    for name in names:
        while (name := parent_of(documents[name])) in documents and name not in found:
            found.add(name)
    return [documents[each] for each in found]


def resolve_groups(
    names: Collection[str], documents: Mapping[str, Document]
) -> tuple[dict[str, GroupSpec], list[GroupFault]]:
    """Groups and all of their descendants resolved anew, and those that are refused. A refused descendant carries its
    name. INVALID_FIELD when they have too many patterns together."""
    check_patterns(family_of(names, documents))
    specs: dict[str, GroupSpec] = {}
    faults: list[GroupFault] = []
    for name in [*names, *descendants_of(names, documents)]:
        try:
            specs[name] = resolve_group(name, documents)
        except Rejected as error:
            faults.append(GroupFault(name, error if name in names else of_descendant(name, error)))
    return specs, faults


def of_descendant(name: str, error: Rejected) -> Rejected:
    """The refusal of a change because of a group that inherits it."""
    return _with_message(error, f"group '{name}', which inherits this: {error.message}")


def changing_part(patch: Mapping[str, object], spec: GroupSpec) -> dict[str, object]:
    """A merge patch without the fields, and the keys within objects, that it repeats with their present value: a group that
    was read and is written back keeps what it inherits. With another parent all of it stays: what is present came from
    the old one."""
    if (patch.get("parent", spec.parent) or "") != spec.parent:
        return dict(patch)
    return _changing(patch, msgspec.json.decode(msgspec.json.encode(spec)))


def _changing(patch: Mapping[str, object], present: Mapping[str, object]) -> dict[str, object]:
    """As deep as `present` is."""
    result: dict[str, object] = {}
    for key, value in patch.items():
        here = present.get(key)
        if _repeats(here, value):
            continue
        if isinstance(value, Mapping) and isinstance(here, Mapping):
            value = _changing(value, here)
        result[key] = value
    return result


def _repeats(present: object, value: object) -> bool:
    """A null in an object is as good as nothing there."""
    return value == present or merged(None, merged(present, value)) == merged(None, present)


def inherited_document(parent: str, documents: Mapping[str, Document]) -> dict[str, Any]:
    """What a group with this parent inherits; nothing of one that does not exist or has a wrong chain, which is refused
    when the document is written."""
    try:
        document = merged_document(parent, documents) if parent in documents else {}
    except Rejected:
        return {}
    return {key: value for key, value in document.items() if key not in NOT_INHERITED}


def patched_document(
    written: Document, patch: Mapping[str, object], documents: Mapping[str, Document]
) -> dict[str, Any]:
    """A written document after a merge patch. Where the group has a parent, a null stays in the document: it goes back to
    the default, and not to the value of the parent. An object in place of a null has nulls for the keys of the parent."""
    document = merged(written, patch)
    assert isinstance(document, dict)
    if parent := parent_of(document):
        document = _with_nulls(document, patch)
        for name in NOT_INHERITED:
            if document.get(name, "") is None:
                del document[name]
        inherited = inherited_document(parent, documents)
        meant = merged(merged(inherited, written), patch)
        assert isinstance(meant, dict)
        document = _covering(document, inherited, meant)
    return document


def _covering(document: Document, inherited: Document, meant: Document) -> dict[str, Any]:
    """The document with a null for each inherited key that it is meant not to have."""
    result = dict(document)
    for key, value in inherited.items():
        if key not in meant:
            result[key] = None
        elif all(isinstance(each, Mapping) for each in (value, meant[key], result.get(key))):
            result[key] = _covering(result[key], value, meant[key])
    return result


def _with_nulls(document: Document, patch: Mapping[str, object]) -> dict[str, Any]:
    result = dict(document)
    for key, value in patch.items():
        if value is None:
            result[key] = None
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = _with_nulls(result[key], value)
    return result
