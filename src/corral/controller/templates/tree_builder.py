"""Manifests of trees: built entry by entry, or edited. Every path is checked: none twice, none below a file."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from corral.archives.limits import ArchiveLimits
from corral.archives.paths import checked_path
from corral.archives.refusals import TEMPLATE_REFUSALS
from corral.domain.templates import TemplateFile, TemplateManifest
from corral.errors import Code, Rejected, nearest

_PER_ENTRY: Final = 4096
"""The allowed size of headers per entry of an archive."""
_SPARE: Final = 1024 * 1024
_DIRECTORY_BYTES: Final = 256 * 1024 * 1024


class TreeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of an unpacked tree. `max_files` limits files and, separately, directories."""

    max_bytes: int
    max_files: int

    @property
    def stream_bytes(self) -> int:
        """The largest archive of such a tree, headers included, packed or unpacked."""
        return self.max_bytes + _PER_ENTRY * self.max_files + _SPARE

    def archive(self, *, any_ratio: bool) -> ArchiveLimits:
        """The limits of an archive of such a tree: it has files, directories and the root, each named once."""
        return ArchiveLimits(
            max_bytes=self.max_bytes,
            max_entries=2 * self.max_files + 1,
            entries_shown=f"{self.max_files} files",
            max_stream_bytes=self.stream_bytes,
            max_directory_bytes=_DIRECTORY_BYTES,
            any_ratio=any_ratio,
        )


class TreeBuilder:
    """A growing tree within its limits. Raises PATH_REFUSED and ARCHIVE_TOO_LARGE with the entry's name."""

    def __init__(self, limits: TreeLimits) -> None:
        self._limits = limits
        self._files: dict[str, TemplateFile | None] = {}
        self._directories: set[str] = set()
        self._size = 0

    def claim(self, name: str, *, size: int) -> str:
        """Reserve a path for a file of this announced size, before its content is read; returns the path."""
        path = self._path(name)
        if not path:
            raise TEMPLATE_REFUSALS.entry_refused(name, "it has no name")
        if path in self._files:
            raise TEMPLATE_REFUSALS.entry_refused(name, "its path is in the archive twice")
        if path in self._directories:
            raise TEMPLATE_REFUSALS.entry_refused(
                name, "another entry lies beneath it, as if it were a directory"
            )
        self._add_parents(name, path)
        if len(self._files) >= self._limits.max_files:
            raise TEMPLATE_REFUSALS.too_large(
                "the tree has too many files", f"{self._limits.max_files} files"
            )
        self.check_size(name, size)
        self._files[path] = None
        return path

    def check_size(self, name: str, size: int) -> None:
        """Refuse a file whose size exceeds the limits together with the present files."""
        if self._size + size > self._limits.max_bytes:
            raise TEMPLATE_REFUSALS.too_large(
                f"with {name[:160]!r} the tree is too large", f"{self._limits.max_bytes} bytes"
            )

    def fill(self, file: TemplateFile) -> None:
        """Set the file of a reserved path."""
        self._files[file.path] = file
        self._size += file.size

    def add_directory(self, name: str) -> None:
        path = self._path(name)
        if not path:
            return  # the root itself
        if path in self._files:
            raise TEMPLATE_REFUSALS.entry_refused(name, "its path is in the archive twice, also as a file")
        self._add_parents(name, path)
        self._add_directories(path)

    def manifest(self) -> TemplateManifest:
        files = tuple(file for _, file in sorted(self._files.items()) if file is not None)
        return TemplateManifest(files=files, directories=empty_directories(self._directories, self._files))

    def _path(self, name: str) -> str:
        """The path without a leading `./` and a trailing `/`, which packers add."""
        path = name
        while path.startswith("./"):
            path = path[2:].lstrip("/")
        path = path.rstrip("/") if path.strip("/") else path
        if path in ("", "."):
            return ""
        return checked_path(path, name=name, refusals=TEMPLATE_REFUSALS)

    def _add_parents(self, name: str, path: str) -> None:
        for parent in parents_of(path):
            if parent in self._directories:
                break  # then its parents are known, too: each directory of a deep tree is visited once
            if parent in self._files:
                raise TEMPLATE_REFUSALS.entry_refused(name, f"it lies beneath {parent!r}, which is a file")
            self._add_directories(parent)

    def _add_directories(self, path: str) -> None:
        self._directories.add(path)
        if len(self._directories) > self._limits.max_files:
            raise TEMPLATE_REFUSALS.too_large(
                "the tree has too many directories", f"{self._limits.max_files}"
            )


