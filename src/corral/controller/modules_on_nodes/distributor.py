"""Every connected node is brought to the packages that are installed, and kept there.

The records are the truth. A session begins with the difference between them and what the node says that it
has; from then on each commit that changes a package is followed, each session at its own pace.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Final

import msgspec

from corral.controller.cluster_state import ClusterState
from corral.controller.collections import MODULE_NODE_STATES, MODULE_PACKAGES
from corral.controller.modules_on_nodes.comparison import Had, Wanted, wanted_on_nodes
from corral.controller.modules_on_nodes.courier import Courier, Package
from corral.controller.modules_on_nodes.frames import entries_of, had_of
from corral.controller.modules_on_nodes.parcels import Parcels
from corral.controller.modules_on_nodes.ports import ModuleLink
from corral.controller.modules_on_nodes.progress import Progress
from corral.domain.ids import NodeId, SessionId
from corral.domain.module_nodes import NodeModuleState, node_module_key
from corral.store.port import BlobEngine, Commit
from corral.wire import features
from corral.wire.v1.node_pb2 import Handshake


class _Errand:
    """A courier at work."""

    def __init__(self, node_id: NodeId, courier: Courier) -> None:
        self.node_id: Final = node_id
        self.courier: Final = courier
        self.task: Final = asyncio.create_task(courier.run(), name=f"modules_on_nodes/courier/{node_id}")


class Distributor:
    """One courier a session, known by the session: what an old one leaves behind is its own."""

    def __init__(self, *, state: ClusterState, blobs: BlobEngine, progress: Progress) -> None:
        self._state = state
        self._parcels = Parcels(blobs)
        self._progress = progress
        self._errands: dict[SessionId, _Errand] = {}
        self._present: dict[NodeId, SessionId] = {}
        self._known: dict[str, tuple[int, Package | None]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def wanted(self, node_id: NodeId) -> list[Wanted]:
        """The set that a node shall have, by id: the same for all, but for what is asked of this one alone."""
        packages = [self._find_for(node_id, id) for id, _ in self._state.modules.items()]
        return [package.wanted for package in packages if package is not None]

    def joined(self, link: ModuleLink, hello: Handshake) -> None:
        node_id = link.facts.node_id
        had = self._had(link, hello)
        find = functools.partial(self._find_for, node_id)
        courier = Courier(link, had=had, find=find, parcels=self._parcels, progress=self._progress)
        wanted = [wanted.id for wanted in self.wanted(node_id)]
        courier.changed(sorted(had.keys() - set(wanted)))  # what goes makes room for what comes
        courier.changed(wanted)
        self._errands[link.facts.id] = _Errand(node_id, courier)
        self._present[node_id] = link.facts.id

    def _had(self, link: ModuleLink, hello: Handshake) -> dict[str, Had]:
        """What the node says. One that says nothing is given everything, and relieved of what it once
        said it had."""
        if features.MODULES in link.facts.features:
            return {id: self._counted(had_of(entry), id) for id, entry in entries_of(hello.modules).items()}
        states = self._state.module_node_states.of_node(link.facts.node_id)
        return {stored.record.module: Had() for stored in states}

    def _counted(self, had: Had, id: str) -> Had:
        """A daemon that does not count reloads hears of those that are asked for from now on."""
        package = self._find(id)
        if had.reload_ms is not None or package is None:
            return had
        return msgspec.structs.replace(had, reload_ms=package.wanted.reload_ms)

    def left(self, link: ModuleLink) -> None:
        """This very session has ended."""
        errand = self._errands.pop(link.facts.id, None)
        if errand is None:
            return
        errand.task.cancel()
        self._ending.add(errand.task)
        errand.task.add_done_callback(self._ending.discard)
        if self._present.get(errand.node_id) == link.facts.id:
            del self._present[errand.node_id]
            self._progress.left(errand.node_id)

    def follow(self, commit: Commit) -> None:
        """Tell the couriers what changed; they do their work afterwards."""
        packages = [change.id for change in commit.changes if change.collection == MODULE_PACKAGES.name]
        moved = [id for id in packages if self._moved(id)]
        for change in commit.changes:
            if change.collection == MODULE_NODE_STATES.name:
                self._heard(change.id)
        if moved:
            for errand in self._errands.values():
                errand.courier.changed(moved)

    def resync(self) -> None:
        """Have every courier compare all that its node has with all that it shall have."""
        for errand in self._errands.values():
            errand.courier.changed_all(id for id, _ in self._state.modules.items())
        for key, _ in self._state.module_node_states.items():
            self._heard(key)

    def _moved(self, id: str) -> bool:
        """Does a change of a package concern nodes? Most are steps of its part on the controller."""
        _, before = self._known.get(id, (0, None))
        after = self._find(id)
        return (before and before.wanted) != (after and after.wanted)

    def _heard(self, key: str) -> None:
        node, _, module = key.partition("/")
        stored = self._state.module_node_states.find(key)
        errand = self._present_errand(NodeId(node))
        if stored is not None and errand is not None:
            errand.courier.heard(stored.record)
            if stored.record.recover_owed_ms:
                errand.courier.changed([module])
        package = self._find(module)
        if stored is None or package is None or package.wanted.sha256 in _digests(stored.record):
            self._progress.arrived(NodeId(node), module)

    def connected(self, node_id: NodeId) -> bool:
        return node_id in self._present

    def knows(self, link: ModuleLink, id: str) -> bool:
        """Was this module spoken of with this session?"""
        errand = self._errands.get(link.facts.id)
        return errand is not None and errand.courier.knows(id)

    async def close(self) -> None:
        tasks = [errand.task for errand in self._errands.values()] + list(self._ending)
        self._errands.clear()
        self._present.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _present_errand(self, node_id: NodeId) -> _Errand | None:
        session = self._present.get(node_id)
        return self._errands.get(session) if session is not None else None

    def _find_for(self, node_id: NodeId, id: str) -> Package | None:
        """With the wish for another try on this node, until it is carried out."""
        package = self._find(id)
        stored = self._state.module_node_states.find(node_module_key(node_id, id))
        if package is None or stored is None or not stored.record.recover_owed_ms:
            return package
        wanted = msgspec.structs.replace(package.wanted, recover_ms=stored.record.recover_owed_ms)
        return Package(record=package.record, wanted=wanted)

    def _find(self, id: str) -> Package | None:
        """Made once for each revision of a record, not for each session."""
        stored = self._state.modules.find(id)
        if stored is None:
            self._known.pop(id, None)
            return None
        known = self._known.get(id)
        if known is None or known[0] != stored.revision:
            wanted = wanted_on_nodes(stored.record)
            package = Package(record=stored.record, wanted=wanted) if wanted is not None else None
            known = self._known[id] = (stored.revision, package)
        return known[1]


def _digests(state: NodeModuleState) -> tuple[str, str]:
    return state.sha256, state.refused_sha256
