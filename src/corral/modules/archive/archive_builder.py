"""From a source directory to an archive: the same files give the same bytes, wherever and whenever.

Entries are sorted by name, dated 1980-01-01, of mode 0644 (0755 where the owner may execute), packed by
deflate at its default level, without extra fields. The bytes depend on nothing else but the version of zlib.
"""

from __future__ import annotations

import os
import stat
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from corral.domain.module_manifest import Manifest
from corral.errors import Code, Rejected
from corral.modules.archive.archive_reader import MANIFEST_NAMES, inspect_archive
from corral.modules.archive.source_checks import check_sources
from corral.modules.archive.source_tree import packed_files
from corral.modules.manifest.manifest_reader import read_manifest

OUTPUT: Final = "dist"
SUFFIX: Final = ".cmod"
BUILD_MAX: Final = 1024**3
"""Bytes of a module that is built: what hosts accept unless they are configured otherwise."""
_OLDEST: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_BLOCK: Final = 256 * 1024


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """An archive that hosts accept, as far as it can be told without them."""

    path: Path
    sha256: str
    size: int
    manifest: Manifest
    files: tuple[str, ...]


def build_module(source: Path, out: Path | None = None) -> Built:
    """Build the module in `source` as `out`, or as `dist/ID-VERSION.cmod` beneath it. What was there before
    is replaced once the new one has passed the checks that a host makes, not sooner. Blocking.

    Raises MANIFEST_INVALID, PATH_REFUSED, FILE_UNREADABLE, ARCHIVE_INVALID and ARCHIVE_TOO_LARGE."""
    try:
        name, manifest = _manifest(source)
        files = packed_files(source, name, manifest)
        target = out or source / OUTPUT / f"{manifest.id}-{manifest.version}{SUFFIX}"
        target.parent.mkdir(parents=True, exist_ok=True)
        check_sources(manifest, files.keys(), lambda path: files[path].read_bytes())
        return _built(files, target)
    except OSError as error:
        where = error.filename2 or error.filename or source
        raise Rejected(
            Code.FILE_UNREADABLE,
            f"the module cannot be built: {where}: {error.strerror}",
            hint="check that it is there, and that you may read and write it",
        ) from error


def _manifest(source: Path) -> tuple[str, Manifest]:
    found = [name for name in MANIFEST_NAMES if (source / name).is_file()]
    if len(found) != 1:
        why = "two manifests, module.yaml and module.json" if found else "no module.yaml"
        raise Rejected(
            Code.MANIFEST_INVALID,
            f"{source} has {why}",
            hint="remove one of them" if found else "`corral module new` makes a module to begin with",
        )
    try:
        text = (source / found[0]).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Rejected(Code.MANIFEST_INVALID, f"{found[0]} is not UTF-8: {error.reason}") from None
    return found[0], read_manifest(text, name=found[0])


def _built(files: Mapping[str, Path], target: Path) -> Built:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for entry, path in files.items():
                    _pack(archive, entry, path)
            file.flush()
            os.fchmod(file.fileno(), 0o644)
        facts = inspect_archive(part, max_bytes=BUILD_MAX)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return Built(
        path=target, sha256=facts.sha256, size=facts.size, manifest=facts.manifest, files=tuple(files)
    )


def _pack(archive: zipfile.ZipFile, name: str, path: Path) -> None:
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        info = zipfile.ZipInfo(name, _OLDEST)
        info.create_system = _UNIX
        info.compress_type = zipfile.ZIP_DEFLATED
        mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        info.external_attr = (stat.S_IFREG | mode) << 16
        info.file_size = status.st_size
        with archive.open(info, "w") as entry:
            while block := file.read(_BLOCK):
                entry.write(block)
