"""Distributor: brings every connected node to the installed packages, and keeps it there.

The records are the source of truth. A session begins with the difference between them and what the node
reports that it has; after that each commit that changes a package is followed, each session at its own pace.
"""

from __future__ import annotations

import asyncio
import functools

import msgspec

from corral.controller.modules_on_nodes.module_sync import DesiredPackage, ModuleSync, SyncProgress
from corral.controller.modules_on_nodes.order_frames import BlobCache
from corral.controller.sessions.node_links import ModuleLink
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import MODULE_NODE_STATES, MODULE_PACKAGES
from corral.domain.ids import NodeId, SessionId
from corral.domain.modules.convergence import DesiredModule, ObservedModule
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.phases import ModuleIntent
from corral.domain.modules.records import NodeModuleState, PackageRecord, node_module_key
from corral.modules.manifest.settings import settings_digest
from corral.store.port import BlobEngine, Commit
from corral.system.aio.tasks import Tasks
from corral.wire.handshake_lists import entries_of, read_observed
from corral.wire.v1.node_pb2 import Handshake


class Distributor:
    """One `ModuleSync` per session, keyed by the session, so that an old session cannot affect its
    successor."""

    def __init__(self, *, state: ClusterState, blobs: BlobEngine, progress: SyncProgress) -> None:
        self._state = state
        self._blobs = BlobCache(blobs)
        self._progress = progress
        self._syncs: dict[SessionId, ModuleSync] = {}
        self._running: dict[SessionId, asyncio.Task[None]] = {}
        self._present: dict[NodeId, SessionId] = {}
        self._known: dict[str, tuple[int, DesiredPackage | None]] = {}
        self._tasks = Tasks()

    def desired(self, node_id: NodeId) -> list[DesiredModule]:
        """Desired set of a node, by id: the same for all nodes, except for operator requests for this node
        only."""
        parts = [self._find_for(node_id, id) for id, _ in self._state.modules.items()]
        return [part.desired for part in parts if part is not None]

    def joined(self, link: ModuleLink, hello: Handshake) -> None:
        node_id = link.facts.node_id
        observed = self._observed(link, hello)
        find = functools.partial(self._find_for, node_id)
        sync = ModuleSync(link, observed=observed, find=find, blobs=self._blobs, progress=self._progress)
        desired = [module.id for module in self.desired(node_id)]
        sync.changed(sorted(observed.keys() - set(desired)))  # removals first: they make room for installs
        sync.changed(desired)
        self._syncs[link.facts.id] = sync
        self._running[link.facts.id] = self._tasks.spawn(sync.run(), name=f"modules_on_nodes/sync/{node_id}")
        self._present[node_id] = link.facts.id

    def _observed(self, link: ModuleLink, hello: Handshake) -> dict[str, ObservedModule]:
        """Observed set: what the node lists. A node that lists nothing is sent everything, and the removal of
        what it once reported."""
        if link.facts.supports.modules:
            entries = entries_of(hello.modules)
            return {id: self._counted(read_observed(entry)) for id, entry in entries.items()}
        states = self._state.module_node_states.of_node(link.facts.node_id)
        return {stored.record.module: ObservedModule(id=stored.record.module) for stored in states}

    def _counted(self, observed: ObservedModule) -> ObservedModule:
        """A daemon that does not count reloads receives only those that are requested from now on."""
        part = self._find(observed.id)
        if observed.reload_ms is not None or part is None:
            return observed
        return msgspec.structs.replace(observed, reload_ms=part.desired.reload_ms)

    def left(self, link: ModuleLink) -> None:
        """Stop the sync of this session, which has ended."""
        if self._syncs.pop(link.facts.id, None) is None:
            return
        self._running.pop(link.facts.id).cancel()
        node_id = link.facts.node_id
        if self._present.get(node_id) == link.facts.id:
            del self._present[node_id]
            self._progress.left(node_id)

    def follow(self, commit: Commit) -> None:
        """Notify the syncs of the changed packages; they work afterwards."""
        packages = [change.id for change in commit.changes if change.collection == MODULE_PACKAGES.name]
        moved = [id for id in packages if self._moved(id)]
        for change in commit.changes:
            if change.collection == MODULE_NODE_STATES.name:
                self._state_changed(change.id)
        if moved:
            for sync in self._syncs.values():
                sync.changed(moved)

    def resync(self) -> None:
        """Have every sync compare all that its node has with all that is desired."""
        for sync in self._syncs.values():
            sync.changed_all(id for id, _ in self._state.modules.items())
        for key, _ in self._state.module_node_states.items():
            self._state_changed(key)

    def _moved(self, id: str) -> bool:
        """Does the change of a package concern nodes? Most changes are steps of its part on the
        controller."""
        _, before = self._known.get(id, (0, None))
        after = self._find(id)
        return (before and before.desired) != (after and after.desired)

    def _state_changed(self, key: str) -> None:
        node, _, module = key.partition("/")
        stored = self._state.module_node_states.find(key)
        sync = self._present_sync(NodeId(node))
        if stored is not None and sync is not None:
            sync.report(stored.record)
            if stored.record.pending_recover_ms:
                sync.changed([module])
        part = self._find(module)
        if stored is None or part is None or part.desired.sha256 in _digests(stored.record):
            self._progress.arrived(NodeId(node), module)

    def connected(self, node_id: NodeId) -> bool:
        return node_id in self._present

    def knows(self, link: ModuleLink, id: str) -> bool:
        """Was this module ever named in this session?"""
        sync = self._syncs.get(link.facts.id)
        return sync is not None and sync.knows(id)

    async def close(self) -> None:
        self._syncs.clear()
        self._running.clear()
        self._present.clear()
        await self._tasks.close()

    def _present_sync(self, node_id: NodeId) -> ModuleSync | None:
        session = self._present.get(node_id)
        return self._syncs.get(session) if session is not None else None

    def _find_for(self, node_id: NodeId, id: str) -> DesiredPackage | None:
        """The desired package with the node's pending recover request, until that is carried out."""
        part = self._find(id)
        stored = self._state.module_node_states.find(node_module_key(node_id, id))
        if part is None or stored is None or not stored.record.pending_recover_ms:
            return part
        desired = msgspec.structs.replace(part.desired, recover_ms=stored.record.pending_recover_ms)
        record = msgspec.structs.replace(part.record, request=stored.record.recover_request)
        return DesiredPackage(record=record, desired=desired)

    def _find(self, id: str) -> DesiredPackage | None:
        """The desired package, computed once per revision of a record, not per session."""
        stored = self._state.modules.find(id)
        if stored is None:
            self._known.pop(id, None)
            return None
        known = self._known.get(id)
        if known is None or known[0] != stored.revision:
            desired = desired_on_nodes(stored.record)
            part = DesiredPackage(record=stored.record, desired=desired) if desired is not None else None
            known = self._known[id] = (stored.revision, part)
        return known[1]


def desired_on_nodes(record: PackageRecord) -> DesiredModule | None:
    """The desired package for nodes; None when the module has no part for nodes."""
    if ModuleHost.DAEMON not in record.manifest.hosts:
        return None
    return DesiredModule(
        id=record.id,
        version=record.version,
        sha256=record.sha256,
        intent=record.intent,
        paused_reason=record.paused_reason if record.intent is ModuleIntent.PAUSED else "",
        settings_sha256=settings_digest(record.settings),
        signature_sha256=record.signature.blob if record.signature else "",
        reload_ms=record.reload_asked_ms,
    )


def _digests(state: NodeModuleState) -> tuple[str, str]:
    return state.sha256, state.refused_sha256
