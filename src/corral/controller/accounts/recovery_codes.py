"""Recovery codes: ten in place of a lost second factor, each accepted once.

A code has 80 random bits, so a plain digest of it can be stored. It is written in four groups of base32, which has
neither 0 nor 1 nor 8: whoever reads these in place of o, l and b is understood.
"""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from corral.domain.accounts.records import RECOVERY_CODES
from corral.system.entropy import Entropy
from corral.system.opaque_secrets import secret_digest, secret_matches

_BYTES: Final = 10
_LETTERS: Final = 16
_GROUP: Final = 4
_LONGEST: Final = 64
_MISREAD: Final = str.maketrans({"0": "o", "1": "l", "8": "b", "-": None, " ": None})


class RecoveryCodes(NamedTuple):
    """New codes: the texts are shown once, the digests are stored."""

    texts: tuple[str, ...]
    digests: tuple[str, ...]


def new_recovery_codes(entropy: Entropy) -> RecoveryCodes:
    """Codes that replace all earlier ones."""
    plain = [base64.b32encode(entropy.secret(_BYTES)).decode().lower() for _ in range(RECOVERY_CODES)]
    texts = ("-".join(each[at : at + _GROUP] for at in range(0, _LETTERS, _GROUP)) for each in plain)
    return RecoveryCodes(tuple(texts), tuple(secret_digest(each) for each in plain))


def without_used(digests: tuple[str, ...], text: str) -> tuple[str, ...] | None:
    """The digests that are left when this code is used, to be stored under compare-and-set before the login is
    answered; None: it is none of them."""
    typed = text[:_LONGEST].strip().lower().translate(_MISREAD)
    if len(text) > _LONGEST or len(typed) != _LETTERS:
        return None
    found = [secret_matches(typed, each) for each in digests]  # all of them: the duration does not tell which
    if not any(found):
        return None
    return tuple(each for each, used in zip(digests, found, strict=True) if not used)
