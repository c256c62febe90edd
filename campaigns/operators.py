"""Operators who change groups and nodes at random, and remember what was acknowledged.

Each has groups of its own, so that what it wrote is what has to be there. A refusal is an answer like any other; only
what was accepted is expected.
"""

from __future__ import annotations

import asyncio
import collections
import pathlib
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final

from campaigns import holder
from campaigns.fleet import NODES, Fleet, Refused
from corral.testing.ports import free_range

Fields = dict[str, Any]
ALWAYS_FAILS: Final = "fails"
_ZONES: Final = ("a", "b", "c")


class Expected:
    """What was acknowledged."""

    def __init__(self) -> None:
        self.groups: dict[str, Fields] = {}
        """By name, the fields that were written."""
        self.held: set[str] = set()
        self.nodes: dict[str, Fields] = {node: {} for node in NODES}
        self.stopped: dict[str, str] = {}
        """Instances that were stopped by hand, with their groups."""
        self.restarts_refused: set[str] = set()
        """Instances that were stopped by hand before a restart of them was refused: they may be stopped still."""
        self.deleted: set[str] = set()
        self.refusals: collections.Counter[str] = collections.Counter()
        self.accepted: collections.Counter[str] = collections.Counter()
        self.violations: list[str] = []

    def wrote(self, name: str, fields: Fields) -> None:
        self.groups[name] = fields
        self.deleted.discard(name)

    def gone(self, name: str) -> None:
        self.groups.pop(name, None)
        self.held.discard(name)
        self.deleted.add(name)
        self.stopped = {id: group for id, group in self.stopped.items() if group != name}


def base_document(name: str, side: pathlib.Path) -> Fields:
    program = str(pathlib.Path(holder.__file__).resolve())
    return {
        "name": name,
        "abstract": True,
        "command": [sys.executable, "-I", "-S", program, str(side)],
        "args": ["stays", "%HOST_ADDRESS%"],
        "min_alive_ms": 200,
        "probes": [{"kind": "log", "pattern": "holds"}],
        "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
        "crash_loop": {"failures": 4, "within_seconds": 20, "pause_seconds": 3, "max_pause_seconds": 6},
    }


def failing_document(side: pathlib.Path) -> Fields:
    """A group that is paused soon and stays so."""
    loop = {"failures": 2, "within_seconds": 300, "pause_seconds": 86400, "max_pause_seconds": 86400}
    base = base_document(ALWAYS_FAILS, side)
    return {**base, "abstract": False, "args": ["fails", "%HOST_ADDRESS%"], "min": 1, "crash_loop": loop}


