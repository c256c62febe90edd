"""An archive that lies in a working directory, unpacked there while its workload may be changing it.

It is read through first, then unpacked aside, whole and within its bounds, and everything that could be in the way is looked for; only then is
the first file put in place. Everything here blocks.
"""

from __future__ import annotations

import functools
import os
import pathlib
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Final

import msgspec

from corral.archives.archive_reader import read_archive
from corral.archives.entries import ArchiveEntry
from corral.archives.limits import ArchiveLimits
from corral.archives.paths import DistinctPaths
from corral.archives.refusals import UNPACK_REFUSALS
from corral.daemon.node.disk_space import as_ours
from corral.daemon.orders.file_conditions import ANY_FILE, FileCondition
from corral.daemon.orders.instance_file_changes import make_directory
from corral.daemon.orders.instance_file_placing import check_depth, no_file, place_file
from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.working_directories import staging_beside
from corral.domain.file_paths import LEVELS, PATH_MAX, check_path
from corral.errors import Code, CorralError, Rejected
from corral.system.trees.entries import entry_at, open_beneath, open_tree
from corral.system.trees.removal import remove

_ENTRY_BYTES: Final = 2048
"""What a tar may have beside the content of each entry."""
_EXECUTABLE: Final = 0o111


class UnpackBounds(msgspec.Struct, frozen=True, kw_only=True):
    size: int
    entries: int
    room: Callable[[int], None]
    """Called with the bytes that are about to be written; raises DISK_FULL."""


def unpack(
    root: pathlib.Path, path: str, target: str, *, replace: bool, bounds: UnpackBounds, abort: Abort
) -> int:
    """Unpack an archive that lies in the tree; returns how many files and directories it had. ALREADY_EXISTS unless
    `replace`; ARCHIVE_INVALID, ARCHIVE_TOO_LARGE, PATH_REFUSED, DISK_FULL, FileNotFoundError; OSError. Then nothing was
    unpacked, or the refusal says how much was."""
    check_path(path, field="path")
    if target:
        check_path(target, field="to")
    aside = staging_beside(root) / f".corral-unpack-{secrets.token_hex(8)}"
    aside.mkdir(mode=0o700)
    placed = 0
    try:
        unpacking = _Unpacking(aside, bounds, abort)
        with open_tree(root) as top, open_beneath(top, path) as archive:
            unpacking.read(archive)
            unpacking.require_room(top, target, replace=replace)
        for place in unpacking.places(root, target, replace=replace):
            abort.check()
            place()
            placed += 1
    except (CorralError, OSError) as error:
        if placed:
            raise _partly(path, error, placed, unpacking.count) from error
        raise
    finally:
        remove(aside)
    return unpacking.count


def _partly(path: str, error: CorralError | OSError, placed: int, count: int) -> CorralError:
    """A failure after some of the archive has got its place: with the code of what is neither done nor undone."""
    ours = error
    if isinstance(ours, OSError):
        ours = as_ours(ours, doing=f"unpack '{path}'", otherwise=Code.FILE_UNREADABLE)
    return Rejected(
        Code.MAY_HAVE_ARRIVED,
        f"{ours.message}; {placed} of {count} files and directories of '{path}' were unpacked before",
        hint="those stay; remove what is in the way and unpack it again, with 'replace' (--replace)",
    )


class _Unpacking:
    """An archive that is unpacked into a directory of ours."""

    def __init__(self, aside: pathlib.Path, bounds: UnpackBounds, abort: Abort) -> None:
        self._aside = aside
        self._bounds = bounds
        self._abort = abort
        self.modes: dict[str, int] = {}
        """Of the files, by their paths."""
        self.directories: list[str] = []

    def read(self, archive: int) -> None:
        bounds = self._bounds
        limits = ArchiveLimits(
            max_bytes=bounds.size,
            max_entries=bounds.entries,
            max_stream_bytes=bounds.size + bounds.entries * _ENTRY_BYTES,
            max_name_bytes=PATH_MAX,
            max_depth=LEVELS,
        )
        with os.fdopen(os.dup(archive), "rb") as file:
            for _ in self._entries(file, limits):
                pass  # what is refused at its end is refused before the first file is made
            written = 0
            for path, entry, blocks in self._entries(file, limits):
                if entry.directory:
                    (self._aside / path).mkdir(mode=0o700, parents=True, exist_ok=True)
                    self.directories.append(path)
                    continue
                self.modes[path] = 0o755 if entry.mode & _EXECUTABLE else 0o644
                place = self._aside / path
                place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                with place.open("xb") as target:
                    for block in blocks:
                        self._abort.check()
                        written += len(block)
                        if written > bounds.size:
                            raise UNPACK_REFUSALS.too_many_bytes(limits)
                        bounds.room(len(block))
                        target.write(block)

    def _entries(
        self, file: IO[bytes], limits: ArchiveLimits
    ) -> Iterator[tuple[str, ArchiveEntry, Iterable[bytes]]]:
        """The entries of the archive with their paths, each checked."""
        paths = DistinctPaths(limits=limits, refusals=UNPACK_REFUSALS)
        for entry, blocks in read_archive(
            file, limits=limits, refusals=UNPACK_REFUSALS, check=self._abort.check
        ):
            self._abort.check()
            name = entry.name.removeprefix("./").removesuffix("/")
            if name and name != ".":
                yield paths.add(f"{name}/" if entry.directory else name), entry, blocks

    @property
    def count(self) -> int:
        return len(self.modes) + len(self.directories)

    def require_room(self, top: int, target: str, *, replace: bool) -> None:
        """ALREADY_EXISTS or PATH_REFUSED when something is in the way of any entry."""
        for directory in self._needed(target):
            check_depth(directory)
            found = entry_at(top, directory)
            if found is not None and not stat.S_ISDIR(found.st_mode):
                raise Rejected(
                    Code.PATH_REFUSED,
                    f"'{directory}' is a link or no directory",
                    hint="nothing was unpacked; unpack it elsewhere, or remove what is there",
                    field="to",
                )
        for file in self.modes:
            found = entry_at(top, _below(target, file))
            if found is not None and not replace:
                raise Rejected(
                    Code.ALREADY_EXISTS,
                    f"'{_below(target, file)}' is there already",
                    hint="nothing was unpacked; unpack it elsewhere, or with 'replace' (--replace)",
                    field="to",
                )
            if found is not None and not stat.S_ISREG(found.st_mode):
                raise no_file(_below(target, file), is_directory=stat.S_ISDIR(found.st_mode))

    def _needed(self, target: str) -> set[str]:
        """All directories that its entries lie in."""
        needed: set[str] = set()
        for path in (
            *(f"{_below(target, each)}/" for each in self.directories),
            *(_below(target, each) for each in self.modes),
        ):
            above = path.rpartition("/")[0]
            while above and above not in needed:
                needed.add(above)
                above = above.rpartition("/")[0]
        return needed

    def places(self, root: pathlib.Path, target: str, *, replace: bool) -> Iterator[Callable[[], object]]:
        """What puts each entry in place, one after another."""
        condition = ANY_FILE if replace else FileCondition(absent=True)

        def place(file: str) -> None:
            place_file(
                root,
                _below(target, file),
                self._aside / file,
                "",
                condition=condition,
                abort=self._abort,
                durable=False,
                new_mode=self.modes[file],
            )

        for directory in self.directories:
            yield functools.partial(make_directory, root, _below(target, directory))
        for file in self.modes:
            yield functools.partial(place, file)


def _below(target: str, path: str) -> str:
    return f"{target}/{path}" if target else path
