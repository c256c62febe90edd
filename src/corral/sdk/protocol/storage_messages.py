"""The bodies of `documents.*` and `kv.*`: messages between the storages of a module and the host.

Documents are sent as JSON text, so that a typed value is decoded once, where it is used. Values of the
key-value storage are sent as msgpack and are opaque to the host, except for integers that are counted.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from corral.sdk.protocol.messages import Body

CREATE: Final = "documents.create"
COLLECTIONS: Final = "documents.collections"
DROP: Final = "documents.drop"
INSERT: Final = "documents.insert"
GET: Final = "documents.get"
FIND: Final = "documents.find"
COUNT: Final = "documents.count"
UPDATE_MANY: Final = "documents.update_many"
DELETE_MANY: Final = "documents.delete_many"
TRANSACTION: Final = "documents.transaction"

KV_GET: Final = "kv.get"
KV_PUT: Final = "kv.put"
KV_COMPARE_AND_SET: Final = "kv.compare_and_set"
KV_DELETE: Final = "kv.delete"
KV_INCREMENT: Final = "kv.increment"
KV_EXPIRE: Final = "kv.expire"
KV_KEYS: Final = "kv.keys"

MAX_STEPS: Final = 500
"""Most documents of one insert, and steps of one transaction."""
MAX_PAGE: Final = 1000
"""Most documents of one answer; it may hold fewer, when they are large."""


class IndexBody(Body, frozen=True, kw_only=True):
    """Fields in their order, as dotted paths. `unique`: no two documents that have all of the fields may
    have the same values in them."""

    fields: tuple[str, ...]
    unique: bool = False


class CreateCollection(Body, frozen=True, kw_only=True):
    """Create the collection, or change its indexes to these. No effect when it has them already."""

    collection: str
    indexes: tuple[IndexBody, ...] = ()


class CollectionBody(Body, frozen=True, kw_only=True):
    name: str
    indexes: tuple[IndexBody, ...]
    count: int
    bytes: int


class CollectionList(Body, frozen=True, kw_only=True):
    collections: tuple[CollectionBody, ...]


class ListCollections(Body, frozen=True, kw_only=True):
    pass


class DropCollection(Body, frozen=True, kw_only=True):
    collection: str


class NewDocument(Body, frozen=True, kw_only=True):
    """With an empty id the host generates one."""

    id: str = ""
    body: bytes


class InsertDocuments(Body, frozen=True, kw_only=True):
    """All of them or none."""

    collection: str
    documents: tuple[NewDocument, ...]


class Written(Body, frozen=True, kw_only=True):
    """The ids of all steps in order, and the revision that every written document has now."""

    ids: tuple[str, ...]
    revision: int


class GetDocuments(Body, frozen=True, kw_only=True):
    collection: str
    ids: tuple[str, ...]


class DocumentBody(Body, frozen=True, kw_only=True):
    id: str
    revision: int
    body: bytes


class DocumentPage(Body, frozen=True, kw_only=True):
    """`next`, when not empty, is the cursor of the following page."""

    documents: tuple[DocumentBody, ...]
    next: str = ""


class FindDocuments(Body, frozen=True, kw_only=True):
    """`sort` holds paths, with `-` before descending ones; ties are ordered by id."""

    collection: str
    filter: dict[str, Any] = msgspec.field(default_factory=dict)
    sort: tuple[str, ...] = ()
    limit: int = 100
    skip: int = 0
    after: str = ""


class CountDocuments(Body, frozen=True, kw_only=True):
    collection: str
    filter: dict[str, Any] = msgspec.field(default_factory=dict)


class Counted(Body, frozen=True, kw_only=True):
    count: int


class UpdateMany(Body, frozen=True, kw_only=True):
    """Each matching document is changed, some hundred in one transaction."""

    collection: str
    filter: dict[str, Any] = msgspec.field(default_factory=dict)
    update: dict[str, Any]


class DeleteMany(Body, frozen=True, kw_only=True):
    collection: str
    filter: dict[str, Any] = msgspec.field(default_factory=dict)


class Step(Body, frozen=True, kw_only=True):
    """One step of a transaction. `kind` is insert, replace, update, delete or check; `expect` is the revision
    that the stored document must have, 0: there must be none."""

    kind: str
    collection: str
    id: str = ""
    body: bytes = b""
    update: dict[str, Any] = msgspec.field(default_factory=dict)
    expect: int | None = None
    upsert: bool = False


class RunTransaction(Body, frozen=True, kw_only=True):
    """All steps or none. A later step sees what the earlier ones did."""

    steps: tuple[Step, ...]


class KeyBody(Body, frozen=True, kw_only=True):
    key: str


class KeyValue(Body, frozen=True, kw_only=True):
    """`value` is None when there is none; `expires_in_ms` is None when it never expires."""

    value: bytes | None = None
    expires_in_ms: int | None = None


class PutKey(Body, frozen=True, kw_only=True):
    """Without `ttl_ms` the value never expires. `if_absent`: only when there is none."""

    key: str
    value: bytes
    ttl_ms: int | None = None
    if_absent: bool = False


class CompareAndSet(Body, frozen=True, kw_only=True):
    """Write `value` (None: delete) if the present value is `expected` (None: there is none)."""

    key: str
    expected: bytes | None = None
    value: bytes | None = None
    ttl_ms: int | None = None


class Done(Body, frozen=True, kw_only=True):
    """Whether the condition held and the write is done."""

    done: bool


class IncrementKey(Body, frozen=True, kw_only=True):
    """Counting begins at 0; `ttl_ms` applies to a new counter, others keep theirs."""

    key: str
    by: int = 1
    ttl_ms: int | None = None


class Incremented(Body, frozen=True, kw_only=True):
    value: int


class ExpireKey(Body, frozen=True, kw_only=True):
    """None: never."""

    key: str
    ttl_ms: int | None = None


class ListKeys(Body, frozen=True, kw_only=True):
    prefix: str = ""
    after: str = ""
    limit: int = 1000


class KeyList(Body, frozen=True, kw_only=True):
    """In the order of code points; there may be more when as many as the limit are returned."""

    keys: tuple[str, ...]
