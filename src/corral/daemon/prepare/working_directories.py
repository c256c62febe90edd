"""Working directories: `DATA/running/<id>`, and `DATA/static/<id>` for instances that keep theirs.

A directory is made aside, in `.staging` beside its place, and gets its name in one rename; it goes by being renamed
first and deleted afterwards. So for the next start under the same id it is either wholly there or wholly gone. A
static directory is never removed by us; `was_static` finds those that earlier versions kept elsewhere.
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

from corral.daemon.prepare.static_owners import own_static
from corral.daemon.prepare.static_seeds import Seed
from corral.daemon.prepare.static_trees import write_seed
from corral.daemon.workload.workload_users import WorkloadUser
from corral.domain.ids import RESTARTS_PER_START
from corral.errors import Code, Retryable
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
    """Where is made what becomes part of a working directory; a daemon that starts empties it. OSError when the
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
        self._holders: dict[str, int] = {}
        """Whose each directory is that we made or found in use: its start, for restarts keep it."""

    def open(self) -> None:
        """Make the places, and put away what a daemon before us was making. A root daemon lets other users
        pass through to theirs, and see nothing else."""
        for path in (self.running, self.static, self._bin, self._data / "secrets"):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for unfinished in (self.running / STAGING, self.running / WARM, self.static / STAGING):
            self.drop(unfinished)
        if os.geteuid() != 0:
            return
        shared = (self.running, self.static)
        for path in self._data.iterdir():
            if not path.is_symlink() and path not in shared and (path.is_dir() or path.is_file()):
                with contextlib.suppress(FileNotFoundError):  # somebody's temporary file
                    path.chmod(0o700 if path.is_dir() else 0o600)
        for path in (self._data, *shared):
            path.chmod(_OPEN_TO_PASS)

    def path(self, instance_id: str, *, static: bool = False) -> pathlib.Path:
        """Where it runs. A static one of an earlier version may still lie among the others."""
        if static and ((self.static / instance_id).exists() or not (self.running / instance_id).exists()):
            return self.static / instance_id
        return self.running / instance_id

    def present(self, instance_id: str) -> bool:
        """Whether anything of it lies here, be it a link to a disk that is not mounted."""
        return any(os.path.lexists(place / instance_id) for place in (self.running, self.static))

    def worlds(self) -> list[str]:
        """The ids whose static directories lie here, sorted, some of very many. Blocks for a moment."""
        try:
            names = [entry.name for entry in self.static.iterdir()]
        except OSError:
            return []
        return sorted(name for name in names if not name.startswith("."))[:_MOST_WORLDS]

    def make(self, instance_id: str, incarnation: int, user: WorkloadUser, *, empty: bool) -> pathlib.Path:
        """A directory with nothing in it, owned by its user; `empty`: whatever lay there is put away."""
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

    def make_static(self, instance_id: str, user: WorkloadUser, run_directory: pathlib.Path) -> pathlib.Path:
        """One that is kept, without anything of ours in it. Blocks for a moment."""
        self.take_over(instance_id, run_directory)
        path = self.static / instance_id
        if not os.path.lexists(path):
            write_seed(path, Seed(files={}))  # what templates have later is new to it
        try:
            path.mkdir(mode=_MODE)
        except FileExistsError:
            if (owner := owner_of(user)) is not None:
                own_static(path, owner)
        give(path, user)
        return path

    def take_over(self, instance_id: str, run_directory: pathlib.Path) -> None:
        """Earlier versions kept static directories among the others: it moves, in one rename. What a run
        left there that kept nothing goes."""
        former, path = self.running / instance_id, self.static / instance_id
        if not former.exists():
            return
        if not was_static(run_directory):
            self._put_away(instance_id)
        elif not path.exists():
            former.rename(path)
            _log.info("instances.static_moved", instance=instance_id, to=str(path))

    def staging(self, run: str, *, static: bool) -> pathlib.Path:
        """Where this run's directory is made; nothing is there yet. OSError when the disk refuses."""
        place = staging_beside((self.static if static else self.running) / run) / run
        self.drop(place)
        return place

    def place(self, staged: pathlib.Path, instance_id: str, incarnation: int) -> pathlib.Path:
        """The staged directory becomes the instance's, instead of whatever lay there."""
        self._put_away(instance_id)
        path = self.running / instance_id
        staged.rename(path)
        self.hold(instance_id, incarnation)
        return path

    def hold(self, instance_id: str, incarnation: int) -> None:
        """This run uses the directory of its id from now on."""
        self._holders[instance_id] = incarnation // RESTARTS_PER_START

    def discard(self, instance_id: str, incarnation: int) -> bool:
        """Put the directory of this run where `empty_bin` finds it. False when there is none, when it is
        a later start's by now, or when the disk refuses: that is said, and tried again the next time."""
        start = incarnation // RESTARTS_PER_START
        if self._holders.get(instance_id, start) > start:
            return False
        try:
            gone = self._put_away(instance_id)
        except OSError as error:
            _log.warning("instances.directory_not_put_away", instance=instance_id, reason=str(error))
            return False
        self._holders.pop(instance_id, None)
        return gone

    def drop(self, path: pathlib.Path) -> None:
        """Something that was being made, or has ended, and is not wanted any more: gone in one rename. What can
        be moved nowhere is deleted where it is, which takes as long as it takes."""
        try:
            self._move_away(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            _log.warning("instances.directory_not_put_away", path=str(path), reason=str(error))
            remove(path)

    def _put_away(self, instance_id: str) -> bool:
        path = self.running / instance_id
        if not path.exists():
            return False
        self._move_away(path)
        return True

    def _move_away(self, path: pathlib.Path) -> None:
        """To the bin, or to one on its own disk where that is another."""
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
        """Delete what was put away; what cannot be deleted is said and tried again the next time."""
        await asyncio.to_thread(self._delete_discarded)

    def _delete_discarded(self) -> None:
        for bin in (self._bin, self.running / _DISCARDED, self.static / _DISCARDED):
            for entry in list(bin.iterdir()) if bin.is_dir() else ():
                if reason := remove(entry):
                    _log.warning("instances.directory_not_deleted", path=str(entry), reason=reason)

    def _unused(self, bin: pathlib.Path) -> pathlib.Path:
        """A name in it that nothing has."""
        return bin / new_id("gone", self._entropy)


def give(path: pathlib.Path, user: WorkloadUser) -> None:
    """A directory to the user whose workload runs in it."""
    with open_tree(path) as directory:
        os.fchmod(directory, _MODE)  # the umask had its say in mkdir
        if os.geteuid() == 0:
            os.fchown(directory, user.uid, user.gid)


def owner_of(user: WorkloadUser) -> tuple[int, int] | None:
    """Whom new files are given to; None: they are the daemon's, and so is the workload."""
    return (user.uid, user.gid) if os.geteuid() == 0 else None


def was_static(run_directory: pathlib.Path) -> bool:
    """By the newest run of the same instance before this one. Nothing that can be read, or no such run any
    more: nobody knows, and what is not known to be disposable is kept. (A directory that is not kept goes
    with the last run of its instance at the latest.)"""
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
