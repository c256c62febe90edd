"""Signatures of module archives: made by authors, verified by controller and daemon alike.

Neither `sigstore` nor `pydantic` is imported with this package: they cost half a second and 30 MB,
and only a bundle of the newer kind under a `trusted_root.json` needs them.
"""

from corral.signing.archive_key import KeyPair, new_key
from corral.signing.keyed import sign_keyed
from corral.signing.sidecars import (
    SIDECAR_LIMIT,
    SIDECAR_SUFFIXES,
    Sidecar,
    SidecarKind,
    sidecar_beside,
    sidecar_digest,
)
from corral.signing.verifier import Verifier, open_verifier

__all__ = [
    "SIDECAR_LIMIT",
    "SIDECAR_SUFFIXES",
    "KeyPair",
    "Sidecar",
    "SidecarKind",
    "Verifier",
    "new_key",
    "open_verifier",
    "sidecar_beside",
    "sidecar_digest",
    "sign_keyed",
]