def parents_of(path: str) -> Iterator[str]:
    """The directories above it, nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def empty_directories(directories: Iterable[str], files: Iterable[str]) -> tuple[str, ...]:
    """Directories without entries; all others follow from their entries."""
    present = set(directories)
    return tuple(sorted(present - filled_directories((*files, *present))))


def filled_directories(paths: Iterable[str]) -> set[str]:
    """Directories with entries."""
    filled: set[str] = set()
    for path in paths:
        for parent in parents_of(path):
            if parent in filled:
                break
            filled.add(parent)
    return filled


_GUESSES = 500


def find_file(manifest: TemplateManifest, path: str) -> TemplateFile:
    """The file; NOT_FOUND with the most similar path."""
    place = bisect.bisect_left(manifest.files, path, key=lambda file: file.path)
    if place < len(manifest.files) and manifest.files[place].path == path:
        return manifest.files[place]
    raise _no_such_file(manifest, path)


def put_file(manifest: TemplateManifest, file: TemplateFile, limits: TreeLimits) -> TemplateManifest:
    return overlay(manifest, TemplateManifest(files=(file,)), limits)


def remove_path(manifest: TemplateManifest, path: str) -> TemplateManifest:
    """The tree without a file or an empty directory. Its directory is removed when it becomes empty."""
    files = tuple(file for file in manifest.files if file.path != path)
    directories = tuple(each for each in manifest.directories if each != path)
    if len(files) + len(directories) == len(manifest.files) + len(manifest.directories):
        raise _no_such_file(manifest, path)
    return TemplateManifest(files=files, directories=directories)


def overlay(base: TemplateManifest, upper: TemplateManifest, limits: TreeLimits) -> TemplateManifest:
    """Both trees, the upper one's files replacing the lower one's of the same path."""
    files = {file.path: file for file in (*base.files, *upper.files)}
    directories = {*base.directories, *upper.directories}
    filled = filled_directories((*files, *directories))
    for path in files.keys() & (filled | directories):
        raise Rejected(
            Code.PATH_REFUSED,
            f"{path!r} would be a file and a directory",
            hint="remove the one before you put the other",
            field="path",
        )
    _check_limits(files.values(), len(filled | directories), limits)
    return TemplateManifest(
        files=tuple(files[path] for path in sorted(files)), directories=tuple(sorted(directories - filled))
    )


def _check_limits(files: Iterable[TemplateFile], directories: int, limits: TreeLimits) -> None:
    sizes = [file.size for file in files]
    if sum(sizes) > limits.max_bytes or max(len(sizes), directories) > limits.max_files:
        raise Rejected(
            Code.ARCHIVE_TOO_LARGE,
            f"the tree would have {len(sizes)} files with {sum(sizes)} bytes; "
            f"the limit is {limits.max_files} files and {limits.max_bytes} bytes",
            hint="make it smaller, or raise templates.max_bytes or templates.max_files",
        )


def _no_such_file(manifest: TemplateManifest, path: str) -> Rejected:
    guess = nearest(path[:200], (file.path for file in manifest.files[:_GUESSES]))
    return Rejected(
        Code.NOT_FOUND,
        f"there is no file {path[:200]!r} in this version",
        hint=f"did you mean '{guess}'?" if guess else "'corral template files NAME' lists them",
        field="path",
    )
