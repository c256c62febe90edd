"""The directory of group documents of a controller (`--groups DIR`): loaded at start and on request, and written when a
group is changed over the API.

Loading never deletes: a group whose file is gone stays and is reported. A file that is refused keeps its group as it is.
A change over the API goes to the file first, atomically, and is then committed; if nothing was stored, the file is
restored. After a crash in between, or a commit whose outcome is not known, the next start finds a file that differs from
the store, and takes it over.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import stat
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import structlog
import yaml

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import GROUPS
from corral.controller.state.ledger import Mutation, Step
from corral.domain.groups.document_sets import document_digest, name_of
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.inheritance import written_document
from corral.domain.groups.instance_records import GroupRecord
from corral.errors import Code, CorralError, Rejected
from corral.store.port import Delete, Put
from corral.store.store_errors import StoreUnavailable
from corral.system.aio.tasks import to_completion
from corral.system.document_sets import (
    MOST_BYTES,
    MOST_DOCUMENTS,
    DocumentSet,
    Malformed,
    document_files,
    documents_in,
    read_regular,
    read_set,
)

T = TypeVar("T")

_log = structlog.get_logger("corral.controller.groups")

OWNER: Final = "dir"
_MODE: Final = 0o600
"""Of a new file: documents may hold secrets of an environment. A file that exists keeps its own."""


_EMPTY: Final = ".corral-empty"
"""A file of ours in a directory whose last group was deleted over the API. Any other that is empty is refused: it may be
one that is not mounted."""


class _FileChange(NamedTuple):
    path: pathlib.Path
    name: str
    loaded: dict[str, Any] | None
    """What the file has to hold now; None: nothing of this group."""
    document: dict[str, Any] | None
    """None: it is removed."""


class _FormerFile(NamedTuple):
    """A file as it was."""

    content: bytes
    mode: int
    owner: int
    group: int


class GroupFolder:
    """A directory of group documents."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self._places: dict[str, str] = {}
        """By group, the file that has its document."""
        self._count = 0
        """How many documents it has."""
        self.gone: frozenset[str] = frozenset()
        """Groups whose file was gone when it was read last."""

    async def read(self) -> DocumentSet:
        """All of its documents. Rejected: it is empty or cannot be read."""
        found = await asyncio.to_thread(_read, self.directory)
        self._count = len(found.documents)
        torn = [each.path for each in found.faults]
        torn += [each.file for each in found.documents if not name_of(each.body)]
        self._places = {
            name: file for name, file in self._places.items() if any(path.startswith(file) for path in torn)
        }
        loaded: dict[str, str] = {}
        for each in found.documents:
            if name := name_of(each.body):
                loaded.setdefault(name, each.file)  # a second document of a group is refused
        self._places |= loaded
        return found

    async def commit(
        self, state: ClusterState, mutation: Mutation, commit: Callable[[Mutation], Awaitable[T]]
    ) -> T:
        """Write the files of the groups that the mutation changes, then commit it. They are restored when nothing of it
        was stored, and stay where that is not known. A caller that is cancelled waits for the end."""
        changes, steps = self._changes(state, mutation.steps)
        if not changes:
            return await commit(mutation)
        marked = msgspec.structs.replace(mutation, steps=steps)
        return await to_completion(
            self._write_and_commit(changes, lambda: commit(marked)), name="groups/write-files"
        )

    async def _write_and_commit(self, changes: list[_FileChange], commit: Callable[[], Awaitable[T]]) -> T:
        count = self._count + sum(_added(each) for each in changes)
        if count > max(MOST_DOCUMENTS, self._count):
            raise _too_much(f"{count} documents, more than {MOST_DOCUMENTS}")
        ended = {each.name for each in changes if each.document is None}
        others = {file for name, file in self._places.items() if name not in ended}
        before = await asyncio.to_thread(_write_all, self.directory, changes, others)
        try:
            return await commit()
        except CorralError as error:
            if _nothing_stored(error):
                await asyncio.to_thread(_restore, before)
                changes = []
            raise
        finally:
            self._note(changes)

    def _note(self, changes: Iterable[_FileChange]) -> None:
        """These files are written."""
        for each in changes:
            self._count += _added(each)
            self.gone -= {each.name}
            if each.document is None:
                self._places.pop(each.name, None)
            else:
                self._places[each.name] = str(each.path)

    def _changes(
        self, state: ClusterState, steps: Iterable[Step]
    ) -> tuple[list[_FileChange], tuple[Step, ...]]:
        changes: list[_FileChange] = []
        marked: list[Step] = []
        for step in steps:
            if isinstance(step, Put | Delete) and step.collection == GROUPS.name:
                stored = state.groups.find(step.id)
                before = stored.record if stored else None
                after = GROUPS.decode(step.body) if isinstance(step, Put) else None
                change = self._change(step.id, before, after)
                if change is not None:
                    changes.append(change)
                    if isinstance(step, Put) and after is not None and change.document is not None:
                        step = GROUPS.put(step.id, _marked(after), expect=step.expect)
            marked.append(step)
        return changes, tuple(marked)

    def _change(self, name: str, before: GroupRecord | None, after: GroupRecord | None) -> _FileChange | None:
        """What becomes of the file of a group; None: nothing. Sets of other owners have their files elsewhere."""
        record = after or before
        if record is None or record.owner not in ("", OWNER):
            return None
        old = written_document(before) if before and not before.deleting else None
        new = _ordered(written_document(after)) if after and not after.deleting else None
        if old == new:
            return None
        known = self._places.get(name)
        if new is None and known is None:
            return None
        place = pathlib.Path(known) if known else self.directory / f"{name}.yaml"
        return _FileChange(place, name, old if known else None, new)


