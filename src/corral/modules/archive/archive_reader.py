"""Archive reader: a module's archive checked to its last byte, without unpacking it.

The limits of the zip and the names of its files are checked as a whole before a single byte is unpacked.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

import msgspec

from corral.archives.limits import ArchiveLimits
from corral.archives.paths import DistinctPaths
from corral.archives.refusals import MODULE_REFUSALS
from corral.archives.zip_reader import ZipEntry, ZipReader
from corral.domain.modules.manifest import Manifest
from corral.errors import Code, Rejected
from corral.modules.archive.source_checks import check_sources
from corral.modules.manifest.manifest_reader import MANIFEST_MAX, manifest_refused, read_manifest
from corral.system.files import sha256_of

FRONTEND: Final = "frontend/"
MANIFEST_NAMES: Final = ("module.yaml", "module.json")
_ALMOST: Final = ("module.yml", "module.toml", "manifest.yaml", "manifest.json")


class ArchiveFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file in the archive."""

    path: str
    size: int
    sha256: str
    executable: bool = False


class ArchiveFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a valid archive."""

    manifest: Manifest
    manifest_text: str
    manifest_name: str
    """Its path in the archive."""
    sha256: str
    size: int
    unpacked_bytes: int
    files: tuple[ArchiveFile, ...]
    frontend: tuple[ArchiveFile, ...] = ()
    """Files below `frontend/`, with paths relative to it."""


def file_digest(path: Path, *, max_bytes: int) -> str:
    """The SHA-256 of an archive, without reading its content. ARCHIVE_TOO_LARGE. Blocking."""
    with _opened(path, max_bytes) as file:
        return digest(file)


def inspect_archive(path: Path, *, max_bytes: int, expect: str = "") -> ArchiveFacts:
    """Everything about an archive. Each file is read to its end, so damage anywhere is found here. `expect` is the
    digest by which its signature was verified.

    Raises ARCHIVE_INVALID, ARCHIVE_TOO_LARGE, PATH_REFUSED, MANIFEST_INVALID and DIGEST_MISMATCH. Blocking."""
    with _opened(path, max_bytes) as file:
        sha256 = digest(file)
        if expect not in ("", sha256):
            raise Rejected(
                Code.DIGEST_MISMATCH,
                f"the module's archive changed while it was looked at, from {expect} to {sha256}",
                hint="nothing was stored; send it again",
            )
        return _inspected(file, sha256, max_bytes)


@contextlib.contextmanager
def _opened(path: Path, max_bytes: int) -> Iterator[io.BufferedReader]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size > max_bytes:
                raise MODULE_REFUSALS.too_large(
                    f"the module's archive has {size} bytes", f"{max_bytes} bytes"
                )
            yield file
    except OSError as error:
        raise Rejected(
            Code.FILE_UNREADABLE, f"{path} cannot be read: {error.strerror}", hint="check the path"
        ) from error


def _inspected(file: io.BufferedReader, sha256: str, max_bytes: int) -> ArchiveFacts:
    with open_zip(file, max_bytes=max_bytes) as archive:
        entries = checked_files(archive)
        entry = _manifest_entry(entries)
        text = _manifest_text(archive, entry)
        manifest = read_manifest(text, name=entry.name)
        files = tuple(_read(archive, each) for each in entries)
    check_contents(manifest, {each.path: each for each in files}, name=entry.name)
    return ArchiveFacts(
        manifest=manifest,
        manifest_text=text,
        manifest_name=entry.name,
        sha256=sha256,
        size=file.seek(0, 2),
        unpacked_bytes=sum(each.size for each in files),
        files=files,
        frontend=tuple(
            msgspec.structs.replace(each, path=each.path.removeprefix(FRONTEND))
            for each in files
            if each.path.startswith(FRONTEND)
        ),
    )


def read_files(file: IO[bytes], *, max_bytes: int) -> tuple[ArchiveFile, ...]:
    """Each file of an archive, read to its end. Raises as `inspect_archive`. Blocking."""
    with open_zip(file, max_bytes=max_bytes) as archive:
        return tuple(_read(archive, each) for each in checked_files(archive))


def check_archive_sources(path: Path, facts: ArchiveFacts) -> None:
    """Syntax check of an inspected archive's sources: ARCHIVE_INVALID. Blocking."""
    with zipfile.ZipFile(path) as archive:
        check_sources(facts.manifest, [each.path for each in facts.files], archive.read)


def digest(file: io.BufferedReader) -> str:
    """SHA-256 of a whole file. Blocking."""
    file.seek(0)
    return sha256_of(file).hexdigest()


def has_digest(path: Path, sha256: str) -> bool:
    """Is there a file with this SHA-256? Blocking."""
    try:
        with path.open("rb") as file:
            return digest(file) == sha256
    except OSError:
        return False


