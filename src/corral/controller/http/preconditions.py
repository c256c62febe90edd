"""`If-Match`: a caller insists on the revision it has seen."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from corral.errors import Code, Rejected

_TAG: Final = re.compile(r'(W/)?"([!#-~]*)"')
_MAX_TAGS: Final = 20


class Match(msgspec.Struct, frozen=True, kw_only=True):
    """The revisions a caller accepts; None accepts any, as long as the resource exists."""

    tags: frozenset[str] | None

    def require(self, revision: int) -> None:
        if self.tags is None or str(revision) in self.tags:
            return
        raise Rejected(
            Code.REVISION_MISMATCH,
            f"the revision is {revision} now, not {' or '.join(sorted(self.tags)) or 'that of a weak tag'}",
            hint="read it again and repeat the change",
        )


def parse_match(header: str | None) -> Match | None:
    """The header's meaning; BAD_REQUEST when it has none. A weak tag matches nothing (RFC 9110)."""
    if header is None:
        return None
    if header == "*":
        return Match(tags=None)
    parts = [part.strip() for part in header.split(",")]
    found = [_TAG.fullmatch(part) for part in parts]
    if len(parts) > _MAX_TAGS or not all(found):
        raise Rejected(
            Code.BAD_REQUEST,
            f"If-Match {header[:80]!r} is malformed",
            hint='send the ETag of an answer, quotes included, such as If-Match: "42"',
            field="If-Match",
        )
    return Match(tags=frozenset(match[2] for match in found if match is not None and not match[1]))
