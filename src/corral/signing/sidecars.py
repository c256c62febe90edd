"""Sidecars: the file beside an archive that holds its signature."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from corral.signing.refusals import refused

SIDECAR_LIMIT: Final = 256 * 1024
"""Bytes of the largest sidecar that is read; real bundles have 3 to 12 KB."""

SidecarKind = Literal["sig", "cosign-bundle"]
SIDECAR_SUFFIXES: Final[Mapping[SidecarKind, str]] = {"cosign-bundle": ".cosign.bundle", "sig": ".sig"}
"""Suffixes to an archive's name, in the order in which they are looked for."""


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """A signature as received, not verified; its content may be anything."""

    kind: SidecarKind
    content: bytes


def sidecar_digest(sidecar: Sidecar | None) -> str:
    """SHA-256 of its bytes, which identifies the signature; empty when there is none."""
    return hashlib.sha256(sidecar.content).hexdigest() if sidecar is not None else ""


def sidecar_beside(archive: pathlib.Path) -> Sidecar | None:
    """The sidecar of `archive`: FILE.cosign.bundle, else FILE.sig, else None. Blocks.

    One that cannot be read, or is larger than `SIDECAR_LIMIT`, is refused and not ignored: it was put there
    to be checked.
    """
    for kind, suffix in SIDECAR_SUFFIXES.items():
        beside = archive.with_name(archive.name + suffix)
        if beside.is_file():
            return Sidecar(kind=kind, content=_content(beside))
    return None


def check_size(content: bytes) -> None:
    if len(content) > SIDECAR_LIMIT:
        raise refused(f"its sidecar is larger than {SIDECAR_LIMIT} bytes, which no signature is")


def _content(path: pathlib.Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(SIDECAR_LIMIT + 1)
    except OSError as error:
        raise refused(
            f"{path.name} cannot be read: {error.strerror}", hint="make it readable, or move it away"
        ) from error
    check_size(content)
    return content
