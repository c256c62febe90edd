"""What comes out of a collection, what its indexes are, and how its documents are changed in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypedDict, TypeVar

import msgspec

from corral.sdk.protocol import storage_messages as said

T = TypeVar("T")


class Stored(msgspec.Struct, Generic[T], frozen=True):
    """A document: its id, its value, and the revision under which that is stored.

    ```python
    ada = await players.get("ada")
    await players.replace(ada.id, changed, expect=ada.revision)
    ```
    """

    id: str
    revision: int
    value: T


class Index:
    """Fields by which documents are found and sorted quickly, in this order. `unique`: no two documents
    that have all of these fields may have the same values in them.

    ```python
    Index("game", "score")        # game == …, game == … and score > …, the best of a game
    Index("name", unique=True)
    ```
    """

    __slots__ = ("fields", "unique")

    def __init__(self, *fields: str, unique: bool = False) -> None:
        self.fields = fields
        self.unique = unique


class Changes(TypedDict, total=False):
    """What `update` takes, each by path: `await players.update("ada", inc={"stats.wins": 1}, unset=["draft"])`."""

    set: Mapping[str, Any]
    """Put these values there."""
    unset: Sequence[str]
    """Remove these fields."""
    inc: Mapping[str, float]
    """Add to numbers; a missing one counts as 0."""
    min: Mapping[str, Any]
    """Put the value there if it is less."""
    max: Mapping[str, Any]
    """Put the value there if it is greater."""
    push: Mapping[str, Any]
    """Add the value to the end of an array."""
    pull: Mapping[str, Any]
    """Take all elements equal to the value out of an array."""


def update_document(changes: Changes) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(dict(changes))
    return document


def decoder_of(type: type[T]) -> Callable[[said.DocumentBody], Stored[T]]:
    decoder = msgspec.json.Decoder(type)

    def decode(document: said.DocumentBody) -> Stored[T]:
        return Stored(document.id, document.revision, decoder.decode(document.body))

    return decode
