"""Distribution of files to and from nodes, for one term of a leading controller."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
from typing import Any, Final

import structlog

from corral.controller.distribution.instance_file_transfers import (
    ChangedFiles,
    FileBody,
    FileChange,
    InstanceFileTransfers,
    OpenedFile,
)
from corral.controller.distribution.instance_files import (
    FileListing,
    FilePart,
    InstanceFileQuestions,
    ListedFile,
    WalkRequest,
)
from corral.controller.distribution.instance_saves import FileSaving
from corral.controller.distribution.node_caches import (
    CacheQueries,
    CacheReport,
    SyncAnswer,
    cache_report,
    with_lacks,
)
from corral.controller.distribution.node_needs import GroupNeeds, Needs, NodeAccess, warm_message
from corral.controller.distribution.ports import FileUploads, Versions
from corral.controller.distribution.template_server import TemplateServer
from corral.controller.sessions.node_links import NodeLinks
from corral.controller.sessions.offered_files import OfferedFiles
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.group import GroupSpec
from corral.domain.ids import NodeId
from corral.domain.planning.node_table import unsuited
from corral.domain.records import NodeRecord
from corral.errors import Code, CorralError, Rejected
from corral.store.port import Commit
from corral.system.clock import Clock
from corral.system.controller_config import FilesSection, TemplatesSection
from corral.system.entropy import Entropy, new_id
from corral.wire.v1.instance_pb2 import (
    InstanceFileContent,
    InstanceFilesAnswer,
    InstanceFileTree,
    SaveFilesFailed,
)
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.plan_pb2 import CacheStatus, RequestCacheStatus, TemplateRequest

STATUS_SECONDS: Final = 15.0
WARM_SECONDS: Final = 300.0
_AT_A_TIME: Final = 32
_LOGGED: Final = 5
_log = structlog.get_logger("corral.controller.distribution")


class Distribution:
    """Templates and artifacts for nodes. `run` warms the caches of joining nodes, for as long as the term
    lasts."""

    def __init__(
        self,
        *,
        state: ClusterState,
        library: Versions,
        links: NodeLinks,
        uploads: FileUploads,
        offers: OfferedFiles,
        limits: TemplatesSection,
        files: FilesSection,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._state = state
        self._links = links
        self._entropy = entropy
        self._needs = GroupNeeds(state)
        self.access = NodeAccess(state, needs=self._needs, library=library, clock=clock)
        self._templates = TemplateServer(
            templates=state.templates, library=library, links=links, access=self.access, clock=clock
        )
        self._questions = CacheQueries(links=links, entropy=entropy)
        self._saving = FileSaving(links=links, uploads=uploads, limits=limits, entropy=entropy)
        self._files = InstanceFileQuestions(links=links, entropy=entropy)
        self._transfers = InstanceFileTransfers(self._files, uploads=uploads, offers=offers, limits=files)
        self._joined: dict[NodeId, None] = {}
        self._warming: dict[NodeId, str] = {}
        """The request under which the cache of a joined node is being warmed."""
        self._wake = asyncio.Event()

    # frames of nodes

    def template_requested(self, node_id: NodeId, request: TemplateRequest) -> None:
        self._templates.ask(node_id, request)

    async def readable(self, node_id: NodeId, digests: Collection[str]) -> frozenset[str]:
        """The subset of these blobs that the node may read; see `NodeAccess`."""
        return await self.access.readable(node_id, digests)

    def cache_reported(self, node_id: NodeId, status: CacheStatus) -> None:
        if self._questions.answered(node_id, status) or not status.request_id:
            return
        if self._warming.get(node_id) == status.request_id:
            del self._warming[node_id]
            for failure in status.failures[:_LOGGED]:
                _log.warning(
                    "distribution_warming.failed",
                    node=node_id,
                    subject=failure.subject[:200],
                    code=failure.error_code[:80],
                    reason=failure.error_message[:500],
                )

    def save_failed(self, node_id: NodeId, failed: SaveFilesFailed) -> None:
        self._saving.failed(node_id, failed)

    def files_reported(
        self, node_id: NodeId, answer: InstanceFileTree | InstanceFileContent | InstanceFilesAnswer
    ) -> None:
        self._files.answered(node_id, answer)

    # automatic actions

    def follow(self, commit: Commit) -> None:
        self._needs.follow(commit)

    def resync(self) -> None:
        self._needs.resync()

    def joined(self, node_id: NodeId) -> None:
        """A node has a session and may receive start orders, whose files it will need."""
        self._joined[node_id] = None
        self._wake.set()

    async def run(self) -> None:
        """Warm the caches of joined nodes, one after the other, until cancelled."""
        while True:
            while self._joined:
                node_id = next(iter(self._joined))
                del self._joined[node_id]
                self._warm(node_id)
                await asyncio.sleep(0)  # many join at once when a term begins
            self._wake.clear()
            await self._wake.wait()

    def _warm(self, node_id: NodeId) -> None:
        link, node = self._links.find(node_id), self._state.nodes.find(node_id)
        if link is None or node is None:
            return
        needs = self._needs.of_node(node.record)
        request_id = new_id("warm", self._entropy)
        message = warm_message(needs, request_id=request_id)
        if (message.entries or message.templates) and link.send(ControllerMessage(pre_warm_cache=message)):
            self._warming[node_id] = request_id

    # requests of operators

    async def cache_status(self, node: str) -> CacheReport:
        """The content of a node's cache. NOT_FOUND, NODE_OFFLINE, TIMEOUT."""
        return await self._asked(
            self._state.nodes.require(node).record.id,
            lambda asked: ControllerMessage(request_cache_status=RequestCacheStatus(request_id=asked)),
            timeout=STATUS_SECONDS,
        )

    async def prewarm(self, node: str, group: str | None = None) -> CacheReport:
        """Let a node fetch what a group needs, or all groups that may run there; returns when all is fetched
        or has failed. The report names failures. NOT_FOUND, NODE_OFFLINE, TIMEOUT."""
        record = self._state.nodes.require(node).record
        if group is None:
            return await self._fetched(record.id, self._needs.of_node(record))
        spec = self._state.groups.require(group).record.spec
        foreign = _unsuited(spec, record)
        if foreign is not None:
            raise Rejected(
                Code.CONFLICT,
                f"group '{group}' does not run on node '{node}': {foreign}",
                hint="choose a node that the group may run on",
                field="group",
            )
        return await self._fetched(record.id, self._needs.of_group(spec))

    async def sync(self, name: str, nodes: Sequence[str] | None = None) -> list[SyncAnswer]:
        """Bring a template's current version into the caches of these nodes, or of all connected ones;
        returns the result of each. NOT_FOUND when there is no such template or node."""
        version = self._state.templates.require(name).record.version()
        needs = Needs(templates=frozenset({(name, version.hash)}))
        return await self._each(nodes, lambda node: self._synced(node, needs))

    async def prewarm_all(self, group: str | None = None) -> list[SyncAnswer]:
        """As `prewarm`, on every connected node that the group may run on."""
        if group is None:
            nodes = self._connected()
            needs = {node.id: self._needs.of_node(node) for node in nodes}
        else:
            spec = self._state.groups.require(group).record.spec
            nodes = [node for node in self._connected() if _unsuited(spec, node) is None]
            needs = dict.fromkeys((node.id for node in nodes), self._needs.of_group(spec))
        return await self._each([node.id for node in nodes], lambda node: self._synced(node, needs[node]))

    @contextlib.asynccontextmanager
    async def save_files(
        self, id: str, paths: Sequence[str], *, secret_names: bool = False
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Files of an instance's working directory as a tar.gz; see `FileSaving.save`."""
        record = self._state.instances.require(id).record
        async with self._saving.save(record, paths, secret_names=secret_names) as blocks:
            yield blocks

    async def walk_files(self, id: str, request: WalkRequest, *, caller: str) -> FileListing:
        """The content of an instance's directory; see `InstanceFileQuestions.walk`."""
        return await self._files.walk(self._state.instances.require(id).record, request, caller=caller)

    async def look_at_file(self, id: str, path: str, *, caller: str) -> ListedFile:
        """One entry of it; see `InstanceFileQuestions.look`."""
        return await self._files.look(self._state.instances.require(id).record, path, caller=caller)

    @property
    def file_limits(self) -> FilesSection:
        return self._transfers.limits

    def require_changeable(self, id: str, *, modes: bool = False) -> None:
        """Whether its files, or also their modes, can be changed now. NOT_FOUND, NODE_OFFLINE, NOT_SUPPORTED."""
        self._files.link(self._state.instances.require(id).record.node, changes=True, modes=modes)

    def require_worlds(self, node: str) -> None:
        """See `InstanceFileQuestions.require_worlds`."""
        self._files.require_worlds(NodeId(node))

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
        """Change something in it; see `InstanceFileTransfers.change`."""
        record = self._state.instances.require(id).record
        return await self._transfers.change(
            record, change, body, caller=caller, change_id=change_id, repeated=repeated
        )

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
        """A whole file or directory of it; see `InstanceFileTransfers.opened`."""
        record = self._state.instances.require(id).record
        async with self._transfers.opened(
            record, path, offset=offset, length=length, archive=archive, caller=caller
        ) as opened:
            yield opened

    async def read_file(self, id: str, path: str, *, offset: int, length: int, caller: str) -> FilePart:
        """A part of one of its files; see `InstanceFileQuestions.read`."""
        record = self._state.instances.require(id).record
        return await self._files.read(record, path, offset=offset, length=length, caller=caller)

    async def close(self) -> None:
        """End with the term. Idempotent."""
        self._questions.close()
        self._saving.close()
        await self._files.close()
        await self._templates.close()

    def _connected(self) -> list[NodeRecord]:
        records = (stored.record for _, stored in self._state.nodes.items())
        return [record for record in records if self._links.find(record.id) is not None]

    async def _each(
        self, nodes: Sequence[str] | None, work: Callable[[NodeId], Coroutine[Any, Any, SyncAnswer]]
    ) -> list[SyncAnswer]:
        """Run on many nodes at once, bounded for a large cluster; results are in the order of the nodes."""
        if nodes is None:
            chosen = [node.id for node in self._connected()]
        else:
            chosen = list(dict.fromkeys(self._state.nodes.require(node).record.id for node in nodes))
        turns = asyncio.Semaphore(_AT_A_TIME)

        async def one(node: NodeId) -> SyncAnswer:
            async with turns:
                return await work(node)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(node), name=f"distribution/sync/{node}") for node in chosen]
        return [task.result() for task in tasks]

    async def _synced(self, node: NodeId, needs: Needs) -> SyncAnswer:
        try:
            self._require_templates(node, needs)
            report = await self._fetched(node, needs)
        except CorralError as error:
            return SyncAnswer(node=node, ok=False, code=error.code.name, message=str(error))
        if report.failures:
            first = report.failures[0]
            return SyncAnswer(
                node=node, ok=False, code=first.code, message=f"{first.subject}: {first.message}"
            )
        return SyncAnswer(node=node, ok=True)

    def _require_templates(self, node: NodeId, needs: Needs) -> None:
        link = self._links.find(node)
        if link is not None and needs.templates and not link.facts.supports.templates:
            raise Rejected(
                Code.NOT_SUPPORTED,
                f"the daemon of node '{node}' fetches templates with its starts only",
                hint="update it",
            )

    async def _fetched(self, node: NodeId, needs: Needs) -> CacheReport:
        with self.access.granted(node, needs):
            report = await self._asked(
                node,
                lambda asked: ControllerMessage(pre_warm_cache=warm_message(needs, request_id=asked)),
                timeout=WARM_SECONDS,
            )
        link = self._links.find(node)
        return report if link is None or link.facts.supports.templates else with_lacks(report, needs)

    async def _asked(
        self, node: NodeId, message_of: Callable[[str], ControllerMessage], *, timeout: float
    ) -> CacheReport:
        status = await self._questions.ask(node, message_of, timeout=timeout)
        return cache_report(node, status, self._state.templates)


def _unsuited(spec: GroupSpec, node: NodeRecord) -> str | None:
    """Why the group never runs on this node; None: it may."""
    found = unsuited(spec, node)
    return found.reason if found else None
