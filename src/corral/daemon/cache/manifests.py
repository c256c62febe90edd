"""A manifest from outside: believed only when its digest is right and everything in it makes sense."""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec

from corral.daemon.cache.sealed_files import is_digest
from corral.domain.file_paths import check_path
from corral.domain.templates import MODES, PIECE, Manifest, TemplateFile, decode_manifest
from corral.errors import Code, Rejected

MAX_MANIFEST: Final = 256 * 1024 * 1024
"""Of some hundred thousand files with long names; no more than this is read into memory."""


def read_manifest(data: bytes, *, digest: str, name: str) -> Manifest:
    """Decode and check; ARTIFACT_DIGEST_MISMATCH, ARCHIVE_INVALID or PATH_REFUSED."""
    if hashlib.sha256(data).hexdigest() != digest:
        raise Rejected(
            Code.ARTIFACT_DIGEST_MISMATCH,
            f"the list of files of template '{name}' is not the one that was announced",
            hint="it was thrown away; try again",
        )
    try:
        manifest = decode_manifest(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _invalid(name, f"its list of files cannot be read: {error}") from None
    return check_manifest(manifest, name=name)


def check_manifest(manifest: Manifest, *, name: str) -> Manifest:
    """Paths that stay within the tree, none twice, no file that is also a directory, and figures that
    agree with each other."""
    seen: set[str] = set()
    above: set[str] = set()
    for path in (*manifest.directories, *(file.path for file in manifest.files)):
        check_path(path, field=f"template '{name}'")
        if path in seen:
            raise _invalid(name, f"'{path}' is in it twice")
        seen.add(path)
        cut = path.rfind("/")
        while cut > 0 and path[:cut] not in above:
            above.add(path[:cut])
            cut = path.rfind("/", 0, cut)
    for file in manifest.files:
        if file.path in above:
            raise _invalid(name, f"'{file.path}' is a file and a directory")
        _check_file(file, name=name)
    return manifest


def _check_file(file: TemplateFile, *, name: str) -> None:
    if file.mode not in MODES:
        raise _invalid(name, f"'{file.path}' has mode {file.mode:o}")
    pieces = -(-file.size // PIECE) if file.size > PIECE else 0
    if file.size < 0 or len(file.pieces) != pieces:
        raise _invalid(name, f"'{file.path}' has {file.size} bytes in {len(file.pieces)} pieces")
    if not all(is_digest(digest) for digest in (file.digest, *file.pieces)):
        raise _invalid(name, f"'{file.path}' has no digest")


def _invalid(name: str, why: str) -> Rejected:
    return Rejected(
        Code.ARCHIVE_INVALID,
        f"template '{name}' cannot be used: {why}",
        hint="upload it to the controller again",
    )
