"""Unpacked module archive: a read-only tree of files, whole or absent, and checked when used."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from corral.archives.zip_reader import ZipEntry, ZipReader
from corral.modules.archive.archive_reader import ArchiveFile, checked_files, open_zip
from corral.system.files import sha256_of
from corral.system.trees.removal import remove_tree

FILE_MODE: Final = 0o444
PROGRAM_MODE: Final = 0o555
"""Executable files of the archive stay executable: packages bring programs of their own."""
DIRECTORY_MODE: Final = 0o555


def unpack(file: IO[bytes], target: Path, *, max_bytes: int) -> tuple[ArchiveFile, ...]:
    """Unpack an archive into a directory that does not exist yet; returns what was unpacked, for `is_intact`.

    Files are 0444 (0555 where executable), directories 0555. When it raises, nothing is left. Blocking.
    """
    with open_zip(file, max_bytes=max_bytes) as opened:
        entries = checked_files(opened)
        target.mkdir(mode=0o700)
        try:
            files = tuple(_write(opened, entry, target) for entry in entries)
            _seal_directories(target)
        except BaseException:
            remove_tree(target)
            raise
    return files


def is_intact(tree: Path, files: Sequence[ArchiveFile]) -> bool:
    """Is this the tree that was unpacked: every file as it was, and nothing besides? Blocking."""
    expected = {each.path: each for each in files}
    try:
        found = _listed(tree)
        return found.keys() == expected.keys() and all(
            _same(tree / path, each, found[path]) for path, each in expected.items()
        )
    except OSError:
        return False


def _write(archive: ZipReader, entry: ZipEntry, target: Path) -> ArchiveFile:
    path = target / entry.name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    mode = PROGRAM_MODE if entry.executable else FILE_MODE
    hashed, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for block in archive.contents(entry):
            file.write(block)
            hashed.update(block)
            size += len(block)
        file.flush()
        os.fchmod(file.fileno(), mode)  # whatever the umask is
    return ArchiveFile(path=entry.name, size=size, sha256=hashed.hexdigest(), executable=entry.executable)


def _seal_directories(tree: Path) -> None:
    for directory, _, _ in os.walk(tree, topdown=False):
        Path(directory).chmod(DIRECTORY_MODE)


def _listed(tree: Path) -> dict[str, os.stat_result]:
    """All entries that are not directories, by path below the tree. Raises for a directory whose
    mode was changed, and for a link in place of the tree."""
    if tree.is_symlink():
        raise PermissionError(tree)
    found: dict[str, os.stat_result] = {}
    for directory, names, files in os.walk(tree, onerror=_raise):
        if stat.S_IMODE(Path(directory).stat().st_mode) != DIRECTORY_MODE:
            raise PermissionError(directory)
        links = [name for name in names if Path(directory, name).is_symlink()]
        for name in (*files, *links):
            path = Path(directory, name)
            found[path.relative_to(tree).as_posix()] = path.lstat()
    return found


def _raise(error: OSError) -> None:
    raise error


def _same(path: Path, expected: ArchiveFile, found: os.stat_result) -> bool:
    mode = PROGRAM_MODE if expected.executable else FILE_MODE
    if found.st_mode != stat.S_IFREG | mode or found.st_size != expected.size:
        return False
    with path.open("rb") as file:
        return sha256_of(file).hexdigest() == expected.sha256
