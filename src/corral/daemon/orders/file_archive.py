"""Chosen files of a working directory as a tar.gz, while their workload may be writing to it.

Every directory is opened beneath the one before and no link is followed: a workload that swaps a file
for a link to something else gets it refused, not read.
"""

from __future__ import annotations

import io
import os
import pathlib
import tarfile
from typing import IO, Final, cast

import msgspec

from corral.daemon.prepare.abort import Abort
from corral.daemon.workload.secret_files import SecretGuard
from corral.domain.file_paths import Globs, check_path
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.system.trees.entries import open_regular, open_tree
from corral.system.trees.walk import Found, walk

_EXECUTABLE: Final = 0o111
_LEVEL: Final = 1
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
    most = min(max_files or MAX_FILES, MAX_FILES)
    with (
        tarfile.open(target, "w:gz", compresslevel=_LEVEL, format=tarfile.PAX_FORMAT) as archive,
        open_tree(root) as top,
    ):
        for found in walk(top):
            abort.check()
            if found.is_directory or not chosen.matches(path := found.path):
                continue
            files += 1
            if files > most:
                raise _too_large(f"the chosen files are more than {most}")
            size += _add(archive, check_path(path, field="paths"), found, (size, max_bytes), abort, guard)
            if max_bytes and size > max_bytes:
                raise _too_large(f"the chosen files have more than {max_bytes} bytes")
    if not files:
        raise Rejected(
            Code.NOT_FOUND, "no file matches these paths", hint="look at the instance's files", field="paths"
        )
    return Packed(files, size)


def _add(
    archive: tarfile.TarFile,
    path: str,
    found: Found,
    room: tuple[int, int],
    abort: Abort,
    guard: SecretGuard,
) -> int:
    """Its size. One for which there is no room is not begun: a file of holes has any size, and costs its workload
    nothing."""
    try:
        descriptor = open_regular(found.here, found.name, shown=path)
    except FileNotFoundError:
        return 0  # the workload lives on
    except CorralError as error:
        raise _refused(path) from error
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        taken, limit = room
        if limit and status.st_size > limit - taken:
            raise _too_large(
                f"'{path}' has {status.st_size} bytes: with it the chosen files have more than {limit} bytes"
            )
        entry = tarfile.TarInfo(path)
        content, entry.size = guard.content(path, file, status.st_size)
        entry.mode = 0o755 if status.st_mode & _EXECUTABLE else 0o644
        try:
            archive.addfile(entry, cast(IO[bytes], _Wanted(content, abort)))
        except OSError as error:
            if error.errno is not None:
                raise
            raise Retryable(  # of tarfile: the file has fewer bytes than it had a moment ago
                Code.FILE_UNREADABLE, f"'{path}' became shorter while it was read", hint="try again"
            ) from error
        return entry.size


class _Wanted(io.RawIOBase):
    """A file that is read only as long as somebody waits for it."""

    def __init__(self, file: IO[bytes], abort: Abort) -> None:
        self._file = file
        self._abort = abort

    def read(self, size: int = -1) -> bytes:
        self._abort.check()
        return self._file.read(size)


def _too_large(what: str) -> Rejected:
    return Rejected(
        Code.ARCHIVE_TOO_LARGE,
        what,
        hint="choose fewer paths, or raise templates.max_bytes",
        field="paths",
    )


def _refused(path: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"'{path}' is a link, no regular file, or has more than one name",
        hint="templates hold regular files only; leave it out of the paths",
        field="paths",
    )
