"""The ids of the last commands of a run, in a file of its directory: each command is executed at most once.

The id is written before the line is, and marked when the line is in the run's input. A daemon that is killed in
between leaves an id without the mark: whether the line arrived is unknown then, and it is not written again.

    header: name (8 bytes), first number (8), digest of the boot id (16)
    a slot: number (8), fate (1), seven zeros, digest of the command's id (16)

Numbers grow by one; number n lies in slot n modulo 1,000. A slot is replaced by one write within a page, so
that it is whole whenever the daemon is killed. Nothing is flushed: what this is lost with, the end of the host, is
the end of the run as well. Its blocks are taken with the run's directory, so that a full disk refuses no command.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import os
import pathlib
import struct
from typing import Final, NamedTuple

import structlog

from corral.errors import Code, Rejected, Retryable

REMEMBERED: Final = 1000
ID_MAX: Final = 128
FILE: Final = "commands"

_NAME: Final = b"corcmds1"
_HEADER: Final = struct.Struct("<8sQ16s")
_SLOT: Final = struct.Struct("<QB7x16s")
_KEY: Final = 16
"""Where in a slot the digest is."""
_NUMBERS: Final = struct.Struct("<" + "Q24x" * REMEMBERED)
_SIZE: Final = _HEADER.size + REMEMBERED * _SLOT.size
_FLAGS: Final = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
_log = structlog.get_logger("corral.daemon.runs")


class Fate(enum.IntEnum):
    """The known progress of a command with an id. Numbers of the file's format."""

    WITHDRAWN = 0
    """Nothing of it was written."""
    BEGUN = 1
    """The command may have been written."""
    ARRIVED = 2


_FATES: Final = frozenset(Fate)


class Known(NamedTuple):
    """The file's entry for an id. `certain`: an id that it does not hold was never written there."""

    fate: Fate
    certain: bool


class CommandIds:
    """Of one run. Calls block for a moment, and come one after the other."""

    def __init__(self, directory: pathlib.Path, *, boot_id: str) -> None:
        self._path = directory / FILE
        self._boot = _digest(boot_id)

    def make(self) -> None:
        """With the run's directory, before any command. A disk that has no room for it now is asked again by the
        first command with an id."""
        try:
            os.close(self._create(first=1))
        except OSError as error:
            _log.warning("command_ids_write.failed", file=str(self._path), reason=str(error))

    def find(self, id: str) -> Known:
        """The fate of this command. Retryable when the file cannot be read."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return Known(Fate.WITHDRAWN, certain=False)
        except OSError as error:
            raise _refused(self._path, error) from error
        found = _find(content, _digest(id))
        if found is not None:
            return Known(found[1], certain=True)
        first, boot = _header(content)
        whole = first > 0 and _following(content) <= REMEMBERED + 1
        return Known(Fate.WITHDRAWN, certain=whole and boot == self._boot)

    def begin(self, id: str) -> int:
        """Write the id down, before the line is written; the place it has. Retryable when the disk refuses."""
        try:
            descriptor = self._open()
            try:
                content = os.read(descriptor, _SIZE)
                place, number = _place(content, _digest(id))
                os.pwrite(descriptor, _SLOT.pack(number, Fate.BEGUN, _digest(id)), place)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise _refused(self._path, error) from error
        return place

    def settle(self, place: int, fate: Fate) -> None:
        """Store the fate of a command. A disk that refuses leaves it in doubt."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, _FLAGS)
            try:
                os.pwrite(descriptor, bytes([fate]), place + 8)
            finally:
                os.close(descriptor)

    def _open(self) -> int:
        try:
            descriptor = os.open(self._path, _FLAGS)
        except FileNotFoundError:
            return self._create(first=REMEMBERED + 2)  # there may have been others before
        if _header(os.pread(descriptor, _HEADER.size, 0))[0] > 0:
            return descriptor
        os.close(descriptor)
        return self._create(first=REMEMBERED + 2)

    def _create(self, *, first: int) -> int:
        descriptor = os.open(self._path, _FLAGS | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, _SIZE)
            os.pwrite(descriptor, _HEADER.pack(_NAME, first, self._boot), 0)
        except OSError:
            os.close(descriptor)
            self._path.unlink(missing_ok=True)
            raise
        return descriptor


def check_id(id: str) -> None:
    """INVALID_FIELD for what is no id of a command."""
    if len(id) > ID_MAX or not id.isascii() or not id.isprintable():
        raise Rejected(
            Code.INVALID_FIELD,
            f"'command_id' is at most {ID_MAX} visible ASCII characters",
            field="command_id",
        )


def may_have_arrived(instance_id: str) -> Rejected:
    return Rejected(
        Code.MAY_HAVE_ARRIVED,
        f"the line may have arrived at instance '{instance_id}': an attempt to send it was interrupted",
        hint="it is not sent again; look at the console, and send it anew if it did not arrive",
    )


def _header(content: bytes) -> tuple[int, bytes]:
    """The first number and the boot; zero for a file that is none of ours, or was never finished."""
    if len(content) < _HEADER.size:
        return 0, b""
    name, first, boot = _HEADER.unpack_from(content)
    return (first, boot) if name == _NAME else (0, b"")


def _find(content: bytes, key: bytes) -> tuple[int, Fate] | None:
    """The place of an id, and its fate. One that this version does not know is in doubt."""
    at = content.find(key, _HEADER.size)
    while at >= 0:
        place = at - _KEY
        if (place - _HEADER.size) % _SLOT.size == 0 and place + _SLOT.size <= _SIZE:
            number, fate, _ = _SLOT.unpack_from(content, place)
            if number:
                return place, Fate(fate) if fate in _FATES else Fate.BEGUN
        at = content.find(key, at + 1)
    return None


def _following(content: bytes) -> int:
    """The next number."""
    slots = content[_HEADER.size : _SIZE].ljust(_NUMBERS.size, b"\0")
    numbers: tuple[int, ...] = _NUMBERS.unpack(slots)
    return max(_header(content)[0], 1 + max(numbers))


def _place(content: bytes, key: bytes) -> tuple[int, int]:
    """Where an id goes, and under which number: its own place, if it has one, else that of the oldest."""
    found = _find(content, key)
    if found is not None:
        return found[0], _SLOT.unpack_from(content, found[0])[0]
    following = _following(content)
    return _HEADER.size + (following % REMEMBERED) * _SLOT.size, following


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _refused(path: pathlib.Path, error: OSError) -> Retryable:
    return Retryable(
        Code.DISK_FULL,
        f"{path} cannot be written: {error.strerror or error}",
        hint="nothing was sent; make room on the node's disk and check its permissions",
    )
