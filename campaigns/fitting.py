"""Which nodes could take one more instance of a group: the arithmetic of the checker, from the documentation alone.

The order of the checks and their codes are those of docs/concepts/placement.md.
"""

from __future__ import annotations

import collections
import datetime as dt
from typing import Any, Final

from campaigns.evidence import port_keys

Item = dict[str, Any]
_SLACK: Final = 1e-6


class Room:
    """The nodes, with what is reserved on them and who runs there."""

    def __init__(
        self,
        nodes: list[Item],
        reservations: dict[str, Item],
        instances: list[Item],
        ledgers: dict[str, Item],
    ) -> None:
        self.nodes = {node["id"]: node for node in nodes}
        self.reserved: dict[str, dict[str, Item]] = {id: {} for id in self.nodes}
        for key, reservation in reservations.items():
            node, _, instance = key.partition("/")
            self.reserved[node][instance] = reservation
        self.runs: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        for each in instances:
            self.runs[each["group"]][each["node"]] += 1
        self._ledgers = ledgers

    def memory(self, node: str) -> int:
        return sum(each.get("memory_mb", 0) for each in self.reserved[node].values())

    def cpu(self, node: str) -> float:
        return sum(float(each.get("cpu", 0.0)) for each in self.reserved[node].values())

    def leased(self, address: str) -> collections.Counter[tuple[int, str]]:
        """How often each port is leased on the nodes of an address."""
        return collections.Counter(
            key
            for id, node in self.nodes.items()
            if node["address"] == address
            for each in self.reserved[id].values()
            for port in each.get("ports", ())
            for key in port_keys(port["port"], port["protocol"])
        )

    def refusals(self, group: Item) -> dict[str, str]:
        """Of the nodes that cannot take one more, the first check that fails."""
        return {id: code for id in self.nodes if (code := self.refusal(group, id))}

    def refusal(self, group: Item, id: str, *, at_home: bool = False) -> str:
        node = self.nodes[id]
        if node["state"] != "ONLINE":
            return "STATE"
        if node["admission"] != "open":
            return "ADMISSION"
        return (
            self._unsuited(group, node)
            or ("" if at_home else self._misplaced(group, node))
            or self._full(group, node)
        )

    def _unsuited(self, group: Item, node: Item) -> str:
        if group["nodes"] and node["id"] not in group["nodes"]:
            return "CHOICE"
        if any(node["labels"].get(key) != value for key, value in group["node_labels"].items()):
            return "LABELS"
        if group["runtime"] not in node["runtimes"]:
            return "RUNTIME"
        return "CAPABILITY" if set(group["node_capabilities"]) - set(node["capabilities"]) else ""

    def _misplaced(self, group: Item, node: Item) -> str:
        for rule in group["affinity"]:
            if rule["required"] and self._applies(rule, node) != (rule["weight"] >= 0):
                return "AFFINITY"
        for rule in group["spread"]:
            if rule["max_skew"] is not None and self._skewed(group, node, rule):
                return "SKEW"
        return ""

    def _applies(self, rule: Item, node: Item) -> bool:
        if rule["group"]:
            return self.runs[rule["group"]][node["id"]] > 0
        key, _, value = rule["label"].partition("=")
        return bool(node["labels"].get(key) == value)

    def _skewed(self, group: Item, node: Item, rule: Item) -> bool:
        def domain(each: Item) -> str | None:
            found: str | None = each["id"] if rule["by"] == "node" else each["labels"].get(rule["by"])
            return found

        counts: collections.Counter[str] = collections.Counter()
        usable = set()
        for each in self.nodes.values():
            where = domain(each)
            if where is not None:
                counts[where] += self.runs[group["name"]][each["id"]]
                if (
                    each["state"] == "ONLINE"
                    and each["admission"] == "open"
                    and not self._unsuited(group, each)
                ):
                    usable.add(where)
        own = domain(node)
        fewest = min((counts[each] for each in usable), default=0)
        return own is None or counts[own] + 1 - fewest > rule["max_skew"]

    def _full(self, group: Item, node: Item) -> str:
        if group["memory_mb"] > max(0, node["memory_mb"] - self.memory(node["id"])):
            return "MEMORY"
        if node["cpus"] and group["cpu"] > max(0.0, node["cpus"] - self.cpu(node["id"])) + _SLACK:
            return "CPU"
        return "" if self._has_ports(group, node) else "PORTS"

    def _has_ports(self, group: Item, node: Item) -> bool:
        """For the shapes of this campaign: one range, and one port tied to it."""
        game, query = group["ports"].get("game"), group["ports"].get("query")
        if game is None:
            return True
        taken = set(self.leased(node["address"])) | self._busy(node["address"])
        first, last = game["range"]
        for number in range(first, last + 1):
            needed = {
                *port_keys(number, game["protocol"]),
                *port_keys(number + query["offset"], query["protocol"]),
            }
            if not needed & taken:
                return True
        return False

    def _busy(self, address: str) -> set[tuple[int, str]]:
        """Ports that nodes found in use less than a minute ago."""
        now = dt.datetime.now(dt.UTC)
        found = set()
        for id, node in self.nodes.items():
            if node["address"] == address:
                for key, until in self._ledgers.get(id, {}).get("refused_ports", {}).items():
                    if dt.datetime.fromisoformat(until) > now:
                        number, _, kind = key.partition("/")
                        found.add((int(number), kind))
        return found
