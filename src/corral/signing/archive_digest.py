"""The digest of an archive, which every signature here covers."""

from __future__ import annotations

import pathlib

from corral.signing.refusals import refused
from corral.system.files import sha256_of


def digest_of(archive: pathlib.Path) -> bytes:
    """SHA-256 of the file, read in small pieces: memory does not grow with the archive. Blocks."""
    with archive.open("rb") as file:
        return sha256_of(file).digest()


def checked_digest(archive: pathlib.Path, expected: str) -> bytes:
    """Like `digest_of`, for a file that must have the caller's digest."""
    try:
        digest = digest_of(archive)
    except OSError as error:
        raise refused(
            f"the archive cannot be read: {error.strerror}", hint="look at the file and its directory"
        ) from error
    if digest.hex() != expected.lower():
        raise refused(
            f"the archive's SHA-256 is {digest.hex()}, not {expected} as was said",
            hint="send the archive again; it was changed or cut on its way",
        )
    return digest
