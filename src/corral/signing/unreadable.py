"""What `cryptography` raises for keys and certificates that it cannot make sense of."""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

UNREADABLE: Final = (
    ValueError,
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.ExtensionNotFound,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Certificates are parsed piece by piece: any access to a hostile one may raise any of these."""
