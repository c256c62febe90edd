"""A directory as an archive to upload, packed the same way each time."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from typing import IO, Final

from corral.cli.failure import Failure, WrongUsage
from corral.cli.terminal.progress_line import Bar

_BLOCK: Final = 256 * 1024
_HEAD: Final = 512
_TAR: Final = "application/x-tar"
_TAR_GZ: Final = "application/gzip"
_ZIP: Final = "application/zip"


@contextlib.contextmanager
def archive_of(path: str) -> Iterator[tuple[IO[bytes], int, str]]:
    """What to upload for a path: a directory packed, an archive as it is; with its size and its kind."""
    source = pathlib.Path(path).expanduser()
    if source.is_dir():
        with tempfile.TemporaryFile(prefix="corral-upload-") as packed:
            pack(source, packed)
            size = packed.tell()
            packed.seek(0)
            yield packed, size, _TAR_GZ
        return
    try:
        file = source.open("rb")
    except FileNotFoundError:
        raise WrongUsage(
            f"there is no directory or archive '{path}'", hint="give a directory, a .tar.gz or a .zip"
        ) from None
    except OSError as error:
        raise WrongUsage(f"cannot read {path}: {error.strerror}") from error
    with file:
        kind = _kind(file.read(_HEAD))
        if kind is None:
            raise WrongUsage(f"'{path}' is neither a tar.gz, a tar nor a zip", hint="or give a directory")
        file.seek(0)
        yield file, os.fstat(file.fileno()).st_size, kind


def _kind(head: bytes) -> str | None:
    """What a file is by its first bytes, as the controller tells it."""
    if head[:2] == b"\x1f\x8b":
        return _TAR_GZ
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return _ZIP
    return _TAR if head[257:262] == b"ustar" else None


def pack(root: pathlib.Path, target: IO[bytes]) -> None:
    """Regular files and directories, sorted; what cannot be part of a template is named and refused."""
    entries = list(_walk(root))
    total = sum(found.st_size for _, _, found in entries if stat.S_ISREG(found.st_mode))
    with (
        Bar(f"packing {root}", total) as bar,
        tarfile.open(fileobj=target, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, path, found in entries:
            entry = tarfile.TarInfo(name)
            entry.mode = stat.S_IMODE(found.st_mode)
            if stat.S_ISDIR(found.st_mode):
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
                continue
            entry.size = found.st_size
            try:
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            except OSError as error:
                raise Failure(f"cannot read {path}: {error.strerror or error}") from error
            bar.add(found.st_size)


def _walk(root: pathlib.Path) -> Iterator[tuple[str, pathlib.Path, os.stat_result]]:
    for path in sorted(_beneath(root)):
        try:
            found = path.lstat()
        except OSError as error:
            raise Failure(f"cannot read {path}: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no plain file"
            raise Failure(f"{path} is {kind}", hint="a template holds plain files and directories only")
        yield path.relative_to(root).as_posix(), path, found


def _beneath(root: pathlib.Path) -> Iterator[pathlib.Path]:
    """Everything; a directory that cannot be read is a failure, for its files would be missing."""

    def refuse(error: OSError) -> None:
        raise Failure(f"cannot read {error.filename}: {error.strerror}") from error

    for place, directories, files in os.walk(root, onerror=refuse):
        yield from (pathlib.Path(place) / name for name in (*directories, *files))


def blocks(file: IO[bytes], bar: Bar) -> Iterator[bytes]:
    """The file piece by piece, with the bar moving."""
    while block := file.read(_BLOCK):
        yield block
        bar.add(len(block))
