"""How many files of instances are under way with each node at a time, and how many of these are of one caller or of one
instance: nobody keeps the others of a node from theirs."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

from corral.domain.ids import NodeId
from corral.errors import Code, Retryable


class FileTurns:
    """The turns of one kind. A turn is held until the node is done with it, also when its caller is gone by then."""

    def __init__(self, what: str, *, at_once: int, per_caller: int, per_instance: int) -> None:
        self._what = what
        self._at_once = at_once
        self._per_caller = per_caller
        self._per_instance = per_instance
        self._taken: Counter[tuple[str, ...]] = Counter()

    def __len__(self) -> int:
        """How many nodes, callers and instances have some."""
        return len(self._taken)

    @contextlib.contextmanager
    def taken(self, node_id: NodeId, *, caller: str, instance: str) -> Iterator[None]:
        """RATE_LIMITED when there is none left, or none for this caller or instance."""
        node, of_caller, of_instance = (
            (node_id,),
            (node_id, "caller", caller),
            (node_id, "instance", instance),
        )
        if self._taken[of_caller] >= self._per_caller:
            raise self._refused(
                f"{self._per_caller} {self._what} of yours are under way with node '{node_id}'"
            )
        if self._taken[of_instance] >= self._per_instance:
            raise self._refused(f"{self._per_instance} {self._what} of instance '{instance}' are under way")
        if self._taken[node] >= self._at_once:
            raise self._refused(f"{self._at_once} {self._what} are under way with node '{node_id}'")
        keys = (node, of_caller, of_instance)
        self._taken.update(keys)
        try:
            yield
        finally:
            self._taken.subtract(keys)
            for key in keys:
                if not self._taken[key]:
                    del self._taken[key]

    def _refused(self, why: str) -> Retryable:
        return Retryable(
            Code.RATE_LIMITED, f"{why} already", hint="try again when one is done", retry_after=2.0
        )
