"""The spread of a group's instances over nodes, or over the values of a label: how uneven one more would make it."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping

from corral.domain.decisions import Numbers
from corral.domain.groups.group import BY_NODE, SpreadSpec
from corral.domain.node_states import Admission, NodeState
from corral.domain.planning.node_table import NodeTable
from corral.domain.planning.node_views import NodeView


class SpreadCounts:
    """How the instances of a group are spread over nodes, or over the values of a label."""

    def __init__(
        self,
        table: NodeTable,
        rule: SpreadSpec,
        here: Mapping[str, int],
        never: Callable[[NodeView], bool],
    ) -> None:
        """`never`: the node can take none of the group."""
        self._rule = rule
        self._here = here
        self._never = never
        self._domains: collections.Counter[str] = collections.Counter()
        self._fewest = ("", 0)
        if rule.by != BY_NODE or rule.max_skew is not None:
            self._count(table)

    def _count(self, table: NodeTable) -> None:
        """Count the instances of each domain. One where no node can take any of them now does not count as empty: it
        would keep all others from growing."""
        usable: set[str] = set()
        for room in table.rooms(None, None):
            view = room.view
            domain = self._domain(view)
            if domain is None:
                continue
            self._domains[domain] += self._here.get(view.id, 0)
            open_now = view.state is NodeState.ONLINE and view.admission is Admission.OPEN
            if open_now and domain not in usable and not self._never(view):
                usable.add(domain)
        found = [(count, domain) for domain, count in self._domains.items() if domain in usable]
        count, domain = min(found, default=(0, ""))
        self._fewest = domain, count

    def _domain(self, view: NodeView) -> str | None:
        """Its node or the value of its label. Nodes without the label are one place, unless there is a `max_skew`."""
        if self._rule.by == BY_NODE:
            return view.id
        return view.labels.get(self._rule.by, "" if self._rule.max_skew is None else None)

    def penalty(self, view: NodeView) -> float:
        if self._rule.by == BY_NODE:
            more = self._here.get(view.id, 0)
        else:
            domain = self._domain(view)
            more = max(0, self._domains[domain] - self._fewest[1]) if domain is not None else 0
        return self._rule.weight / 100 * (1.0 - 1.0 / (1 + more))

    def skewed(self, view: NodeView) -> Numbers | None:
        """Would one more there be more than `max_skew` above the fewest elsewhere?"""
        most = self._rule.max_skew
        if most is None:
            return None
        domain = self._domain(view)
        if domain is None:
            return {"kind": "none", "by": self._rule.by}
        count, (fewest_in, fewest) = self._domains[domain], self._fewest
        if count + 1 - fewest <= most:
            return None
        return {
            "kind": "node" if self._rule.by == BY_NODE else "label",
            "by": self._rule.by,
            "domain": domain,
            "count": count,
            "fewest_in": fewest_in,
            "fewest": fewest,
            "max_skew": most,
        }
