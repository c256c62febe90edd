"""Files that get their name when they are whole."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
from collections.abc import Iterator
from typing import IO


@contextlib.contextmanager
def part_file(target: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A new file beside `target` that takes its place in the end; after a failure nothing is left of it."""
    path = pathlib.Path(target)
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with aside.open("xb") as file:
            yield file
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
