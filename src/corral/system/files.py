"""Files of the service itself: written whole or not at all, marked with a format and version, locked by one owner; and
digests of files of any size.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import pathlib
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from corral.errors import Code, Rejected
from corral.system.threads import check_cancelled

V = TypeVar("V", bound=msgspec.Struct)


def atomic_write(path: pathlib.Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file so that a crash leaves the old or the new content, durably."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            os.fchmod(descriptor, mode)
            write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_all(descriptor: int, content: bytes) -> None:
    """Write all of it at the position of an open file, in as few system calls as there can be."""
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


def make_directory(path: pathlib.Path) -> None:
    """Make a data directory, for us alone; fine when it exists."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise Rejected(
            Code.INVALID_CONFIG,
            f"the directory {path} cannot be made: {error.strerror}",
            hint="choose another with --data, or make it writable for this user",
            field="data",
        ) from error


def sync_directory(path: pathlib.Path) -> None:
    """Make renames and unlinks in this directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_format(found: Any, *, path: pathlib.Path, name: str, version: int) -> None:
    """Refuse a file of another kind, or one that a newer Corral wrote."""
    if not isinstance(found, dict) or found.get("format") != name:
        raise Rejected(
            Code.FORMAT_INVALID,
            f"{path} is not a '{name}' file",
            hint="restore it from a backup, or move it away",
        )
    if not isinstance(found.get("version"), int) or found["version"] > version:
        raise Rejected(
            Code.FORMAT_TOO_NEW,
            f"{path} has format version {found.get('version')}, this Corral reads up to {version}",
            hint="run the version of Corral that wrote it, or a newer one",
        )


def write_versioned(path: pathlib.Path, value: msgspec.Struct, *, name: str, version: int) -> None:
    """Write a value as JSON under a format name and version; mode 0600, atomic and durable."""
    atomic_write(path, _versioned(value, name, version))


def replace_versioned(path: pathlib.Path, value: msgspec.Struct, *, name: str, version: int) -> None:
    """Like `write_versioned`, atomic and not durable: for content that need not survive a crash of the host."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(_versioned(value, name, version))
    temporary.replace(path)


def allocate(path: pathlib.Path, size: int) -> None:
    """Reserve disk space for a file before its content is written. OSError when there is none."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(descriptor)


def write_allocated(
    room: pathlib.Path, path: pathlib.Path, value: msgspec.Struct, *, name: str, version: int
) -> None:
    """Like `write_versioned`, into the space that `allocate` reserved: it needs no more. FileNotFoundError
    without it."""
    content = _versioned(value, name, version)
    descriptor = os.open(room, os.O_WRONLY | os.O_CLOEXEC)
    try:
        written = 0
        while written < len(content):
            written += os.pwrite(descriptor, content[written:], written)
        os.ftruncate(descriptor, len(content))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    room.replace(path)
    sync_directory(path.parent)


def _versioned(value: msgspec.Struct, name: str, version: int) -> bytes:
    document = {"format": name, "version": version, "value": value}
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def read_versioned(path: pathlib.Path, type: type[V], *, name: str, version: int) -> V | None:
    """Read what `write_versioned` wrote; None when there is no such file."""
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        document = msgspec.json.decode(raw)
        check_format(document, path=path, name=name, version=version)
        return msgspec.convert(document.get("value"), type)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Rejected(
            Code.FORMAT_INVALID,
            f"{path} is damaged: {error}",
            hint="restore it from a backup, or move it away",
        ) from error


class DirectoryLock:
    """An exclusive lock on a data directory, held for life and released by the kernel at the latest."""

    def __init__(self, directory: pathlib.Path, role: str) -> None:
        self._path = directory / f"{role}.lock"
        self._role = role
        self._descriptor = -1

    def acquire(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 32).decode(errors="replace").strip()
            os.close(descriptor)
            raise Rejected(
                Code.DATA_DIRECTORY_LOCKED,
                f"{self._path.parent} is in use by another {self._role} (pid {holder or 'unknown'})",
                hint="stop it first, or use another data directory",
            ) from None
        with contextlib.suppress(OSError):  # for people only: a full disk is no reason to have no lock
            # Overwritten, not truncated first: no other file can take its disk space.
            os.ftruncate(descriptor, os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0))
        self._descriptor = descriptor

    def release(self) -> None:
        if self._descriptor >= 0:
            # Closing alone would leave the lock with a child that has been forked and not yet executed.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


_STEP: Final = 1024 * 1024


def sha256_of(file: io.BufferedReader) -> hashlib._Hash:
    """SHA-256 of a file from its position to its end. Blocking; in `to_end` it stops between two steps after
    a cancellation."""
    hashed = hashlib.sha256()
    block = bytearray(_STEP)
    view = memoryview(block)
    while size := file.readinto(block):
        hashed.update(view[:size])
        check_cancelled()
    return hashed


def free_bytes(directory: pathlib.Path) -> int:
    """Bytes that an ordinary user may still write there: a workload does not run as root."""
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize
