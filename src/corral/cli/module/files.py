"""Module archives and sources on this machine, with refusals as the command line shows them."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from corral.cli.failure import Refused, WrongUsage
from corral.errors import CorralError

if TYPE_CHECKING:
    from corral.modules.archive.archive_builder import Built
    from corral.modules.archive.archive_reader import ArchiveFacts

LARGEST: Final = 1 << 40
"""Of an archive that is only looked at here; the controller has a limit of its own."""


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """What the engine refuses, a command refuses."""
    try:
        yield
    except CorralError as error:
        raise Refused(
            error.message, hint=error.hint, code=error.code.name, status=error.code.status
        ) from error
    except OSError as error:
        raise WrongUsage(f"cannot use {error.filename}: {error.strerror}") from error


def inspect(path: pathlib.Path) -> ArchiveFacts:
    """The archive as a host would read it. `Refused` when it is none."""
    from corral.modules.archive.archive_reader import inspect_archive

    if not path.is_file():
        raise WrongUsage(f"there is no file {path}")
    with refusals():
        return inspect_archive(path, max_bytes=LARGEST)


def check_sources_of(path: pathlib.Path, facts: ArchiveFacts) -> None:
    """`Refused` for sources of an inspected archive that Python cannot read, or that lack its class."""
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
