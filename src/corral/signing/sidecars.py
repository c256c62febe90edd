"""The file beside an archive that holds its signature."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from corral.signing.refusals import refused

SIDECAR_LIMIT: Final = 256 * 1024
"""Bytes of the largest sidecar that is looked at; real bundles have 3 to 12 KB."""

SidecarKind = Literal["sig", "cosign-bundle"]
SIDECAR_SUFFIXES: Final[Mapping[SidecarKind, str]] = {"cosign-bundle": ".cosign.bundle", "sig": ".sig"}
"""What is added to an archive's name, in the order in which it is looked for."""


class Sidecar(msgspec.Struct, frozen=True, kw_only=True):
    """A signature as it came, not yet judged; its content may be anything."""

    kind: SidecarKind
    content: bytes


def sidecar_digest(sidecar: Sidecar | None) -> str:
    """SHA-256 of its bytes, by which one signature is told from another; empty when there is none."""
    return hashlib.sha256(sidecar.content).hexdigest() if sidecar is not None else ""


def sidecar_beside(archive: pathlib.Path) -> Sidecar | None:
    """What lies beside `archive`: FILE.cosign.bundle, else FILE.sig, else nothing. Blocks.

    One that cannot be read, or is larger than `SIDECAR_LIMIT`, is refused rather than passed over:
    whoever put it there meant it to count.
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
