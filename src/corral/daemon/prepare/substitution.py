"""Substitution of `%NAME%` in files. Byte for byte: text that is not a variable stays as it is, whatever its
encoding."""

from __future__ import annotations

import os
import pathlib
import secrets
import stat
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from corral.daemon.prepare.abort import Abort
from corral.daemon.prepare.file_copy import FileCopier
from corral.daemon.workload.variable_values import Values
from corral.domain.groups.variables import substitute_bytes
from corral.errors import Code, Rejected, short_list

_SHOWN: Final = 5
_MAX_BYTES: Final = 256 * 1024 * 1024


class MissingValues(msgspec.Struct, frozen=True):
    """A variable in a file that is not defined."""

    file: str
    line: int
    name: str

    def __str__(self) -> str:
        return f"%{self.name}% in {self.file}:{self.line}"


class Rendered(msgspec.Struct, frozen=True, kw_only=True):
    """Variables that were replaced in each file, as far as they may be recorded, and those that could not be."""

    files: dict[str, dict[str, str | None]] = {}
    """By path: the variables it has with the values they got; None: the variable is not defined."""
    secrets: dict[str, tuple[str, ...]] = {}
    """By path: the secrets it has."""
    missing: tuple[MissingValues, ...] = ()

    @property
    def hidden(self) -> frozenset[str]:
        """The files that have secrets."""
        return frozenset(self.secrets)


def substitute_files(
    root: pathlib.Path, paths: Iterable[str], values: Values, *, abort: Abort, owner: tuple[int, int] | None
) -> Rendered:
    """Substitute in these files below `root`, a tree that no other process writes to. Each is written to a temporary
    file and renamed: a file that is shared with others is never written to. Blocks."""
    files: dict[str, dict[str, str | None]] = {}
    hidden: dict[str, tuple[str, ...]] = {}
    missing: list[MissingValues] = []
    for path in paths:
        abort.check()
        place = root / path
        data, mode = _read(place, path)
        if data.count(b"%") < 2:
            continue
        result = substitute_bytes(data, values.all)
        missing += [MissingValues(path, found.line, found.name) for found in result.unresolved]
        names = _names_in(data, values.all)
        used = {**dict.fromkeys(found.name for found in result.unresolved), **values.shown(names)}
        if used:
            files[path] = used
        if secret := tuple(name for name in names if name in values.secret):
            hidden[path] = secret
        if result.data != data:
            _replace(place, result.data, mode, owner)
    return Rendered(files=files, secrets=hidden, missing=tuple(missing))


def _names_in(data: bytes, values: Mapping[str, str]) -> list[str]:
    return [name for name in values if f"%{name}%".encode() in data]


def _read(place: pathlib.Path, path: str) -> tuple[bytes, int]:
    """Content and mode of a file. In as few system calls as there can be: see `small_contents`."""
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if found.st_size > _MAX_BYTES:
            raise Rejected(
                Code.FILE_UNREADABLE,
                f"'{path}' is too large to replace variables in",
                hint="leave it out of 'substitute'",
                field="substitute",
            )
        blocks: list[bytes] = []
        left = found.st_size
        while left and (block := os.read(descriptor, left)):
            blocks.append(block)
            left -= len(block)
    finally:
        os.close(descriptor)
    return b"".join(blocks), stat.S_IMODE(found.st_mode)


def _replace(place: pathlib.Path, body: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    aside = place.with_name(
        f".{secrets.token_hex(6)}.corral"
    )  # its own name may have the maximal length already
    # Never an existing file: a template may have one of any name, and it may be linked into the cache.
    FileCopier(clone=False, link=False, owner=owner).write(body, str(aside), mode=mode)
    aside.replace(place)


def strictly(missing: Iterable[MissingValues]) -> None:
    """Raise VARIABLE_UNRESOLVED with file and line of the first few."""
    found = list(missing)
    if not found:
        return
    raise Rejected(
        Code.VARIABLE_UNRESOLVED,
        f"nobody defines {short_list(found, _SHOWN)}",
        hint="define it in the group, a template or the start, or turn strict_variables off",
        field="strict_variables",
    )