def check_contents(manifest: Manifest, files: Mapping[str, ArchiveFile], *, name: str) -> None:
    """Refuse a manifest that names files which are missing, or have another digest: MANIFEST_INVALID."""
    for host in manifest.hosts:
        backend = manifest.backend_on(host)
        if backend is not None and not _importable(backend.entrypoint, files):
            why = f"the archive has no module '{backend.entrypoint.partition(':')[0]}'"
            raise manifest_refused(name, f"backend.{host}.entrypoint", why)
    if manifest.frontend is not None and FRONTEND + manifest.frontend.entry not in files:
        why = f"the archive has no file '{FRONTEND}{manifest.frontend.entry}'"
        if manifest.frontend.entry in files and manifest.frontend.entry.startswith(FRONTEND):
            why += f"; write it without '{FRONTEND}'"
        raise manifest_refused(name, "frontend.entry", why)
    for number, extension in enumerate(manifest.extensions):
        for at, variant in enumerate(extension.variants):
            place = f"extensions[{number}].variants[{at}]"
            found = files.get(variant.file)
            if found is None:
                raise manifest_refused(name, f"{place}.file", f"the archive has no file '{variant.file}'")
            if found.sha256 != variant.sha256:
                raise manifest_refused(name, f"{place}.sha256", f"the file's digest is {found.sha256}")


def _importable(entrypoint: str, files: Mapping[str, ArchiveFile]) -> bool:
    """Is there something that Python would import under that name, at the root or in `vendor/`?"""
    place = entrypoint.partition(":")[0].replace(".", "/")
    for root in ("", "vendor/"):
        stem = root + place
        if f"{stem}.py" in files or f"{stem}/__init__.py" in files:
            return True
        if any(path.startswith(f"{stem}.") and path.endswith(".so") for path in files):
            return True
    return False


def _manifest_entry(entries: Sequence[ZipEntry]) -> ZipEntry:
    found = [entry for entry in entries if _is_manifest(entry.name)]
    if len(found) > 1:
        raise MODULE_REFUSALS.damaged(
            f"it has {len(found)} manifests: {', '.join(sorted(each.name for each in found)[:5])}"
        )
    if found:
        return found[0]
    why = f"it has no {MANIFEST_NAMES[0]} at its root, in META-INF/ or in *.dist-info/"
    almost = [entry.name for entry in entries if entry.name.lower() in (*MANIFEST_NAMES, *_ALMOST)]
    nested = [entry.name for entry in entries if entry.name.rpartition("/")[2] in MANIFEST_NAMES]
    if almost:
        why += f"; rename '{almost[0]}'"
    elif nested:
        why += (
            f"; '{nested[0][:200]}' is at the wrong place: pack what is in that directory, not the directory"
        )
    raise MODULE_REFUSALS.damaged(why)


def _is_manifest(path: str) -> bool:
    directory, _, name = path.rpartition("/")
    if name not in MANIFEST_NAMES:
        return False
    return directory in ("", "META-INF") or ("/" not in directory and directory.endswith(".dist-info"))


def _manifest_text(archive: ZipReader, entry: ZipEntry) -> str:
    if entry.size > MANIFEST_MAX:
        raise MODULE_REFUSALS.too_large(f"{entry.name} has {entry.size} bytes", f"{MANIFEST_MAX} bytes")
    try:
        return b"".join(archive.contents(entry)).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise manifest_refused(entry.name, "", f"it is not UTF-8: {error.reason}") from None


def _read(archive: ZipReader, entry: ZipEntry) -> ArchiveFile:
    """Read a file. An empty one is not opened: an archive may have tens of thousands of them."""
    hashed, size = hashlib.sha256(), 0
    for block in archive.contents(entry) if not entry.is_empty else ():
        hashed.update(block)
        size += len(block)
    return ArchiveFile(path=entry.name, size=size, sha256=hashed.hexdigest(), executable=entry.executable)


ENTRIES_MAX: Final = 50_000
UNPACKED_FACTOR: Final = 4
"""An archive may unpack to this many times the largest archive."""
NAME_MAX: Final = 1024
DEPTH_MAX: Final = 64


def open_zip(file: IO[bytes], *, max_bytes: int) -> ZipReader:
    """Open the archive after checking that its directory is not too long to be read; at most `max_bytes`."""
    return ZipReader(file, limits=_limits(max_bytes), refusals=MODULE_REFUSALS)


def checked_files(archive: ZipReader) -> list[ZipEntry]:
    """Its files, in the order of the directory. Their names are the paths of a plain tree: none leads out of
    it, no two are equal on another file system. Raises ARCHIVE_INVALID, ARCHIVE_TOO_LARGE, PATH_REFUSED."""
    paths = DistinctPaths(limits=archive.limits, refusals=MODULE_REFUSALS)
    files: list[ZipEntry] = []
    for entry in archive.entries():
        paths.add(entry.name)
        if not entry.directory:
            files.append(entry)
    archive.refuse_sizes()
    archive.refuse_overlaps()
    return files


def _limits(max_bytes: int) -> ArchiveLimits:
    return ArchiveLimits(
        max_bytes=UNPACKED_FACTOR * max_bytes,
        max_entries=ENTRIES_MAX,
        max_name_bytes=NAME_MAX,
        max_depth=DEPTH_MAX,
        sealed=True,
    )
