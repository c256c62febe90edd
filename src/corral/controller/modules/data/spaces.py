"""Spaces: where a module's data are stored, one space per module and generation, and the names of its
collections.

No part of a name may hold a `/`, so no space reaches into another: `a` never into `a-b`. Whole collections
are deleted and copied a bounded piece at a time.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

import msgspec

from corral.controller.state.ledger import Ledger
from corral.domain.modules.manifest import Manifest
from corral.errors import Code, Rejected
from corral.store.port import Delete, Put, ReadEngine

SPACES: Final = "mod"
"""The collection that names every space that may hold anything; its ids are `MODULE/GENERATION`."""
USAGE: Final = "usage"
MAX_ID: Final = 200
MAX_NAME: Final = 63
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_UNFIT: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MODULE: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")


class DataScope(Protocol):
    """The fields of a scope that storage needs."""

    @property
    def module_id(self) -> str: ...

    @property
    def generation(self) -> int: ...

    @property
    def manifest(self) -> Manifest: ...


class Space(msgspec.Struct, frozen=True):
    module: str
    generation: int

    @property
    def id(self) -> str:
        return f"{self.module}/{self.generation}"

    def _within(self, *parts: str) -> str:
        if _MODULE.fullmatch(self.module) is None:
            raise Rejected(Code.INVALID_FIELD, f"{self.module[:80]!r} is not a module id")
        return "/".join((SPACES, self.module, str(self.generation), *parts))

    @property
    def usage(self) -> str:
        return self._within("u")

    @property
    def keys(self) -> str:
        return self._within("k")

    @property
    def expiries(self) -> str:
        return self._within("x")

    def documents(self, collection: str) -> str:
        return self._within("d", checked_collection(collection))

    def index(self, collection: str, index: str) -> str:
        return self._within("i", checked_collection(collection), index)


def space_of(scope: DataScope) -> Space:
    return Space(scope.module_id, scope.generation)


def space_from(id: str) -> Space:
    module, _, generation = id.partition("/")
    return Space(module, int(generation))


def checked_collection(name: str) -> str:
    if len(name) > MAX_NAME or _NAME.fullmatch(name) is None:
        raise Rejected(
            Code.QUERY_INVALID,
            f"{name[:80]!r} is not a name for a collection",
            hint=f"use 1 to {MAX_NAME} letters, digits, '_', '.' and '-'",
        )
    return name


def checked_id(id: str, what: str = "id") -> str:
    """The id of a document or a key, checked: any printable text."""
    if not is_id(id):
        raise Rejected(
            Code.QUERY_INVALID,
            f"{id[:80]!r} is not a valid {what}",
            hint=f"use 1 to {MAX_ID} characters of plain text",
        )
    return id


def is_id(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ID and _UNFIT.search(value) is None


def checked_prefix(text: str) -> str:
    """The prefix of keys, checked; may be empty."""
    return text if not text else checked_id(text, "beginning of a key")


ROWS: Final = 500
PAGE_BYTES: Final = 1024 * 1024


async def erase(reads: ReadEngine, ledger: Ledger, collection: str) -> int:
    """Delete every document of a collection; returns how many. Can be repeated after it was cut short."""
    erased, after = 0, ""
    while page := await reads.scan(collection, after=after, limit=ROWS, size=PAGE_BYTES):
        await ledger.commit(
            *(Delete(collection=collection, id=document.id, expect=None) for document in page)
        )
        erased += len(page)
        after = page[-1].id
    return erased


async def copy(reads: ReadEngine, ledger: Ledger, source: str, target: str) -> None:
    """Copy every document of one collection into another, unchanged."""
    after = ""
    while page := await reads.scan(source, after=after, limit=ROWS, size=PAGE_BYTES):
        await ledger.commit(
            *(Put(collection=target, id=document.id, body=document.body, expect=None) for document in page)
        )
        after = page[-1].id
