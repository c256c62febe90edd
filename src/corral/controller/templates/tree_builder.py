"""From entries one by one to a manifest: every path checked, nothing twice, nothing beneath a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from corral.archives.limits import ArchiveLimits
from corral.archives.paths import checked_path
from corral.archives.refusals import TEMPLATE_REFUSALS
from corral.domain.templates import Manifest, TemplateFile

_PER_ENTRY: Final = 4096
"""So much of an archive may be its headers, for each entry that it may have."""
_SPARE: Final = 1024 * 1024
_DIRECTORY_BYTES: Final = 256 * 1024 * 1024


class TreeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How large a tree may be, unpacked. Directories may be as many again as files."""

    max_bytes: int
    max_files: int

    @property
    def stream_bytes(self) -> int:
        """What an archive of such a tree has at most, headers included, packed or unpacked."""
        return self.max_bytes + _PER_ENTRY * self.max_files + _SPARE

    def archive(self, *, any_ratio: bool) -> ArchiveLimits:
        """Of an archive of such a tree: it has files, directories and the root, each named once."""
        return ArchiveLimits(
            max_bytes=self.max_bytes,
            max_entries=2 * self.max_files + 1,
            entries_shown=f"{self.max_files} files",
            max_stream_bytes=self.stream_bytes,
            max_directory_bytes=_DIRECTORY_BYTES,
            any_ratio=any_ratio,
        )


class TreeBuilder:
    """A tree that grows within its limits. Raises PATH_REFUSED and ARCHIVE_TOO_LARGE by the entry's name."""

    def __init__(self, limits: TreeLimits) -> None:
        self._limits = limits
        self._files: dict[str, TemplateFile | None] = {}
        self._directories: set[str] = set()
        self._size = 0

    def claim(self, name: str, *, size: int) -> str:
        """Take a place for a file of this announced size, before its content is read; returns its path."""
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
        """Refuse a file of this size in addition to what is there."""
        if self._size + size > self._limits.max_bytes:
            raise TEMPLATE_REFUSALS.too_large(
                f"with {name[:160]!r} the tree is too large", f"{self._limits.max_bytes} bytes"
            )

    def fill(self, file: TemplateFile) -> None:
        """The content of a claimed place is known."""
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

    def manifest(self) -> Manifest:
        files = tuple(file for _, file in sorted(self._files.items()) if file is not None)
        return Manifest(files=files, directories=empty_directories(self._directories, self._files))

    def _path(self, name: str) -> str:
        """Without the `./` before and the `/` behind it, which packers add."""
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
                break  # then those above it are known, too: a deep tree costs each directory once
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
    """Those with nothing in them; all others follow from what they hold."""
    wanted = set(directories)
    return tuple(sorted(wanted - filled_directories((*files, *wanted))))


def filled_directories(paths: Iterable[str]) -> set[str]:
    """Those with something in them."""
    filled: set[str] = set()
    for path in paths:
        for parent in parents_of(path):
            if parent in filled:
                break
            filled.add(parent)
    return filled
