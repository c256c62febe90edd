"""Files that get their name when they are whole."""

from __future__ import annotations

import contextlib
import os
import pathlib
import stat
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def part_file(target: str | os.PathLike[str], *, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """What to write to. A regular file, also behind symbolic links, is replaced when all of it is there, and keeps its owner and
    mode; a new one has `mode`, less the umask; after a failure nothing is left of it. A device or a pipe is written as the bytes
    come. OSError."""
    path = pathlib.Path(os.path.realpath(target))
    former = _status(target)
    if former is None or (stat.S_ISREG(former.st_mode) and _is_at(path, former)):
        with _replaced(path, former, mode=mode) as file:
            yield file
    else:
        with open(os.open(target, os.O_WRONLY | os.O_NOCTTY), "wb") as file:  # noqa: PTH123 - of a descriptor
            yield file


@contextlib.contextmanager
def _replaced(path: pathlib.Path, former: os.stat_result | None, *, mode: int) -> Iterator[IO[bytes]]:
    """A new file beside `path` that takes its place in the end, and the owner and the mode of the former one."""
    aside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(aside, flags, mode if former is None else 0o600)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - of a descriptor
            if former is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(descriptor, former.st_uid, former.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(former.st_mode) & 0o777)
            yield file
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _status(target: str | os.PathLike[str]) -> os.stat_result | None:
    try:
        return os.stat(target)  # noqa: PTH116 - of the text as it was given
    except FileNotFoundError:
        return None


def _is_at(path: pathlib.Path, found: os.stat_result) -> bool:
    """Whether it has this name: what /dev/stdout leads to need not have any."""
    there = _status(path)
    return there is not None and os.path.samestat(there, found)
