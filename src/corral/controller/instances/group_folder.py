"""The directory of group documents of a controller (`--groups DIR`): loaded at start and on request, and written when a
group is changed over the API.

Loading never deletes: a group whose file is gone stays and is reported. A file that is refused keeps its group as it is.
A change over the API goes to the file first, atomically, and is then committed; if nothing was stored, the file is
restored. After a crash in between, or a commit whose outcome is not known, the next start finds files that differ from
the store, and takes them over: all of one change, for what was not written yet is written first.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from corral.controller.instances.group_files import (
    EMPTY,
    GroupFileChange,
    added,
    end_writing,
    finish_writing,
    restore,
    too_much,
    write_all,
)
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
from corral.system.document_limits import MOST_DOCUMENTS
from corral.system.document_sets import (
    DocumentSet,
    read_set,
)

T = TypeVar("T")

OWNER: Final = "dir"


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
        torn = {each.file for each in found.faults}
        torn |= {each.file for each in found.documents if not name_of(each.body)}
        self._places = {name: file for name, file in self._places.items() if file in torn}
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

    async def _write_and_commit(
        self, changes: list[GroupFileChange], commit: Callable[[], Awaitable[T]]
    ) -> T:
        count = self._count + sum(added(each) for each in changes)
        if count > max(MOST_DOCUMENTS, self._count):
            raise too_much(f"{count} documents, more than {MOST_DOCUMENTS}")
        ended = {each.name for each in changes if each.document is None}
        others = {file for name, file in self._places.items() if name not in ended}
        before = await asyncio.to_thread(write_all, self.directory, changes, others)
        try:
            return await commit()
        except CorralError as error:
            if _nothing_stored(error):
                await asyncio.to_thread(restore, before)
                changes = []
            raise
        finally:
            await asyncio.to_thread(end_writing, self.directory)
            self._note(changes)

    def _note(self, changes: Iterable[GroupFileChange]) -> None:
        """These files are written."""
        for each in changes:
            self._count += added(each)
            self.gone -= {each.name}
            if each.document is None:
                self._places.pop(each.name, None)
            else:
                self._places[each.name] = str(each.path)

    def _changes(
        self, state: ClusterState, steps: Iterable[Step]
    ) -> tuple[list[GroupFileChange], tuple[Step, ...]]:
        changes: list[GroupFileChange] = []
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

    def _change(
        self, name: str, before: GroupRecord | None, after: GroupRecord | None
    ) -> GroupFileChange | None:
        """What becomes of the file of a group; None: nothing. Sets of other owners have their files elsewhere: a group
        that is taken over leaves the directory."""
        old, new = _document_here(before), _document_here(after)
        if old == new:
            return None
        known = self._places.get(name)
        if new is None and known is None:
            return None
        place = pathlib.Path(known) if known else self.directory / f"{name}.yaml"
        taken = after.owner if after is not None and not _is_here(after) else ""
        loaded = old if known else None
        return GroupFileChange(place, name, loaded, new, listed=known is not None, new_owner=taken)


def _is_here(record: GroupRecord) -> bool:
    """Whether its document belongs into the directory."""
    return record.owner in ("", OWNER)


def _document_here(record: GroupRecord | None) -> dict[str, Any] | None:
    """The document that the directory has of a group, or shall have; None: none."""
    if record is None or record.deleting or not _is_here(record):
        return None
    return _ordered(written_document(record))


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
    finish_writing(directory)
    if not directory.exists():
        raise Rejected(
            Code.INVALID_FIELD,
            f"the directory of groups, {directory}, does not exist",
            hint="mount or restore it, or start the controller with another (--groups DIR)",
        )
    empty = directory / EMPTY
    found = read_set((str(directory),), may_be_empty=empty.exists())
    if found.documents:
        with contextlib.suppress(OSError):
            empty.unlink(missing_ok=True)
    return found
