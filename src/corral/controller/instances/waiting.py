"""Waiting for an instance to become something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.collections import INSTANCES, NODES
from corral.controller.state.mirrors import Stored
from corral.domain.ids import Incarnation, same_start
from corral.domain.instance_records import InstanceRecord, live
from corral.domain.node_states import NodeState
from corral.errors import Code, Retryable
from corral.store.port import Commit


class Waiters:
    """Wakes those who wait for an instance whenever a commit changes it."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self._for_nodes: set[asyncio.Event] = set()

    def follow(self, commit: Commit) -> None:
        if not self._waiting and not self._for_nodes:
            return
        for change in commit.changes:
            if change.collection == INSTANCES.name:
                for event in self._waiting.get(change.id, ()):
                    event.set()
            elif change.collection == NODES.name:
                for event in self._for_nodes:
                    event.set()

    def resync(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()
        for event in self._for_nodes:
            event.set()

    async def returned(self, nodes: Collection[str], timeout: float) -> bool:
        """Whether one of these nodes has a session, now or within `timeout` seconds."""
        changed = asyncio.Event()
        self._for_nodes.add(changed)
        try:
            async with asyncio.timeout(timeout):
                while not any(self._is_online(id) for id in nodes):
                    changed.clear()
                    await changed.wait()
            return True
        except TimeoutError:
            return False
        finally:
            self._for_nodes.discard(changed)

    def _is_online(self, id: str) -> bool:
        stored = self._state.nodes.find(id)
        return stored is not None and stored.record.state is NodeState.ONLINE

    async def settled(
        self, id: str, incarnation: int, wanted: Callable[[InstanceRecord], bool], timeout: float
    ) -> Stored[InstanceRecord]:
        """The record as soon as it is as wanted, its run is over, or another start took its place.

        NOT_FOUND when it was removed, TIMEOUT when it takes too long; the caller looks at what he got.
        """
        changed = asyncio.Event()
        self._waiting.setdefault(id, set()).add(changed)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    changed.clear()
                    stored = self._state.instances.require(id)
                    record = stored.record
                    other = not same_start(record.incarnation, Incarnation(incarnation))
                    if wanted(record) or other or not live(record.state):
                        return stored
                    await changed.wait()
        except TimeoutError:
            found = self._state.instances.require(id).record
            raise Retryable(
                Code.TIMEOUT,
                f"instance '{id}' is still {found.state} after {timeout:g} s",
                hint=found.reason or None,
            ) from None
        finally:
            self._waiting[id].discard(changed)
            if not self._waiting[id]:
                del self._waiting[id]
