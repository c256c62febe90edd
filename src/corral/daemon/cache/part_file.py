"""A download on its way: what is there of it, and its digest so far. Blocks; for worker threads."""

from __future__ import annotations

import hashlib
import os
import pathlib
from typing import IO, Any


class PartFile:
    """`target` with `.part` behind it. What an earlier attempt left is kept until it turns out wrong."""

    def __init__(self, target: pathlib.Path) -> None:
        self._target = target
        self._path = target.with_name(f"{target.name}.part")
        self._file: IO[bytes] | None = None
        self._hasher: Any = hashlib.sha256()
        self.size = 0

    def open(self) -> None:
        self._file = self._path.open("a+b")
        self._file.seek(0)
        self._hasher = hashlib.file_digest(self._file, "sha256")
        self.size = self._file.tell()

    def clear(self) -> None:
        assert self._file is not None
        self._file.truncate(0)
        self._file.seek(0)
        self._hasher, self.size = hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        assert self._file is not None
        self._file.write(data)
        self._hasher.update(data)
        self.size += len(data)

    @property
    def digest(self) -> str:
        return str(self._hasher.hexdigest())

    def finish(self) -> None:
        """It is whole and right: give it its name, durably as far as its content goes."""
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()
        self._path.replace(self._target)

    def discard(self) -> None:
        self.close()
        self._path.unlink(missing_ok=True)

    def close(self) -> None:
        """Keep it for the next attempt, unless there is nothing of it. Idempotent."""
        if self._file is not None:
            self._file.close()
            self._file = None
            if not self.size:
                self._path.unlink(missing_ok=True)
