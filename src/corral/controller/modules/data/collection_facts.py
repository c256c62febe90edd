"""Metadata of a module's collections: their indexes, number of documents, number of bytes.

One record per space, changed in the same transaction as the documents it describes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from corral.controller.modules.data.spaces import USAGE, Space
from corral.domain.modules.document_filters import field_of
from corral.domain.modules.document_values import MISSING, Path, entry_id, is_cut, key_of
from corral.store.port import ABSENT, Document, Put, ReadEngine

ROW: Final = 64
"""Bytes that a row costs besides what is in it, so that many small documents count too."""


class IndexFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An index is used by queries only when it is `built`; until then it is complete up to the id
    `through`."""

    fields: tuple[Path, ...]
    unique: bool = False
    built: bool = True
    through: str = ""

    @property
    def name(self) -> str:
        """Name of the index's entries: the same for the same fields, however they are spelt."""
        text = "\x00".join("\x01".join(path) for path in self.fields) + ("\x00u" if self.unique else "")
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def entry(self, id: str, value: Any) -> IndexEntry:
        return self.entry_of(id, [field_of(id, value, path) for path in self.fields])

    def entry_of(self, id: str, found: Sequence[Any]) -> IndexEntry:
        """The entry of a document whose fields have these values."""
        key = "".join(map(key_of, found))
        alone = self.unique and not any(each is MISSING for each in found)
        return IndexEntry(entry_id(key, "" if alone else id), alone, is_cut(key))


class IndexEntry(msgspec.Struct, frozen=True):
    """`alone`: the entry must be unique. `cut`: its key was truncated, so its order among other cut keys is
    undefined."""

    id: str
    alone: bool
    cut: bool


class EntryBody(msgspec.Struct, frozen=True, array_like=True):
    """Content of an index entry: the id of its document."""

    owner: str
    cut: bool = False


class CollectionFacts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    indexes: tuple[IndexFacts, ...] = ()
    count: int = 0
    bytes: int = 0
    dropping: bool = False
    """Readers do not see the collection any more; its rows are being deleted."""


class DocumentFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Metadata of all collections of a space. `revision` is that of the stored record, ABSENT when there is
    none yet."""

    collections: dict[str, CollectionFacts] = {}
    revision: int = ABSENT

    def find(self, name: str) -> CollectionFacts | None:
        found = self.collections.get(name)
        return None if found is None or found.dropping else found

    @property
    def bytes(self) -> int:
        return sum(facts.bytes for facts in self.collections.values())

    @property
    def count(self) -> int:
        return sum(facts.count for facts in self.collections.values())

    def with_collection(self, name: str, facts: CollectionFacts | None) -> DocumentFacts:
        rest = {other: known for other, known in self.collections.items() if other != name}
        return DocumentFacts(
            collections=rest if facts is None else rest | {name: facts}, revision=self.revision
        )

    def put(self, space: Space) -> Put:
        body = msgspec.json.encode(_StoredFacts(collections=self.collections))
        return Put(collection=space.usage, id=USAGE, body=body, expect=self.revision)


class _StoredFacts(msgspec.Struct, frozen=True, kw_only=True):
    collections: dict[str, CollectionFacts]


async def read_facts(reads: ReadEngine, space: Space) -> DocumentFacts:
    return decode_facts(await reads.get(space.usage, USAGE))


def decode_facts(document: Document | None) -> DocumentFacts:
    if document is None:
        return DocumentFacts()
    stored = msgspec.json.decode(document.body, type=_StoredFacts)
    return DocumentFacts(collections=stored.collections, revision=document.revision)


def cost(id: str, size: int) -> int:
    """Bytes that a document of this size counts against the module's quota."""
    return ROW + len(id.encode()) + size
