"""Digests as names of blobs, and the refusals that go with them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from corral.errors import Code, Rejected

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def check_digest(digest: str) -> None:
    """A digest becomes part of a path: nothing but 64 hexadecimal digits may pass."""
    if _DIGEST.fullmatch(digest) is None:
        raise Rejected(
            Code.INVALID_FIELD,
            f"{digest[:80]!r} is not a SHA-256 digest",
            hint="use 64 lower-case hexadecimal digits",
            field="digest",
        )


def check_digests(digests: Iterable[str]) -> None:
    for digest in digests:
        check_digest(digest)


def mismatch(*, expect: str, found: str) -> Rejected:
    return Rejected(
        Code.DIGEST_MISMATCH,
        f"the content has digest {found}, expected was {expect}",
        hint="send it again; nothing was kept",
    )


def no_such_blob(digest: str) -> Rejected:
    return Rejected(Code.NOT_FOUND, f"there is no artifact {digest}")
