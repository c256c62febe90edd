"""The crashes of nodes as a transaction leaves them: a bounded number of each node."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from corral.controller.instances.overlay import Overlay, restoring
from corral.controller.state.cluster_state import ClusterState
from corral.domain.groups.crash_records import CrashRecord


class CrashChanges:
    """Which crashes a transaction adds and removes. Each crash is visited once, however many it adds."""

    def __init__(self, state: ClusterState, overlay: Overlay) -> None:
        self._state = state
        self._overlay = overlay
        self._ids: dict[str, OrderedDict[str, None]] = {}
        self._newest: dict[str, str] = {}
        """By instance, the newest crash that this transaction adds."""

    def add(
        self, record: CrashRecord, *, most: int, instead: bool, undo: list[Callable[[], object]]
    ) -> list[str]:
        """Count a crash that is added; returns the ids of those that go for it. See `Workspace.put_crash`."""
        gone: list[str] = []
        ids = self._of_node(record.node)
        newest = self._newest_of(record.instance) if instead else None
        if newest is not None and ids.pop(newest, "") is None:
            gone.append(newest)
        while len(ids) >= most:
            oldest, _ = ids.popitem(last=False)
            gone.append(oldest)
        ids[record.id] = None
        undo.append(lambda: self._ids.pop(record.node, None))
        undo.append(restoring(self._newest, record.instance))
        self._newest[record.instance] = record.id
        return gone

    def _newest_of(self, instance: str) -> str | None:
        return self._newest.get(instance) or self._state.crashes.newest_of(instance)

    def _of_node(self, node: str) -> OrderedDict[str, None]:
        """The ids of this node's crashes, the oldest first, as this transaction leaves them."""
        if node not in self._ids:
            changed = self._overlay.changed
            ids = [id for id in self._state.crashes.of_node(node) if id not in changed]
            ids += [id for id, new in changed.items() if isinstance(new, CrashRecord) and new.node == node]
            self._ids[node] = OrderedDict.fromkeys(ids)
        return self._ids[node]
