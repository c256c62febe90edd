"""How modules stand on nodes, by node and by module."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from corral.controller.state.collections import MODULE_NODE_STATES
from corral.controller.state.mirrors import Mirror, Stored
from corral.domain.module_records import NodeModuleState


class NodeStateMirror(Mirror[NodeModuleState]):
    """Indexed both ways: neither a node that connects nor a module that is shown looks at all of them."""

    def __init__(self) -> None:
        super().__init__(MODULE_NODE_STATES, "state of a module on a node")
        self._by_node: dict[str, set[str]] = {}
        self._by_module: dict[str, set[str]] = {}

    def of_node(self, node: str) -> list[Stored[NodeModuleState]]:
        """In the order of the modules' ids."""
        return self._listed(self._by_node.get(node, ()))

    def of_module(self, module: str) -> list[Stored[NodeModuleState]]:
        """In the order of the nodes' ids."""
        return self._listed(self._by_module.get(module, ()))

    def rows_of_module(self, module: str) -> Iterator[NodeModuleState]:
        """In no order, for whoever only counts."""
        return (self._documents[id].record for id in self._by_module.get(module, ()))

    def _listed(self, ids: Iterable[str]) -> list[Stored[NodeModuleState]]:
        return [self._documents[id] for id in sorted(ids)]

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        super().fold(id, revision, body)
        node, _, module = id.partition("/")
        for index, key in ((self._by_node, node), (self._by_module, module)):
            if body is not None:
                index.setdefault(key, set()).add(id)
            elif key in index:
                index[key].discard(id)
                if not index[key]:
                    del index[key]
