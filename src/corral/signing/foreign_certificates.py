"""Certificates out of a sidecar, parsed without the warnings of `cryptography`: what is odd about a certificate
(such as a serial number that is not positive) is decided by the check of its chain; no log of this host has it."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Final

from cryptography import x509
from cryptography.utils import CryptographyDeprecationWarning

_FILTERS: Final = threading.Lock()
"""The filters of warnings belong to the whole process."""


def load_pem(pem: bytes) -> list[x509.Certificate]:
    """All certificates of a PEM text; at least one. Raises what is in `UNREADABLE`."""
    with _without_warnings():
        return x509.load_pem_x509_certificates(pem)


def load_der(encoded: bytes) -> x509.Certificate:
    """Raises what is in `UNREADABLE`."""
    with _without_warnings():
        return x509.load_der_x509_certificate(encoded)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)
        yield
