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
from corral.cli.progress_line import Bar

_BLOCK: Final = 256 * 1024
_TAR: Final = "application/gzip"
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
            yield packed, size, _TAR
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
        start = file.read(4)
        if start[:2] != b"\x1f\x8b" and start != b"PK\x03\x04" and start != b"PK\x05\x06":
            raise WrongUsage(f"'{path}' is neither a tar.gz nor a zip", hint="or give a directory")
        file.seek(0)
        yield file, os.fstat(file.fileno()).st_size, _ZIP if start[:2] == b"PK" else _TAR


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
    for path in sorted(root.rglob("*")):
        try:
            found = path.lstat()
        except OSError as error:
            raise Failure(f"cannot read {path}: {error.strerror}") from error
        if not stat.S_ISDIR(found.st_mode) and not stat.S_ISREG(found.st_mode):
            kind = "a symbolic link" if stat.S_ISLNK(found.st_mode) else "no plain file"
            raise Failure(f"{path} is {kind}", hint="a template holds plain files and directories only")
        yield path.relative_to(root).as_posix(), path, found


def blocks(file: IO[bytes], bar: Bar) -> Iterator[bytes]:
    """The file piece by piece, with the bar moving."""
    while block := file.read(_BLOCK):
        yield block
        bar.add(len(block))
