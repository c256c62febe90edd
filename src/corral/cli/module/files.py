"""Archives, sources, keys and signatures of modules as files on this machine; errors become command failures."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from corral.cli.failure import CommandRefused, WrongUsage
from corral.errors import CorralError

if TYPE_CHECKING:
    from corral.modules.archive.archive_builder import Built
    from corral.modules.archive.archive_reader import ArchiveFacts


LARGEST: Final = 1 << 40
"""Of an archive that is only looked at here; the controller has a limit of its own."""


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Refusals of the engine, as refusals of the command."""
    try:
        yield
    except CorralError as error:
        raise CommandRefused(
            error.message, hint=error.hint, code=error.code.name, status=error.code.status
        ) from error
    except OSError as error:
        raise WrongUsage(f"cannot use {error.filename}: {error.strerror}") from error


def inspect(path: pathlib.Path) -> ArchiveFacts:
    """The archive as a host would read it. `CommandRefused` when it is none."""
    from corral.modules.archive.archive_reader import inspect_archive

    if not path.is_file():
        raise WrongUsage(f"there is no file {path}")
    with refusals():
        return inspect_archive(path, max_bytes=LARGEST)


def check_sources_of(path: pathlib.Path, facts: ArchiveFacts) -> None:
    """`CommandRefused` for sources of an inspected archive that Python cannot read, or that lack its class."""
    from corral.modules.archive.archive_reader import check_archive_sources

    with refusals():
        check_archive_sources(path, facts)


def build_source(source: pathlib.Path, out: pathlib.Path | None = None) -> Built:
    """The archive of a source directory, made reproducibly."""
    from corral.modules.archive.archive_builder import build_module

    if not source.is_dir():
        raise WrongUsage(f"there is no directory {source}")
    with refusals():
        return build_module(source, out)


def make_key(base: pathlib.Path) -> pathlib.Path:
    """`BASE.key` for the author alone and `BASE.pub` for operators; an existing key is never replaced."""
    from corral.signing import new_key

    if not base.name:
        raise WrongUsage(f"'{base}' is no name of a file", hint="write --new-key NAME")
    private, public = base.with_name(base.name + ".key"), base.with_name(base.name + ".pub")
    made = new_key()
    with refusals():
        try:
            descriptor = os.open(private, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise CommandRefused(f"{private} is there already", hint="choose another name") from None
        with os.fdopen(descriptor, "wb") as file:
            file.write(made.private_pem)
        public.write_bytes(made.public_pem)
    return private


def sign_archive(archive: pathlib.Path, key: pathlib.Path, passphrase: str | None) -> pathlib.Path:
    """Write the archive's `.sig` beside it."""
    from corral.signing import sign_keyed

    try:
        pem = key.read_bytes()
    except OSError as error:
        raise WrongUsage(f"cannot read {key}: {error.strerror}") from error
    with refusals():
        signature = sign_keyed(archive, pem, passphrase.encode() if passphrase else None)
        written = archive.with_name(archive.name + ".sig")
        written.write_bytes(signature)
    return written
