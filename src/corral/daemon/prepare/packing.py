"""Chosen files of a working directory as a tar.gz, while their workload may be writing to it.

Every directory is opened beneath the one before and no link is followed: a workload that swaps a file
for a link to something else gets it refused, not read.
"""

from __future__ import annotations

import os
import pathlib
import stat
import tarfile
from collections.abc import Iterator
from typing import Final

import msgspec

from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.secret_files import SecretGuard
from corral.domain.file_paths import Globs, check_path
from corral.errors import Code, Rejected, Retryable
from corral.system.trees.entries import DIRECTORY

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_EXECUTABLE: Final = 0o111
_LEVEL: Final = 1
_DEEPEST: Final = 200
MAX_FILES: Final = 100_000


class Packed(msgspec.Struct, frozen=True):
    files: int
    size: int


def pack(
    root: pathlib.Path,
    chosen: Globs,
    target: pathlib.Path,
    *,
    max_bytes: int,
    max_files: int,
    abort: Abort,
    guard: SecretGuard,
) -> Packed:
    """Everything that `chosen` matches. PATH_REFUSED for a link or a device among it, SECRET_EXPOSED as `guard`
    says, ARCHIVE_TOO_LARGE above the limits (0: ours alone), NOT_FOUND when nothing matches. Blocks."""
    files = size = 0
    with tarfile.open(target, "w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT) as archive:
        top = os.open(root, DIRECTORY)
        try:
            for path, name, parent in _walk(top, "", chosen):
                abort.check()
                files += 1
                size += _add(archive, path, name, parent, abort, guard)
                if files > min(max_files or MAX_FILES, MAX_FILES) or (max_bytes and size > max_bytes):
                    raise Rejected(
                        Code.ARCHIVE_TOO_LARGE,
                        f"the chosen files are more than {max_files or MAX_FILES} or {max_bytes} bytes",
                        hint="choose fewer paths, or raise templates.max_bytes",
                        field="paths",
                    )
        finally:
            os.close(top)
    if not files:
        raise Rejected(
            Code.NOT_FOUND, "no file matches these paths", hint="look at the instance's files", field="paths"
        )
    return Packed(files, size)


def _walk(here: int, prefix: str, chosen: Globs) -> Iterator[tuple[str, str, int]]:
    """Path, name and open directory of every chosen entry that is no directory."""
    if prefix.count("/") > _DEEPEST:
        raise Rejected(
            Code.PATH_REFUSED,
            f"'{prefix[:80]}…' is nested deeper than {_DEEPEST} directories",
            hint="remove it, or save the files while it is not there",
            field="paths",
        )
    for name in sorted(os.listdir(here)):
        path = f"{prefix}{name}"
        try:
            mode = os.stat(name, dir_fd=here, follow_symlinks=False).st_mode
        except FileNotFoundError:
            continue  # the workload lives on
        if stat.S_ISDIR(mode):
            try:
                below = os.open(name, DIRECTORY, dir_fd=here)
            except OSError:
                continue  # gone, or swapped for something that is no directory
            try:
                yield from _walk(below, f"{path}/", chosen)
            finally:
                os.close(below)
        elif chosen.matches(path):
            yield check_path(path, field="paths"), name, here


def _add(
    archive: tarfile.TarFile, path: str, name: str, parent: int, abort: Abort, guard: SecretGuard
) -> int:
    try:
        descriptor = os.open(name, _READ, dir_fd=parent)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise _refused(path) from error
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise _refused(path)
        entry = tarfile.TarInfo(path)
        content, entry.size = guard.content(path, file, found.st_size)
        entry.mode = 0o755 if found.st_mode & _EXECUTABLE else 0o644
        abort.check()
        try:
            archive.addfile(entry, content)
        except OSError as error:
            if error.errno is not None:
                raise
            raise Retryable(  # of tarfile: the file has fewer bytes than it had a moment ago
                Code.FILE_UNREADABLE, f"'{path}' became shorter while it was read", hint="try again"
            ) from error
        return entry.size


def _refused(path: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"'{path}' is a link or no regular file",
        hint="templates hold regular files only; leave it out of the paths",
        field="paths",
    )
