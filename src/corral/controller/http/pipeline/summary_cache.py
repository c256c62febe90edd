"""Encoded summaries of resources: each is encoded once for all its readers, until something that is in it changes.

Summaries have nothing that is hidden from some callers and not from others, so that one encoding serves all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from corral.controller.http.messages.responses import encode
from corral.controller.state.cluster_state import Mirror
from corral.domain.records import Record
from corral.domain.sensitive_fields import redacted
from corral.domain.urls import shown_text

R = TypeVar("R", bound=Record)

_SPARE: Final = 100
"""So many more summaries than resources are kept before those of resources that are gone are dropped."""
LONGEST_TEXT: Final = 200
"""Characters of a sentence in a summary; the resource itself has all of it."""


def encoded_summary(summary: msgspec.Struct) -> bytes:
    """A summary as every caller may see it: whoever sees more reads the resource itself."""
    return encode(redacted(summary))


def short_text(text: str) -> str:
    """A sentence for a summary. Addresses in it lose their secrets before it is cut: of half an address nobody can tell
    which part is a password."""
    text = shown_text(text)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


class SummaryCache:
    """Summaries by the id of their resource, with what each was made of."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[object, ...], bytes]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def encoded(self, id: str, basis: tuple[object, ...], make: Callable[[], msgspec.Struct]) -> bytes:
        """The summary that is made of the values in `basis`: they are replaced, never changed, and so mostly the very same
        objects as before."""
        known = self._known.get(id)
        if known is not None and known[0] == basis:
            return known[1]
        body = encoded_summary(make())
        self._known[id] = (basis, body)
        return body

    def trim(self, mirror: Mirror[R]) -> None:
        """Drop the summaries of resources that are gone, once there are many."""
        count = len(mirror)
        if len(self._known) > count + count // 4 + _SPARE:
            self._known = {id: known for id, known in self._known.items() if mirror.find(id) is not None}
