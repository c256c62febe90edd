"""User ids of `isolate: uid`: a range of the node from which each instance gets one of its own.

An instance keeps its uid as long as it runs or its directory exists; a static instance keeps its uid for good, because
a missing directory may be on a disk that is not mounted. A uid that owns a directory of any instance is never given to
another one, whatever is in the record: the record may have been lost or be older. A freed uid goes to the end of the
queue: it is given to another instance only after the whole range was used once, also across restarts, because files
that the last owner left in /tmp, /dev/shm or the kernel's IPC would belong to the next one. Ids with another owner
(/etc/subuid and /etc/subgid, accounts and groups of the host, ids that this user namespace does not have) are skipped,
and so are those of processes that belong to none of our instances: another daemon on this machine may have the same
range.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from corral.daemon.node.durable_files import store
from corral.errors import Code, Rejected, Retryable
from corral.system.accounts import LAST_ID, is_taken
from corral.system.files import read_versioned

_FILE: Final = "uids.json"
_FORMAT: Final = "corral-instance-uids"
_VERSION: Final = 1
_MAX_FILE: Final = 4 * 1024 * 1024
_STATUS: Final = 4096
_NO_ID: Final = LAST_ID + 1
ETC: Final = pathlib.Path("/etc")
_MAPS: Final = (pathlib.Path("/proc/self/uid_map"), pathlib.Path("/proc/self/gid_map"))


class UidRange(NamedTuple):
    """Ids from `first` to `last`, both included, and their owner."""

    first: int
    last: int
    owner: str


class _Given(msgspec.Struct, frozen=True, kw_only=True):
    uids: dict[str, int] = {}
    last: int | None = None
    """The uid that was given last; None: written by a version without this field."""
    static: tuple[str, ...] = ()
    """The static instances, which keep their directory and so their uid."""


class IsolatedUids:
    """Assigns the uids. Methods block for the disk and for the account database; any thread may call them. Concurrent
    changes are written together: a burst of starts costs a few writes, not one each."""

    def __init__(self, first: int, last: int, *, data: pathlib.Path, etc: pathlib.Path = ETC) -> None:
        self._first = first
        self._last = last
        self._path = data / _FILE
        self._running, self._kept = data / "running", data / "static"
        given = read_versioned(self._path, _Given, name=_FORMAT, version=_VERSION) or _Given()
        self._uids = dict(given.uids)
        self._static = set(given.static)
        self._unwritten: set[str] = set()
        self._changes = self._written = 0
        self._changing = threading.Lock()
        self._writing = threading.Lock()
        self.foreign: Final = tuple(_overlapping(first, last, etc))
        """The parts of the range that have another owner."""
        self._recover()
        self._newest = given.last if given.last is not None else max(self._uids.values(), default=first - 1)
        others = tuple(_overlapping(0, _NO_ID, etc))
        self.contested: Final = {
            id: span
            for id, uid in sorted(self._uids.items())
            for span in others
            if span.first <= uid <= span.last
        }
        """Instances whose uid, from before this range or these neighbours, has another owner as well."""

    def __contains__(self, uid: int) -> bool:
        """Whether this uid is, or may become, an instance's own."""
        with self._changing:
            return self._first <= uid <= self._last or uid in self._uids.values()

    @property
    def usable(self) -> int:
        """How many ids of the range can be assigned, apart from accounts of the host."""
        return self._last - self._first + 1 - sum(span.last - span.first + 1 for span in self.foreign)

    def of(self, instance_id: str, *, static: bool = False) -> int:
        """The uid of an instance, always the same one: its static files belong to it. RUN_AS_REFUSED when the range is
        used up, Retryable when the disk refuses. `static`: the instance keeps its directory."""
        with self._changing:
            uid = self._uids.get(instance_id)
            if uid is None:
                uid = self._newest = self._next()
                self._uids[instance_id] = uid
                self._note(instance_id)
            if static and instance_id not in self._static:
                self._static.add(instance_id)
                self._note(instance_id)
            change = self._changes if instance_id in self._unwritten else 0
        self._write(change)
        return uid

    def release(self, is_gone: Callable[[str], bool]) -> None:
        """Free the uids of instances of which nothing is left here. `is_gone` is called while no uid can be assigned: a
        start that begins meanwhile has its instance known already, or gets another uid."""
        with self._changing:
            gone = [id for id in self._uids if id not in self._static and is_gone(id)]
            for id in gone:
                del self._uids[id]
                self._unwritten.discard(id)
            self._changes += bool(gone)
            change = self._changes if gone else 0
        self._write(change)

    def _note(self, instance_id: str) -> None:
        self._unwritten.add(instance_id)
        self._changes += 1

    def _recover(self) -> None:
        """Add the owners of directories that the record lacks: it was lost, or is older than the directories. A uid
        that owns directories of several instances is assigned to none."""
        try:
            kept, found = dict(_owners(self._kept)), [*_owners(self._running), *_owners(self._kept)]
        except OSError:
            return  # `_next` reports it, when it matters
        holders: dict[int, set[str]] = {}
        for id, uid in (*found, *self._uids.items()):
            holders.setdefault(uid, set()).add(id)
        for uid, ids in holders.items():
            id = min(ids)
            if len(ids) == 1 and id not in self._uids and any(self._candidates(uid, uid)):
                self._uids[id] = uid
                self._note(id)
        for id in kept.keys() & self._uids.keys() - self._static:
            self._static.add(id)
            self._note(id)

    def _used(self) -> set[int]:
        try:
            owners = {uid for place in (self._running, self._kept) for _, uid in _owners(place)}
        except OSError as error:
            raise Retryable(
                Code.SPAWN_FAILED,
                f"whose the directories of instances are cannot be read: {error}",
                hint="check the disk of the daemon's data directory",
            ) from error
        return owners.union(self._uids.values())

    def _next(self) -> int:
        """The first free uid after the one that was assigned last, wrapping around."""
        used, living = self._used(), _living(self._first, self._last)
        after = self._newest if self._first <= self._newest < self._last else self._first - 1
        for low, high in ((after + 1, self._last), (self._first, after)):
            for uid in self._candidates(low, high):
                if uid not in used and uid not in living and not is_taken(uid):
                    return uid
        whose = f"; {describe(self.foreign)} are not the node's to give" if self.foreign else ""
        if strange := len(living - used):
            whose += f"; {strange} of them have processes that are not this daemon's"
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"no user id from {self._first} to {self._last} is free for another instance{whose}",
            hint="widen or move instances.first_uid and instances.last_uid in the daemon's config, or let "
            "the group share a user with `isolate: shared`",
            field="isolate",
        )

    def _candidates(self, low: int, high: int) -> Iterator[int]:
        """Ids from `low` to `high` that the node may assign."""
        uid = max(low, self._first)
        while uid <= min(high, self._last):
            span = next((span for span in self.foreign if span.first <= uid <= span.last), None)
            if span is not None:
                uid = span.last + 1
                continue
            yield uid
            uid += 1

    def _write(self, change: int) -> None:
        """Write this change to disk before returning: a uid is used only after that. Changes that wait here while
        another is written are written together by the next call."""
        with self._writing:
            if self._written >= change:
                return
            with self._changing:
                static = tuple(sorted(self._static & self._uids.keys()))
                given = _Given(uids=dict(self._uids), last=self._newest, static=static)
                newest = self._changes
                pending = set(self._unwritten)
            store(self._path, given, name=_FORMAT, version=_VERSION)
            with self._changing:
                self._unwritten -= pending
            self._written = newest