def _nothing_stored(error: CorralError) -> bool:
    """Whether it is known of a commit that failed. One that is in doubt may be found in the store: its file stays."""
    if isinstance(error, StoreUnavailable):
        return not error.in_doubt
    return isinstance(error, Rejected) or error.code is Code.SHUTTING_DOWN


def _ordered(document: Mapping[str, Any]) -> dict[str, Any]:
    """In the order of the reference, the name first: the store sorts by name."""
    return {key: document[key] for key in GroupSpec.__struct_fields__ if key in document}


def _marked(record: GroupRecord) -> GroupRecord:
    digest = document_digest(written_document(record))
    return msgspec.structs.replace(record, owner=OWNER, applied_sha256=digest)


def _read(directory: pathlib.Path) -> DocumentSet:
    empty = directory / _EMPTY
    found = read_set((str(directory),), may_be_empty=empty.exists())
    if found.documents:
        with contextlib.suppress(OSError):
            empty.unlink(missing_ok=True)
    return found


def _write_all(
    directory: pathlib.Path, changes: Iterable[_FileChange], others: Collection[str]
) -> dict[pathlib.Path, _FormerFile | None]:
    """Write the files; what they were before. All are restored when one fails. `others`: the files of the groups that
    are left."""
    before: dict[pathlib.Path, _FormerFile | None] = {}
    try:
        for change in changes:
            former = _former(change)
            fresh = _content(change, former.content if former else None)
            _check_size(directory, former, fresh)
            before.setdefault(change.path, former)
            if fresh is None and not any(pathlib.Path(each).exists() for each in others):
                _replace(directory / _EMPTY, b"", None)
            _replace(change.path, fresh, former)
            if fresh is not None:
                (directory / _EMPTY).unlink(missing_ok=True)
    except OSError as error:
        _restore(before)
        raise Rejected(
            Code.CONFLICT,
            f"the file of a group cannot be written: {error.strerror} ({error.filename})",
            hint="nothing was changed; make the directory writable for the controller",
        ) from error
    except BaseException:
        _restore(before)
        raise
    return before


def _added(change: _FileChange) -> int:
    return (change.document is not None) - (change.loaded is not None)


def _check_size(directory: pathlib.Path, former: _FormerFile | None, fresh: bytes | None) -> None:
    """Refuse to make the directory larger than it may be when it is loaded."""
    more = len(fresh or b"") - len(former.content if former else b"")
    if more <= 0:
        return
    size = 0
    for file in document_files(str(directory), may_be_empty=True):
        with contextlib.suppress(FileNotFoundError):  # a link to nowhere
            size += pathlib.Path(file).stat().st_size
    if size + more > MOST_BYTES:
        raise _too_much(f"more than {MOST_BYTES >> 20} MiB")


def _too_much(what: str) -> Rejected:
    return Rejected(
        Code.CONFLICT,
        f"the directory of groups would have {what}, and could not be loaded any more",
        hint="nothing was changed; delete groups that are not needed, or make their documents smaller",
    )


def _content(change: _FileChange, content: bytes | None) -> bytes | None:
    """The file with one document replaced, added or left out; None: nothing is left in it."""
    file = str(change.path)
    try:
        documents = (
            [each.body for each in documents_in(file, content.decode())] if content is not None else []
        )
    except (Malformed, UnicodeDecodeError) as error:
        raise _edited(change, f"cannot be read: {error}") from None
    names = [each.get("name") if isinstance(each, dict) else None for each in documents]
    at = names.index(change.name) if change.name in names else None
    present = documents[at] if at is not None else None
    if present != change.loaded:
        raise _edited(change, "was edited since it was loaded")
    if at is not None:
        documents[at : at + 1] = [change.document] if change.document is not None else []
    elif change.document is not None:
        documents.append(change.document)
    if not documents:
        return None
    if file.endswith(".json"):
        whole: Any = documents[0] if len(documents) == 1 else documents
        return json.dumps(whole, indent=2, ensure_ascii=False).encode() + b"\n"
    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True).encode()


def _edited(change: _FileChange, why: str) -> Rejected:
    return Rejected(
        Code.CONFLICT,
        f"the file of group '{change.name}', {change.path}, {why}",
        hint="nothing was changed; correct it and run 'corral group reload' first",
    )


def _former(change: _FileChange) -> _FormerFile | None:
    path = change.path
    if not path.exists():
        return None
    try:
        content, found = read_regular(str(path)), path.stat()
    except Malformed as error:
        raise _edited(change, f"cannot be read: {error}") from None
    if len(content) > MOST_BYTES:
        raise _edited(change, f"has more than {MOST_BYTES >> 20} MiB")
    return _FormerFile(content, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def _replace(path: pathlib.Path, content: bytes | None, former: _FormerFile | None) -> None:
    """Durably and atomically; None: remove it. It is as readable as the former one, and has its owner where we may give
    it away."""
    if content is None:
        path.unlink(missing_ok=True)
    else:
        temporary = path.with_name(f".{path.name}.new")
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _MODE)
        try:
            with os.fdopen(descriptor, "wb") as file:
                if former is not None:
                    for owner in ((-1, former.group), (former.owner, -1)):
                        with contextlib.suppress(OSError):
                            os.fchown(descriptor, *owner)
                    os.fchmod(descriptor, former.mode)
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _restore(before: Mapping[pathlib.Path, _FormerFile | None]) -> None:
    for path, former in before.items():
        try:
            if former is None or not path.exists() or path.read_bytes() != former.content:
                _replace(path, former.content if former else None, former)
        except OSError as error:
            _log.error("group_file.failed", file=str(path), reason=str(error))
