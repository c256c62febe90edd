"""Durable small files of the daemon: written as a whole; a disk that refuses becomes an error of ours."""

from __future__ import annotations

import pathlib

import msgspec

from corral.errors import Code, Retryable
from corral.system.files import write_versioned


def store(path: pathlib.Path, value: msgspec.Struct, *, name: str, version: int) -> None:
    """Replace the file, durably. A full or failing disk is Retryable, and the old content stays."""
    try:
        write_versioned(path, value, name=name, version=version)
    except OSError as error:
        raise Retryable(
            Code.STORE_UNAVAILABLE,
            f"{path} cannot be written: {error.strerror or error}",
            hint="make room on its disk and check its permissions; it is tried again",
        ) from error
