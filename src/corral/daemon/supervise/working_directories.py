"""The directories workloads run in: `DATA/running/<id>`, one an instance.

A directory goes by being renamed first, in one step of the event loop, and deleted afterwards: so it
is either wholly there or wholly gone for whoever comes next under the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pathlib
import shutil
from typing import Any, Final

import structlog

from corral.daemon.supervise.users import WorkloadUser
from corral.errors import Code, Retryable
from corral.system.entropy import Entropy, new_id

_DISCARDED: Final = ".discarded"
_MODE: Final = 0o750
_OPEN_TO_PASS: Final = 0o711
_log = structlog.get_logger("corral.daemon.supervise")


class WorkingDirectories:
    """Makes and removes them. Methods that are not awaited are single renames and never block for long."""

    def __init__(self, data: pathlib.Path, *, entropy: Entropy) -> None:
        self._data = data
        self._root = data / "running"
        self._bin = data / _DISCARDED
        self._entropy = entropy

    def open(self) -> None:
        """Make the places. A root daemon lets other users pass through to theirs, and see nothing else."""
        for path in (self._root, self._bin):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.geteuid() != 0:
            return
        for path in self._data.iterdir():
            if not path.is_symlink() and path != self._root and (path.is_dir() or path.is_file()):
                with contextlib.suppress(FileNotFoundError):  # somebody's temporary file
                    path.chmod(0o700 if path.is_dir() else 0o600)
        for path in (self._data, self._root):
            path.chmod(_OPEN_TO_PASS)

    def path(self, instance_id: str) -> pathlib.Path:
        return self._root / instance_id

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self._root.iterdir() if entry.is_dir())

    def make(self, instance_id: str, user: WorkloadUser, *, empty: bool) -> pathlib.Path:
        """The directory, owned by its user; `empty`: whatever lay there is put away first."""
        path = self.path(instance_id)
        try:
            if empty:
                self._put_away(instance_id)
            path.mkdir(mode=_MODE, exist_ok=True)
            path.chmod(_MODE)  # the umask had its say in mkdir
            if os.geteuid() == 0:
                os.chown(path, user.uid, user.gid)
        except OSError as error:
            raise Retryable(
                Code.DISK_FULL if error.errno == errno.ENOSPC else Code.SPAWN_FAILED,
                f"the working directory {path} cannot be made: {error.strerror or error}",
                hint="make room on its disk and check its permissions",
            ) from error
        return path

    def discard(self, instance_id: str) -> bool:
        """Put the directory where `empty_bin` finds it; False when there is none, or when the disk
        refuses, which is said: it is tried again the next time."""
        try:
            return self._put_away(instance_id)
        except OSError as error:
            _log.warning("instances.directory_not_put_away", instance=instance_id, reason=str(error))
            return False

    def _put_away(self, instance_id: str) -> bool:
        path = self.path(instance_id)
        if not path.exists():
            return False
        path.rename(self._bin / new_id("gone", self._entropy))
        return True

    async def empty_bin(self) -> None:
        """Delete what was put away; what cannot be deleted is said and tried again the next time."""
        await asyncio.to_thread(self._delete_discarded)

    def _delete_discarded(self) -> None:
        for entry in list(self._bin.iterdir()):
            failed: list[str] = []

            def note(_: object, path: str, info: Any, failed: list[str] = failed) -> None:
                failed.append(f"{path}: {info[1]}")

            shutil.rmtree(entry, onerror=note)
            if failed:
                _log.warning("instances.directory_not_deleted", path=str(entry), reason=failed[0])
