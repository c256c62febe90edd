"""Steps of a module's transaction, folded over the stored documents. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from corral.controller.modules.data.collection_facts import DocumentFacts, IndexEntry, IndexFacts
from corral.controller.modules.data.spaces import checked_collection, checked_id
from corral.domain.modules.document_filters import Filter, matches
from corral.domain.modules.document_updates import Update, apply_update, parse_update
from corral.domain.modules.document_values import check_value, invalid
from corral.errors import Code, Rejected
from corral.sdk.protocol.storage_messages import MAX_STEPS, Step
from corral.store.port import ABSENT, Document

MAX_DOCUMENT: Final = 1024 * 1024
MAX_CONTAINERS: Final = 20_000
"""Most objects and arrays in a document: each takes as long to decode as a hundred bytes, and decoding blocks
the loop."""
_TEXTS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
KINDS: Final = frozenset({"insert", "replace", "update", "delete", "check"})

DocumentName = tuple[str, str]
"""Collection and id."""


class Intent(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed step. With `guard` a document that does not match is left alone."""

    kind: str
    name: DocumentName
    value: dict[str, Any] | None = None
    update: Update = ()
    expect: int | None = None
    upsert: bool = False
    guard: Filter | None = None
    weight: int = 0
    """Bytes that the step adds."""
    fresh: bool = False
    """The id was generated just now: no such document exists."""


class Moved(msgspec.Struct, frozen=True):
    """A document's entry in an index before and after."""

    before: IndexEntry | None
    after: IndexEntry | None


class Edit(msgspec.Struct, kw_only=True):
    """A document as it is stored and as it shall be; None: absent."""

    name: DocumentName
    stored: Document | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    touched: bool = False
    entries: dict[str, Moved] = {}
    """Change of its entry in each index, by the index's name."""
    body: bytes = b""
    """`after`, encoded as it is stored."""


def understand(steps: Sequence[Step], new_id: Callable[[], str]) -> list[Intent]:
    """Parse and check steps as far as possible without the documents."""
    if not 0 < len(steps) <= MAX_STEPS:
        raise invalid(f"a transaction takes 1 to {MAX_STEPS} steps, not {len(steps)}")
    return [_intent(step, new_id) for step in steps]


def _intent(step: Step, new_id: Callable[[], str]) -> Intent:
    if step.kind not in KINDS:
        raise invalid(f"unknown step '{step.kind[:40]}'", hint="known: " + ", ".join(sorted(KINDS)))
    fresh = step.kind == "insert" and not step.id
    id = new_id() if fresh else checked_id(step.id)
    return Intent(
        kind=step.kind,
        name=(checked_collection(step.collection), id),
        value=decode_document(step.body) if step.kind in ("insert", "replace") else None,
        update=parse_update(step.update) if step.kind == "update" else (),
        expect=step.expect,
        upsert=step.upsert,
        weight=len(step.body) or update_size(step.update),
        fresh=fresh,
    )


def update_size(update: dict[str, Any]) -> int:
    """Approximate bytes that an update adds; 0 for an invalid one, which is refused later."""
    try:
        return len(msgspec.json.encode(update))
    except (TypeError, ValueError, RecursionError, OverflowError):
        return 0


