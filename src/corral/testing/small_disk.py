"""A small disk for one test, which can be filled."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
from collections.abc import Iterator

import pytest

_LIBC = ctypes.CDLL(None, use_errno=True)
_DETACH = 2


@contextlib.contextmanager
def small_disk(path: pathlib.Path, *, size: str) -> Iterator[pathlib.Path]:
    """A file system of this size (`256k`, `2m`), mounted at this new directory, and unmounted afterwards.
    Skips the test where that is not allowed: only root may mount."""
    path.mkdir()
    if _LIBC.mount(b"tmpfs", bytes(path), b"tmpfs", 0, f"size={size}".encode()):
        pytest.skip(f"no small disk to be had: {os.strerror(ctypes.get_errno())}")
    try:
        yield path
    finally:
        assert _LIBC.umount2(bytes(path), _DETACH) == 0
