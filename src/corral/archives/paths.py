"""Paths in an archive: safe to create below an empty directory, and distinct."""

from __future__ import annotations

import unicodedata

from corral.archives.limits import ArchiveLimits
from corral.archives.refusals import ArchiveRefusals, shown
from corral.domain.file_paths import check_path
from corral.errors import Rejected


def checked_path(path: str, *, name: str, refusals: ArchiveRefusals) -> str:
    """The path of the entry of this name; PATH_REFUSED when it leads outside."""
    try:
        return check_path(path)
    except Rejected as refused:
        raise refusals.entry_refused(name, refused.message.rpartition(" is refused: ")[2]) from None


class DistinctPaths:
    """Paths in use, compared as a case-insensitive file system does."""

    def __init__(self, *, limits: ArchiveLimits, refusals: ArchiveRefusals) -> None:
        self._limits = limits
        self._refusals = refusals
        self._taken: dict[str, tuple[str, bool]] = {}
        self._named: set[str] = set()
        self._directories: set[str] = set()

    def add(self, name: str) -> str:
        """Take the path of an entry; a directory's name ends with a `/`. PATH_REFUSED."""
        found = path = self._checked(name)
        if path in self._named:
            raise self._refusals.entry_refused(name, "it is in the archive twice")
        self._named.add(path)
        self._claim(name, path, directory=name.endswith("/"))
        while "/" in path:
            path = path.rpartition("/")[0]
            if self._claim(name, path, directory=True):
                break  # then those above it are known, too
        return found

    def _checked(self, name: str) -> str:
        limits = self._limits
        path = checked_path(name.removesuffix("/"), name=name, refusals=self._refusals)
        if limits.max_name_bytes is not None and len(path.encode()) > limits.max_name_bytes:
            why = f"its name is longer than {limits.max_name_bytes} bytes"
            raise self._refusals.entry_refused(name, why)
        if limits.max_depth is not None and path.count("/") >= limits.max_depth:
            raise self._refusals.entry_refused(name, f"it lies more than {limits.max_depth} levels deep")
        return path

    def _claim(self, name: str, path: str, *, directory: bool) -> bool:
        """Take a path; whether it was taken before, as the same kind."""
        folded = unicodedata.normalize("NFC", path).casefold()
        known = self._taken.setdefault(folded, (path, directory))
        if known[0] != path:
            raise self._refusals.entry_refused(name, f"some file systems take it for {shown(known[0])}")
        if known[1] != directory:
            raise self._refusals.entry_refused(name, f"{shown(path)} is both a file and a directory")
        if path in self._directories:
            return True
        if directory:
            self._directories.add(path)
        return False
