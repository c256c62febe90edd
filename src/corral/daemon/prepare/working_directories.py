"""Working directories: `DATA/running/<id>`, and `DATA/static/<id>` for static instances, which keep theirs.

A directory is built in `.staging` beside its place and put there in one rename; to remove it, it is renamed first and
deleted afterwards. So for the next start under the same id it is either complete or gone. The daemon never removes a
static directory; `was_static` finds those that earlier versions kept elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import pathlib
from typing import Final

import msgspec
import structlog

from corral.daemon.node.data_directory import AUTHORITY_FILE
from corral.daemon.prepare.interrupted_changes import settle_interrupted
from corral.daemon.prepare.static_owners import own_static
from corral.daemon.prepare.static_seeds import Seed
from corral.daemon.prepare.static_trees import write_seed
from corral.daemon.workload.workload_users import WorkloadUser
from corral.domain.ids import RESTARTS_PER_START
from corral.errors import Code, Retryable
from corral.system.aio.keyed_locks import KeyedLocks
from corral.system.entropy import Entropy, new_id
from corral.system.trees.entries import open_tree
from corral.system.trees.removal import remove

STAGING: Final = ".staging"
WARM: Final = ".warm"
_DISCARDED: Final = ".discarded"
_MODE: Final = 0o750
_OPEN_TO_PASS: Final = 0o711
_MOST_WORLDS: Final = 256
_log = structlog.get_logger("corral.daemon.prepare")


def staging_beside(directory: pathlib.Path) -> pathlib.Path:
    """The directory in which parts of a working directory are built; a daemon that starts empties it. OSError when the
    disk refuses."""
    place = directory.parent / STAGING
    place.mkdir(mode=0o700, exist_ok=True)
    return place


class WorkingDirectories:
    """Makes and removes them. Methods that are not awaited are single renames and never block for long."""

    def __init__(self, data: pathlib.Path, *, entropy: Entropy) -> None:
        self._data = data
        self.running = data / "running"
        self.static = data / "static"
        self._bin = data / _DISCARDED
        self._entropy = entropy
        self.writers: Final = KeyedLocks[str]()
        """By instance: held while a file in its directory is compared and changed, so that writers of ours take turns."""
        self._holders: dict[str, int] = {}
        """The owner of each directory that was made or found in use: its start, because restarts keep the directory."""

    def open(self) -> None:
        """Create the parent directories, and remove what a previous daemon was building. With a daemon of root, other
        users may pass through to their own directories and to the certificate of the authority, and see nothing else."""
        for path in (self.running, self.static, self._bin, self._data / "secrets"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.drop(self.running / WARM)
        for place in (self.running, self.static):
            self._empty_staging(place)
        if os.geteuid() != 0:
            return
        shared, readable = (self.running, self.static), self._data / AUTHORITY_FILE
        for path in self._data.iterdir():
            if (
                not path.is_symlink()
                and path not in (*shared, readable)
                and (path.is_dir() or path.is_file())
            ):
                with contextlib.suppress(FileNotFoundError):  # a temporary file of another process
                    path.chmod(0o700 if path.is_dir() else 0o600)
        for path in (self._data, *shared):
            path.chmod(_OPEN_TO_PASS)

    def _empty_staging(self, place: pathlib.Path) -> None:
        """After the changes of files that were interrupted; what still belongs to a workload stays for the next start."""
        staging = place / STAGING
        if not (needed := settle_interrupted(place, staging)):
            self.drop(staging)
            return
        for path in staging.iterdir():
            if path.name not in needed:
                self.drop(path)

    def path(self, instance_id: str, *, static: bool = False) -> pathlib.Path:
        """The working directory of an instance. A static one of an earlier version may still be in `running`."""
        if static and ((self.static / instance_id).exists() or not (self.running / instance_id).exists()):
            return self.static / instance_id
        return self.running / instance_id

    def present(self, instance_id: str) -> bool:
        """Whether the instance has anything here, be it a link to a disk that is not mounted."""
        return any(os.path.lexists(place / instance_id) for place in (self.running, self.static))

    def worlds(self) -> list[str]:
        """The ids whose static directories are here, sorted, a part of them if there are very many. Blocks for a
        moment."""
        try:
            names = [entry.name for entry in self.static.iterdir()]
        except OSError:
            return []
        return sorted(name for name in names if not name.startswith("."))[:_MOST_WORLDS]

    def make(self, instance_id: str, incarnation: int, user: WorkloadUser, *, empty: bool) -> pathlib.Path:
        """Make the directory, owned by its user; `empty`: an existing one is moved to the bin first, else it is
        kept."""
        path = self.running / instance_id
        try:
            if empty:
                self._put_away(instance_id)
            path.mkdir(mode=_MODE, exist_ok=True)
            give(path, user)
        except OSError as error:
            raise Retryable(
                Code.DISK_FULL if error.errno == errno.ENOSPC else Code.SPAWN_FAILED,
                f"the working directory {path} cannot be made: {error.strerror or error}",
                hint="make room on its disk and check its permissions",
            ) from error
        self.hold(instance_id, incarnation)
        return path

    def make_world(self, instance_id: str) -> None:
        """An empty static directory for an instance that has not been started, which then gets it as it is. OSError."""
        (self.static / instance_id).mkdir(mode=_MODE, exist_ok=True)

    def make_static(self, instance_id: str, user: WorkloadUser, run_directory: pathlib.Path) -> pathlib.Path:
        """Make a static directory, without any file of ours in it. Blocks for a moment."""
        self.take_over(instance_id, run_directory)
        path = self.static / instance_id
        if not os.path.lexists(path):
            write_seed(path, Seed(files={}))  # files that templates have later count as new
        try:
            path.mkdir(mode=_MODE)
        except FileExistsError:
            if (owner := owner_of(user)) is not None:
                own_static(path, owner)
        give(path, user)
        return path

    def take_over(self, instance_id: str, run_directory: pathlib.Path) -> None:
        """Move a static directory of an earlier version, which kept it in `running`, in one rename. A directory there
        of a run that was not static is removed."""
        former, path = self.running / instance_id, self.static / instance_id
        if not former.exists():
            return
        if not was_static(run_directory):
            self._put_away(instance_id)
        elif not path.exists():
            former.rename(path)
            _log.info("static_directory.moved", instance=instance_id, to=str(path))

    def staging(self, run: str, *, static: bool) -> pathlib.Path:
        """The path at which this run's directory is built; nothing is there yet. OSError when the disk refuses."""
        place = staging_beside((self.static if static else self.running) / run) / run
        self.drop(place)
        return place

    def place(self, staged: pathlib.Path, instance_id: str, incarnation: int) -> pathlib.Path:
        """Make the staged directory the instance's, replacing an existing one."""
        self._put_away(instance_id)
        path = self.running / instance_id
        staged.rename(path)
        self.hold(instance_id, incarnation)
        return path

    def hold(self, instance_id: str, incarnation: int) -> None:
        """Record that this run uses the directory of its id from now on."""
        self._holders[instance_id] = incarnation // RESTARTS_PER_START

    def discard(self, instance_id: str, incarnation: int) -> bool:
        """Move the directory of this run to the bin, for `empty_bin`. False when there is none, when it belongs to a
        later start by now, or when the disk refuses: that is logged, and retried the next time."""
        start = incarnation // RESTARTS_PER_START
        if self._holders.get(instance_id, start) > start:
            return False
        try:
            gone = self._put_away(instance_id)
        except OSError as error:
            _log.warning("directory_move.failed", instance=instance_id, reason=str(error))
            return False
        self._holders.pop(instance_id, None)
        return gone

    def drop(self, path: pathlib.Path) -> None:
        """Remove a directory that was being built, or is no longer needed, in one rename. One that cannot be moved is
        deleted in place, however long that takes."""
        try:
            self._move_away(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("directory_move.failed", path=str(path), reason=str(error))
            remove(path)

    def _put_away(self, instance_id: str) -> bool:
        path = self.running / instance_id
        if not path.exists():
            return False
        self._move_away(path)
        return True

    def _move_away(self, path: pathlib.Path) -> None:
        """Move to the bin, or to a bin on its own disk where that is another."""
        try:
            path.rename(self._unused(self._bin))
        except OSError as error:
            place = next((each for each in (self.running, self.static) if path.is_relative_to(each)), None)
            if error.errno != errno.EXDEV or place is None:
                raise
            beside = place / _DISCARDED
            beside.mkdir(mode=0o700, exist_ok=True)
            path.rename(self._unused(beside))

    async def empty_bin(self) -> None:
        """Delete the content of the bin; failures are logged and retried the next time."""
        await asyncio.to_thread(self._delete_discarded)

    def _delete_discarded(self) -> None:
        for bin in (self._bin, self.running / _DISCARDED, self.static / _DISCARDED):
            for entry in list(bin.iterdir()) if bin.is_dir() else ():
                if reason := remove(entry):
                    _log.warning("directory_removal.failed", path=str(entry), reason=reason)

    def _unused(self, bin: pathlib.Path) -> pathlib.Path:
        """An unused name in the bin."""
        return bin / new_id("gone", self._entropy)


def give(path: pathlib.Path, user: WorkloadUser) -> None:
    """Give a directory to the user whose workload runs in it."""
    with open_tree(path) as directory:
        os.fchmod(directory, _MODE)  # mkdir applied the umask
        if os.geteuid() == 0:
            os.fchown(directory, user.uid, user.gid)


def owner_of(user: WorkloadUser) -> tuple[int, int] | None:
    """The owner of new files; None: the daemon, which is the workload's user as well."""
    return (user.uid, user.gid) if os.geteuid() == 0 else None


def was_static(run_directory: pathlib.Path) -> bool:
    """Whether the newest earlier run of the same instance was static. Without such a run, or without a readable file of
    it, the answer is unknown, and a directory that is not known to be disposable is kept. (A directory that is not
    static is removed with the last run of its instance at the latest.)"""
    before = [
        entry
        for entry in run_directory.parent.iterdir()
        if entry.name.isdecimal() and int(entry.name) < int(run_directory.name)
    ]
    if before:
        newest = max(before, key=lambda entry: int(entry.name))
        with contextlib.suppress(OSError, msgspec.MsgspecError, KeyError, TypeError, AttributeError):
            document = msgspec.json.decode((newest / "intent.json").read_bytes())
            return bool(document["value"]["order"].get("static"))
    return True
