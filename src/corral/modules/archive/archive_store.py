"""Archive store: archives of modules on this host, by digest, and their unpacked trees.

It is a copy of what the store holds, and can be rebuilt from there. Contents are verified whenever they are
used, so a crash or a bad disk costs time, never a wrong module. A tree is compared with the archive itself,
whose digest was just checked: there is no separate checksum file to trust.

Other users may enter the directories, but not list them, and read trees, but not archives: modules may run as
one of them (`modules.run_as`).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO, Final

from corral.archives.refusals import MODULE_REFUSALS
from corral.errors import Code, CorralError, Rejected, Retryable
from corral.modules.archive.archive_reader import ArchiveFile, digest, has_digest, read_files
from corral.modules.archive.unpacked_tree import is_intact, unpack
from corral.signing import SIDECAR_SUFFIXES, SidecarKind
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.files import atomic_write, make_directory, sync_directory
from corral.system.threads import check_cancelled, to_end
from corral.system.trees.removal import remove_tree

_PART: Final = ".part-"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_STEP: Final = 1024 * 1024
_DIRECTORY_MODE: Final = 0o711
_ARCHIVE_MODE: Final = 0o400


class ArchiveStore:
    """`DIRECTORY/SHA.zip`, its signature beside it, and `DIRECTORY/unpacked/SHA/`. One owner at a time; calls
    for the same digest are serialised."""

    def __init__(self, directory: Path, *, max_bytes: int) -> None:
        self._directory = directory
        self._trees = directory / "unpacked"
        self._max_bytes = max_bytes
        self._files: dict[str, tuple[ArchiveFile, ...]] = {}
        """Contents of archives that were read before; a digest always has the same content."""
        self._turns = KeyedLocks[str]()
        self._opening = asyncio.Lock()
        self._open = False

    def path(self, sha256: str) -> Path:
        """Path of the archive, if it is stored."""
        return self._directory / f"{_checked(sha256)}.zip"

    def held(self) -> set[str]:
        """Digests of which anything is stored. Reads a directory."""
        names: list[str] = []
        for directory in (self._directory, self._trees):
            with contextlib.suppress(FileNotFoundError):
                names += [path.name for path in directory.iterdir()]
        return {name.partition(".")[0] for name in names if _SHA256.fullmatch(name.partition(".")[0])}

    async def put(self, source: AsyncIterator[bytes] | Path, *, expect: str) -> Path:
        """Store an archive durably; DIGEST_MISMATCH when it is not the expected one, and then nothing is
        stored. No effect when it is stored already."""
        path = self.path(expect)
        async with self._turn(expect):
            if await to_end(has_digest, path, expect):
                return path
            with disk_faults():
                part = await to_end(_new_part, self._directory)
                try:
                    found = await self._filled(part, source)
                    if found != expect:
                        raise _other_digest(expect, found)
                    await to_end(_keep, part, path)
                finally:
                    await to_end(_discard, part)
        return path

    async def take(self, archive: Path, *, expect: str) -> Path:
        """Store an archive that is on this host already, durably: it is moved, not copied, unless it is
        stored already. DIGEST_MISMATCH when it is not the expected one; it stays where it is then."""
        path = self.path(expect)
        async with self._turn(expect):
            with disk_faults():
                await to_end(self._take, archive, path, expect)
        return path

    async def put_sidecar(self, sha256: str, kind: SidecarKind, content: bytes) -> Path:
        """Store a signature beside its archive, in place of the present one."""
        archive = self.path(sha256)
        path = archive.with_name(archive.name + SIDECAR_SUFFIXES[kind])
        others = [archive.with_name(archive.name + suffix) for suffix in SIDECAR_SUFFIXES.values()]
        async with self._turn(sha256):
            with disk_faults():
                await to_end(atomic_write, path, content)
                await to_end(_unlink_all, [other for other in others if other != path])
        return path

    async def unpacked(self, sha256: str, *, verify: Callable[[Path], object] | None = None) -> Path:
        """The archive's tree, read-only and exactly as in the archive; made, or made again, when it is
        missing or damaged. NOT_FOUND without the archive, DIGEST_MISMATCH when that was changed. `verify` is
        called with the archive once its digest is verified, in the same thread, and before anything of it is
        read: what it raises is raised."""
        async with self._turn(sha256):
            with disk_faults():
                return await to_end(self._ensure_tree, sha256, verify)

    async def forget(self, sha256: str) -> None:
        """Remove the archive, its signature and its tree; no effect when there is none."""
        async with self._turn(sha256):
            with disk_faults():
                await to_end(self._remove, sha256)

    @contextlib.asynccontextmanager
    async def _turn(self, sha256: str) -> AsyncIterator[None]:
        async with self._opening:
            if not self._open:
                with disk_faults():
                    await to_end(self._prepare)
                self._open = True
        async with self._turns.hold(_checked(sha256)):
            yield

    def _prepare(self) -> None:
        """Create the directories, and remove what an interrupted run left."""
        for directory in (self._directory, self._trees):
            make_directory(directory)
            directory.chmod(_DIRECTORY_MODE)
            for path in list(directory.iterdir()):
                if path.name.startswith(_PART):
                    remove_tree(path)

    async def _filled(self, part: Path, source: AsyncIterator[bytes] | Path) -> str:
        if isinstance(source, Path):
            return await to_end(_copied, source, part, self._max_bytes)
        hashed, size = hashlib.sha256(), 0
        file = await to_end(part.open, "wb")
        try:
            async for block in source:
                size += len(block)
                if size > self._max_bytes:
                    raise MODULE_REFUSALS.too_large(
                        "the module's archive is too large", f"{self._max_bytes} bytes"
                    )
                await to_end(_append, file, block, hashed)
        finally:
            await to_end(file.close)
        return hashed.hexdigest()

    def _take(self, archive: Path, path: Path, expect: str) -> None:
        if has_digest(path, expect):
            archive.unlink(missing_ok=True)
            return
        with archive.open("rb") as file:
            found = digest(file)
        if found != expect:
            raise _other_digest(expect, found)
        try:
            _keep(archive, path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            part = _new_part(self._directory)  # on another file system: copied beside its place first
            try:
                _copied(archive, part, self._max_bytes)
                _keep(part, path)
            finally:
                _discard(part)
            archive.unlink(missing_ok=True)

    def _ensure_tree(self, sha256: str, verify: Callable[[Path], object] | None) -> Path:
        """Digest, contents and tree are of one open file, whatever replaces it meanwhile."""
        tree = self._trees / sha256
        try:
            file = self.path(sha256).open("rb")
        except FileNotFoundError:
            raise Rejected(
                Code.NOT_FOUND, f"the archive {sha256} is not on this host", hint="install the module again"
            ) from None
        with file:
            found = digest(file)
            if found != sha256:
                raise _other_digest(sha256, found)
            if verify is not None:
                verify(self.path(sha256))
            files = self._files.get(sha256)
            if files is None and tree.is_dir():
                files = read_files(file, max_bytes=self._max_bytes)
            if files is None or not is_intact(tree, files):
                files = self._make_tree(file, tree)
        self._files[sha256] = files
        return tree

    def _make_tree(self, archive: IO[bytes], tree: Path) -> tuple[ArchiveFile, ...]:
        """Make the tree beside its place, then move it there."""
        aside = Path(tempfile.mkdtemp(prefix=_PART, dir=self._trees))
        try:
            files = unpack(archive, aside / "new", max_bytes=self._max_bytes)
            if tree.is_symlink():
                tree.unlink()
            elif tree.exists():
                _move(tree, aside / "old")
            _move(aside / "new", tree)
        finally:
            remove_tree(aside)
        return files

    def _remove(self, sha256: str) -> None:
        archive, tree = self.path(sha256), self._trees / sha256
        self._files.pop(sha256, None)
        remove_tree(tree)
        archive.unlink(missing_ok=True)
        for suffix in SIDECAR_SUFFIXES.values():
            archive.with_name(archive.name + suffix).unlink(missing_ok=True)
        sync_directory(self._directory)


def _checked(sha256: str) -> str:
    if not _SHA256.fullmatch(sha256):
        raise Rejected(Code.INVALID_FIELD, f"{sha256[:80]!r} is not a SHA-256 digest", field="sha256")
    return sha256


def _move(source: Path, target: Path) -> None:
    """Move a directory. One without write permission cannot be moved: its `..` would change."""
    mode = source.stat().st_mode
    source.chmod(0o700)
    source.rename(target)
    target.chmod(mode & 0o7777)


def _new_part(directory: Path) -> Path:
    descriptor, name = tempfile.mkstemp(prefix=_PART, dir=directory)
    os.close(descriptor)
    return Path(name)


def _copied(source: Path, part: Path, max_bytes: int) -> str:
    hashed, size = hashlib.sha256(), 0
    with source.open("rb") as reading, part.open("wb") as writing:
        while block := reading.read(_STEP):
            check_cancelled()
            size += len(block)
            if size > max_bytes:
                raise MODULE_REFUSALS.too_large("the module's archive is too large", f"{max_bytes} bytes")
            _append(writing, block, hashed)
    return hashed.hexdigest()


def _append(file: IO[bytes], block: bytes, hashed: hashlib._Hash) -> None:
    file.write(block)
    hashed.update(block)


def _keep(part: Path, path: Path) -> None:
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.chmod(_ARCHIVE_MODE)
    part.replace(path)
    sync_directory(path.parent)


def _unlink_all(paths: list[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)


def _other_digest(expect: str, found: str) -> CorralError:
    return Rejected(
        Code.DIGEST_MISMATCH,
        f"the module's archive has the digest {found}, expected was {expect}",
        hint="nothing was kept; it was changed or cut on its way, send it again",
    )


@contextlib.contextmanager
def disk_faults() -> Iterator[None]:
    """Converts errors of the file system to ours: the disk is full, or unavailable."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise Retryable(
            Code.DISK_FULL if full else Code.STORAGE_UNAVAILABLE,
            f"the module's archive cannot be kept: {error.strerror or error}",
            hint="make room on the disk" if full else "check the data directory and its disk",
        ) from error