class Operator:
    """One operator; `common` keeps two from changing the same node at once."""

    def __init__(
        self, name: str, fleet: Fleet, expected: Expected, dice: random.Random, common: asyncio.Lock
    ) -> None:
        self._name = name
        self._fleet = fleet
        self._expected = expected
        self._dice = dice
        self._common = common
        self._base = f"{name}-base"
        self._names = [f"{name}-{letter}" for letter in "pqrs"]
        self._first_port, _ = free_range(40)
        self._actions: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (5, self._apply), (6, self._patch), (5, self._scale), (2, self._hold), (3, self._release),
            (3, self._start), (4, self._stop), (2, self._restart), (1, self._delete), (1, self._unpause),
            (2, self._cordon), (3, self._uncordon), (3, self._limit_node), (2, self._label_node),
        ]  # fmt: skip

    async def act(self) -> None:
        weights, actions = zip(*self._actions, strict=True)
        (action,) = self._dice.choices(actions, weights)
        name = action.__name__.lstrip("_")
        try:
            await action()
            self._expected.accepted[name] += 1
        except Refused as refused:
            self._expected.refusals[f"{name} {refused.code}"] += 1

    async def begin(self) -> None:
        """Apply the whole set once."""
        await self._apply_documents([self._document(name, whole=True) for name in self._names])

    # documents

    def _document(self, name: str, *, whole: bool = False) -> Fields:
        dice = self._dice
        low = dice.choice((0, 1, 1, 2, 3))
        written: Fields = {"name": name, "parent": self._base, "min": low}
        written["memory_mb"] = dice.choice((0, 50, 100, 200, 350))
        written["restart"] = {
            "attempts": dice.choice((0, 0, 1, 2)),
            "on": dice.choice(("always", "always", "failure")),
        }
        optional: list[tuple[float, Fields]] = [
            (0.4, {"max": low + dice.randrange(3)}),
            (0.4, {"cpu": dice.choice((0.25, 0.5, 1.0))}),
            (0.5, self._ports()),
            (0.2, {"node_labels": {"zone": dice.choice(_ZONES)}}),
            (0.15, {"nodes": dice.sample(NODES, dice.choice((1, 2)))}),
            (0.3, {"warm": dice.choice((1, 2))}),
            (0.3, {"priority": dice.choice((10, 50, 90))}),
            (0.25, {"spread": [{"by": dice.choice(("node", "zone")), "max_skew": dice.choice((1, 2))}]}),
            (0.2, {"affinity": [{"label": f"zone={dice.choice(_ZONES)}", "weight": dice.choice((80, -80)), "required": dice.random() < 0.4}]}),
        ]  # fmt: skip
        for chance, fields in optional:
            if dice.random() < chance:
                written |= fields
        before = self._names[: self._names.index(name)]
        if before and dice.random() < 0.3:
            written["depends_on"] = [{"group": dice.choice(before), "ready": dice.choice((1, 2))}]
        if before and dice.random() < 0.2:
            near = {
                "group": dice.choice(before),
                "weight": dice.choice((60, -60)),
                "required": dice.random() < 0.5,
            }
            written["affinity"] = [*written.get("affinity", ()), near]
        if name == self._names[-1] and whole:
            written["static"] = True
        if written.get("static") or self._is_static(name):
            written = {key: value for key, value in written.items() if key not in ("warm",)} | {
                "static": True
            }
        return written

    def _ports(self) -> Fields:
        dice = self._dice
        first = self._first_port + 10 * dice.randrange(3)
        last = first + dice.choice((1, 3, 7))
        tied = {"of": "game", "offset": 1, "protocol": "udp"}
        ports = {"game": {"range": [first, last], "protocol": dice.choice(("udp", "both"))}, "query": tied}
        return {"ports": ports, "args": ["stays", "%HOST_ADDRESS%", "%PORT_GAME%", "%PORT_QUERY%"]}

    def _is_static(self, name: str) -> bool:
        return bool(self._expected.groups.get(name, {}).get("static"))

    async def _apply(self) -> None:
        """A set: some documents anew, the others as they were."""
        documents = []
        for name in self._names:
            known = self._expected.groups.get(name)
            if known is None or self._dice.random() < 0.5:
                documents.append(self._document(name))
            else:
                documents.append(known)
        await self._apply_documents(documents)

    async def _apply_documents(self, documents: list[Fields]) -> None:
        base = base_document(self._base, self._fleet.side)
        base["labels"] = {"turn": str(self._dice.randrange(3))}
        every = [base, *documents]
        body = {"documents": [{"path": each["name"], "body": each} for each in every], "owner": self._name}
        await self._fleet.call("POST", "/api/v1/apply", {**body, "force": True})
        for each in every:
            self._expected.wrote(each["name"], each)
        again = await self._fleet.call("POST", "/api/v1/apply", body)
        if again["created"] or again["changed"] or again["deleted"]:
            self._expected.violations.append(
                f"I19: a second apply of the set of '{self._name}': {again['summary']}"
            )

    async def _patch(self) -> None:
        name = self._dice.choice(self._names)
        dice = self._dice
        patch: Fields = dice.choice([
            {"min": dice.randrange(4)},
            {"max": dice.choice((None, 2, 3, 4))},
            {"memory_mb": dice.choice((0, 50, 150, 300))},
            {"warm": dice.randrange(3)},
            {"node_labels": {"zone": dice.choice((None, *_ZONES))}},
            {"priority": dice.randrange(101)},
            {"depends_on": []},
            {"labels": {"patched": str(dice.randrange(100))}},
            {"scaling": {"mode": dice.choice(("MANUAL", "MANUAL", "STATIC"))}},
        ])  # fmt: skip
        await self._fleet.call("PATCH", f"/api/v1/groups/{name}", patch)
        known = self._expected.groups.get(name)
        if known is not None:
            self._expected.wrote(name, merged(known, patch))

    # numbers

    async def _scale(self) -> None:
        name = self._dice.choice(self._names)
        await self._fleet.call("POST", f"/api/v1/groups/{name}/scale", {"count": self._dice.randrange(5)})

    async def _hold(self) -> None:
        name = self._dice.choice(self._names)
        order = {"reason": "campaign", "when_empty": self._dice.random() < 0.2}
        await self._fleet.call("POST", f"/api/v1/groups/{name}/hold", order)
        self._expected.held.add(name)

    async def _release(self) -> None:
        held = [name for name in self._names if name in self._expected.held]
        if held:
            name = self._dice.choice(held)
            await self._fleet.call("POST", f"/api/v1/groups/{name}/release")
            self._expected.held.discard(name)

    async def _start(self) -> None:
        name = self._dice.choice(self._names)
        made = await self._fleet.call("POST", "/api/v1/instances", {"group": name})
        self._expected.stopped.pop(made["id"], None)

    async def _stop(self) -> None:
        name, id = await self._any_instance()
        if id:
            how = self._dice.choice(("stop", "stop", "kill"))
            await self._fleet.call("POST", f"/api/v1/instances/{id}/{how}", {})
            self._expected.stopped[id] = name

    async def _restart(self) -> None:
        _, id = await self._any_instance()
        if id:
            if self._expected.stopped.pop(id, None) is not None:
                self._expected.restarts_refused.add(id)
            await self._fleet.call("POST", f"/api/v1/instances/{id}/restart", {})
            self._expected.restarts_refused.discard(id)

    async def _any_instance(self) -> tuple[str, str]:
        name = self._dice.choice(self._names)
        page = await self._fleet.get(f"/api/v1/instances?group={name}&live=true&limit=500")
        ids = [each["id"] for each in page["items"]]
        return name, self._dice.choice(ids) if ids else ""

    async def _delete(self) -> None:
        name = self._dice.choice(self._names)
        await self._fleet.call("DELETE", f"/api/v1/groups/{name}?cascade=true&confirm={name}")
        self._expected.gone(name)

    async def _unpause(self) -> None:
        await self._fleet.call("POST", f"/api/v1/groups/{self._dice.choice(self._names)}/unpause")

    # nodes

    async def _cordon(self) -> None:
        await self._change_node("cordon", {"reason": "campaign"}, {"admission": "cordoned"})

    async def _uncordon(self) -> None:
        await self._change_node("uncordon", None, {"admission": "open"})

    async def _change_node(self, verb: str, body: Fields | None, then: Fields) -> None:
        async with self._common:
            node = self._dice.choice(NODES)
            await self._fleet.call("POST", f"/api/v1/nodes/{node}/{verb}", body or {})
            self._expected.nodes[node] |= then

    async def _limit_node(self) -> None:
        async with self._common:
            node = self._dice.choice(NODES)
            limits = {"memory_mb": self._dice.choice((300, 600, 900)), "cpus": self._dice.choice((1, 2))}
            await self._fleet.call("PATCH", f"/api/v1/nodes/{node}", limits)
            self._expected.nodes[node] |= limits

    async def _label_node(self) -> None:
        async with self._common:
            node = self._dice.choice(NODES)
            labels = {"zone": self._dice.choice(_ZONES[:2])}
            await self._fleet.call("PATCH", f"/api/v1/nodes/{node}", {"labels": labels})
            self._expected.nodes[node] |= {"labels": labels}


def merged(document: Fields, patch: Fields) -> Fields:
    """A JSON merge patch; null stays where the document has a parent."""
    found = dict(document)
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(found.get(key), dict):
            found[key] = merged(found[key], value)
        else:
            found[key] = value
    return found