def decode_document(body: bytes) -> dict[str, Any]:
    if len(body) > 2 * MAX_DOCUMENT:
        raise _too_large(len(body))
    if _containers(body) > MAX_CONTAINERS:
        raise invalid(
            f"the document has more than {MAX_CONTAINERS} objects and arrays",
            hint="store it in several documents",
        )
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid(f"the document is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise invalid("a document is an object", hint="put other values into a field of one")
    check_document(value)
    return value


def _containers(body: bytes) -> int:
    """Number of objects and arrays in a JSON text; strings in it are only excluded when there may be too
    many."""
    count = body.count(b"[") + body.count(b"{")
    if count > MAX_CONTAINERS:
        plain = _TEXTS.sub(b"", body)
        count = plain.count(b"[") + plain.count(b"{")
    return count


def check_document(value: dict[str, Any]) -> None:
    check_value(value, what="the document")
    if "_id" in value:
        raise invalid("'_id' is not a field of documents", hint="give the id beside the document")


def fold(intents: Sequence[Intent], stored: Mapping[DocumentName, Document]) -> list[Edit]:
    """The edits that result from all steps, one per document. Refuses as a whole."""
    edits: dict[DocumentName, Edit] = {}
    for intent in intents:
        edit = edits.get(intent.name)
        if edit is None:
            edit = edits[intent.name] = _edit(intent.name, stored.get(intent.name))
        _check_expected(intent, edit)
        _apply(intent, edit)
    for edit in edits.values():
        if edit.after is not None and edit.touched:
            check_document(edit.after)
            edit.body = msgspec.json.encode(edit.after)
            if len(edit.body) > MAX_DOCUMENT:
                raise _too_large(len(edit.body))
    return [edit for edit in edits.values() if edit.touched and (edit.stored or edit.after is not None)]


def enter(edits: Sequence[Edit], facts: DocumentFacts) -> None:
    """Add the index entries of each document before and after."""
    indexes: dict[str, dict[str, IndexFacts]] = {}
    for name in {edit.name[0] for edit in edits}:
        known = facts.find(name)
        indexes[name] = {index.name: index for index in (known.indexes if known else ())}
    for edit in edits:
        edit.entries = {name: _moved(edit, index) for name, index in indexes[edit.name[0]].items()}


def _moved(edit: Edit, index: IndexFacts) -> Moved:
    id = edit.name[1]
    return Moved(
        None if edit.before is None else index.entry(id, edit.before),
        None if edit.after is None else index.entry(id, edit.after),
    )


def _edit(name: DocumentName, document: Document | None) -> Edit:
    value = None if document is None else msgspec.json.decode(document.body)
    return Edit(name=name, stored=document, before=value, after=value)


def _check_expected(intent: Intent, edit: Edit) -> None:
    """`expect` refers to the document as it is stored, before the transaction."""
    if intent.expect is None:
        return
    found = ABSENT if edit.stored is None else edit.stored.revision
    if found == intent.expect:
        return
    if intent.expect == ABSENT:
        raise _exists(intent.name)
    if found == ABSENT:
        raise _absent(intent.name)
    raise Rejected(
        Code.REVISION_MISMATCH,
        f"{_shown(intent.name)} was changed in the meantime: expected revision {intent.expect}, found {found}",
        hint="read it again and repeat the change",
    )


def _apply(intent: Intent, edit: Edit) -> None:
    if intent.guard is not None and (
        edit.after is None or not matches(intent.guard, intent.name[1], edit.after)
    ):
        return
    match intent.kind:
        case "insert":
            if edit.after is not None:
                raise _exists(intent.name)
            edit.after = intent.value
        case "replace":
            if edit.after is None and not intent.upsert:
                raise _absent(intent.name)
            edit.after = intent.value
        case "update":
            if edit.after is None and not intent.upsert:
                raise _absent(intent.name)
            edit.after = apply_update(edit.after or {}, intent.update)
        case "delete":
            edit.after = None
        case "check":
            return
    edit.touched = True


def _shown(name: DocumentName) -> str:
    return f"document '{name[1]}' of '{name[0]}'"


def _exists(name: DocumentName) -> Rejected:
    return Rejected(Code.ALREADY_EXISTS, f"{_shown(name)} exists already")


def _absent(name: DocumentName) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"{_shown(name)} does not exist")


def _too_large(size: int) -> Rejected:
    return Rejected(
        Code.BODY_TOO_LARGE,
        f"a document of {size} bytes is larger than allowed ({MAX_DOCUMENT})",
        hint="split it into several documents",
    )