def _living(first: int, last: int) -> set[int]:
    """The ids of this range that a process has as real, effective, saved or file system id. The owner of its entry in
    /proc is no evidence: a process can make that root."""
    found: set[int] = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 - thousands
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/status", "rb") as file:  # noqa: PTH123 - as above
                _, _, ids = file.read(_STATUS).partition(b"\nUid:")
                found.update(map(int, ids.partition(b"\n")[0].split()))
    return {uid for uid in found if first <= uid <= last}


def _owners(place: pathlib.Path) -> Iterator[tuple[str, int]]:
    """The directories of instances in there, and their owners. OSError."""
    with contextlib.suppress(FileNotFoundError), os.scandir(place) as entries:
        for entry in entries:
            if not entry.name.startswith("."):
                with contextlib.suppress(FileNotFoundError):  # it was removed just now
                    yield entry.name, entry.stat().st_uid


def describe(spans: Iterable[UidRange]) -> str:
    return ", ".join(f"{span.first} to {span.last} ({span.owner})" for span in spans)


def _overlapping(first: int, last: int, etc: pathlib.Path) -> Iterator[UidRange]:
    """The parts of the range with another owner, in order, each id once."""
    spans = [*_subordinate(etc / "subuid"), *_subordinate(etc / "subgid"), *_unmapped()]
    seen = first - 1
    for span in sorted(spans):
        low, high = max(seen + 1, span.first), min(last, span.last)
        if low <= high:
            yield UidRange(low, high, span.owner)
            seen = high


def _subordinate(path: pathlib.Path) -> Iterator[UidRange]:
    """`NAME:FIRST:COUNT` a line: ids that users of the host have for their containers."""
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_FILE).decode(errors="replace")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        name, _, numbers = line.partition(":")
        first, _, count = numbers.partition(":")
        if _is_number(first) and _is_number(count.strip()) and int(count) > 0:
            yield UidRange(int(first), int(first) + int(count) - 1, f"{path}: {name[:40]}")


def _unmapped() -> Iterator[UidRange]:
    """In a user namespace: the ids that do not exist in it."""
    for path in _MAPS:
        beyond = 0
        for inside, _, count in sorted(
            tuple(map(int, line.split())) for line in path.read_text().splitlines()
        ):
            if inside > beyond:
                yield UidRange(beyond, inside - 1, "not in this user namespace")
            beyond = max(beyond, inside + count)
        if beyond < _NO_ID:
            yield UidRange(beyond, _NO_ID, "not in this user namespace")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10
