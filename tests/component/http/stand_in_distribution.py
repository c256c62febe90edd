"""Those who carry files to nodes and back, as a test wants them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence

from corral.controller.distribution.instance_file_transfers import (
    ChangedFiles,
    FileBody,
    FileChange,
    OpenedFile,
)
from corral.controller.distribution.instance_files import FileListing, FilePart, ListedFile, WalkRequest
from corral.controller.distribution.node_caches import CachedTemplate, CacheReport, CacheTrouble, SyncAnswer
from corral.controller.state.cluster_state import ClusterState
from corral.errors import Code, CorralError, Rejected
from corral.system.controller_config import FilesSection


class StandInDistribution:
    """`failure` is raised by whatever is asked next; `saved` is what `save_files` and `read_file` give."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.failure: CorralError | None = None
        self.busy: CorralError | None = None
        """Raised by changes before anything is looked at, as where there are too many."""
        self.saved = b""
        self.asked: list[tuple[str, object]] = []
        self.open_saves = 0
        self.changed: dict[str, ChangedFiles] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called when a change was made, and its answer is not known yet."""

    def _ask(self, what: str, about: object) -> None:
        self.asked.append((what, about))
        if self.failure is not None:
            raise self.failure

    async def sync(self, name: str, nodes: Sequence[str] | None = None) -> list[SyncAnswer]:
        self._ask("sync", (name, nodes))
        known = [id for id, _ in self._state.nodes.items()]
        for node in nodes or ():
            self._state.nodes.require(node)
        return [SyncAnswer(node=node, ok=True) for node in (known if nodes is None else nodes)]

    async def cache_status(self, node: str) -> CacheReport:
        self._ask("status", node)
        held = CachedTemplate(name="base", hash="0" * 64, version=None, size=1, last_used=None)
        return CacheReport(node=node, total_bytes=1, quota_bytes=2, templates=(held,))

    async def prewarm(self, node: str, group: str | None = None) -> CacheReport:
        self._ask("prewarm", (node, group))
        trouble = CacheTrouble(subject="template/base", code="CACHE_FULL", message="no room")
        return CacheReport(node=node, total_bytes=0, quota_bytes=0, failures=(trouble,))

    async def prewarm_all(self, group: str | None = None) -> list[SyncAnswer]:
        self._ask("prewarm_all", group)
        return [SyncAnswer(node=id, ok=True) for id, _ in self._state.nodes.items()]

    async def walk_files(self, id: str, request: WalkRequest, *, caller: str) -> FileListing:
        self._ask("walk", (self._state.instances.require(id).record.id, request))
        entry = ListedFile(path=f"{request.path or 'logs'}/latest.log", kind="file", size=4, mode=0o640)
        return FileListing(entries=(entry,), truncated=True, next=b"latest.log\xff")

    async def look_at_file(self, id: str, path: str, *, caller: str) -> ListedFile:
        self._ask("look", (self._state.instances.require(id).record.id, path))
        digest = hashlib.sha256(self.saved).hexdigest()
        return ListedFile(path=path, kind="file", size=len(self.saved), digest=digest, binary=False)

    @contextlib.asynccontextmanager
    async def open_file(
        self,
        id: str,
        path: str,
        *,
        offset: int = 0,
        length: int = 0,
        archive: bool = False,
        caller: str,
    ) -> AsyncIterator[OpenedFile]:
        self._ask("archive" if archive else "open", (id, path, offset, length))
        self.open_saves += 1
        try:
            digest = hashlib.sha256(self.saved).hexdigest()
            yield OpenedFile(size=len(self.saved), digest=digest, left_out=0, blocks=self._pieces())
        finally:
            self.open_saves -= 1

    @property
    def file_limits(self) -> FilesSection:
        return FilesSection(max_bytes=2 * 1024 * 1024)

    def require_changeable(self, id: str, *, modes: bool = False) -> None:
        self._state.instances.require(id)
        if self.failure is not None:
            raise self.failure

    def require_worlds(self, node: str) -> None:
        self._ask("worlds", node)

    async def change_files(
        self,
        id: str,
        change: FileChange,
        body: FileBody | None = None,
        *,
        caller: str,
        change_id: str = "",
        repeated: bool = False,
    ) -> ChangedFiles:
        """As a node does it: a change with an id is made once, and one that was interrupted is in doubt."""
        if self.busy is not None:
            raise self.busy
        if repeated:
            if change_id not in self.changed:
                raise Rejected(Code.MAY_HAVE_ARRIVED, "it may have been changed")
            return self.changed[change_id]
        self._ask(change.verb, (self._state.instances.require(id).record.id, change))
        if body is None:
            done = ChangedFiles(entries=1)
        else:
            self.saved = body.file.read_bytes()
            done = ChangedFiles(digest=body.sha256, size=body.size, entries=1)
        self.on_change()
        if change_id:
            self.changed[change_id] = done
        return done

    async def read_file(self, id: str, path: str, *, offset: int, length: int, caller: str) -> FilePart:
        self._ask("read", (self._state.instances.require(id).record.id, path, offset, length))
        return FilePart(content=self.saved[offset : offset + length], size=len(self.saved))

    @contextlib.asynccontextmanager
    async def save_files(
        self, id: str, paths: Sequence[str], *, secret_names: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self._ask("save", (id, tuple(paths)))
        self.open_saves += 1
        try:
            yield self._pieces()
        finally:
            self.open_saves -= 1

    async def _pieces(self) -> AsyncIterator[bytes]:
        yield self.saved
