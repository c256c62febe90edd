"""Opaque secrets: 256 random bits that are shown once and stored as a digest.

One mechanism for API tokens, browser sessions, join tokens and one-time codes. A plain SHA-256 is enough, because
nobody can try all values of so many random bits; a password needs argon2 instead.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final, NamedTuple

from corral.system.entropy import Entropy, new_id

SECRET_BYTES: Final = 32
_NO_DIGEST: Final = "0" * 64
_TEXT: Final = "([a-z2-7]{52})"
_ID: Final = "[a-z2-7]{12}"


def new_secret(entropy: Entropy) -> str:
    """256 bits as 52 letters and digits, which need no quoting in headers, cookies and addresses."""
    return base64.b32encode(entropy.secret(SECRET_BYTES)).decode().rstrip("=").lower()


def secret_digest(secret: str | bytes) -> str:
    """What is stored in place of a secret."""
    data = secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret
    return hashlib.sha256(data).hexdigest()


def secret_matches(secret: str | bytes, digest: str | None) -> bool:
    """Whether a secret from outside is the stored one. None: nothing is stored; that takes as long as a wrong secret."""
    same = hmac.compare_digest(secret_digest(secret), digest or _NO_DIGEST)
    return same and bool(digest)


class NewCredential(NamedTuple):
    """Of a credential only id and digest are stored."""

    id: str
    secret_sha256: str
    text: str
    """To be shown once."""


class CredentialForm:
    """Credentials written `<lead><kind>-<id>_<secret>`: the id finds a record, and the secret proves it."""

    def __init__(self, kind: str, *, lead: str = "") -> None:
        self._kind = kind
        self._lead = lead
        self._text = re.compile(f"{re.escape(lead)}({re.escape(kind)}-{_ID})_{_TEXT}")

    def create(self, entropy: Entropy) -> NewCredential:
        id, secret = new_id(self._kind, entropy), new_secret(entropy)
        return NewCredential(id, secret_digest(secret), f"{self._lead}{id}_{secret}")

    def read(self, text: str) -> tuple[str, str]:
        """Id and secret of a text from outside; both empty: it has not the form, and proves nothing."""
        found = self._text.fullmatch(text)
        return (found[1], found[2]) if found else ("", "")
