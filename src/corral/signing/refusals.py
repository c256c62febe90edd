"""Refusals of this package: of an archive, and of a configuration; and the exceptions of `cryptography` for
keys and certificates that it cannot parse."""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from corral.errors import Code, Rejected

UNREADABLE: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Certificates are parsed lazily: any access to a hostile one may raise any of these."""


_SHOWN: Final = 200
RESIGN: Final = "sign this very archive anew, or install the archive that was signed"


def refused(what: str, *, hint: str = RESIGN) -> Rejected:
    """The archive is not proven; `what` is the first failed check."""
    return Rejected(
        Code.SIGNATURE_VERIFICATION_FAILED, f"the archive's signature is refused: {what}", hint=hint
    )


def misconfigured(field: str, what: str, *, hint: str) -> Rejected:
    """`modules.signing` cannot be used; raised at start, before an archive is verified."""
    path = f"modules.signing.{field}"
    return Rejected(Code.INVALID_CONFIG, f"{path}: {what}", hint=hint, field=path)


def shown(text: object) -> str:
    """Foreign text for a message of ours: one line, printable, short."""
    line = "".join(letter if letter.isprintable() else "?" for letter in str(text))
    return line if len(line) <= _SHOWN else line[:_SHOWN] + "…"
