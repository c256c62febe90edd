"""An operator of groups that are scaled and healed: edits them, gives orders, and remembers what was ordered."""

from __future__ import annotations

import collections
import contextlib
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from campaigns.crowd import program
from campaigns.fleet import NODES, Fleet, Refused
from campaigns.operators import merged
from corral.testing.ports import free_range

Fields = dict[str, Any]
SLOTS: Final = 10
LADDER_SECONDS: Final = 5
_QUICK: Final = {"mode": "DYNAMIC", "idle_seconds": 2, "window_seconds": 3, "cooldown_seconds": 2}
_STAYS: Final = ["stays", "%HOST_ADDRESS%"]
GROUPS: Final[dict[str, Fields]] = {
    "hand": {"min": 2, "max": 5, "scaling": {**_QUICK, "mode": "MANUAL"}, "disconnect": {"replace_after_seconds": 4}},
    "load": {"min": 1, "max": 5, "warm": 1, "scaling": {**_QUICK, "free_slots": 5}, "disconnect": {"replace_after_seconds": 3}},
    "step": {"min": 0, "max": 6, "scaling": {**_QUICK, "max_step": 1, "free_slots": 1}, "disconnect": {"replace_after_seconds": 6}},
    "fixed": {"min": 2, "scaling": {"mode": "STATIC"}, "disconnect": {"replace_after_seconds": 2}},
    "world": {"min": 2, "max": 3, "static": True},
    "single": {"min": 1, "max": 1, "disconnect": {"stop_after_seconds": 3, "replace_after_seconds": 18}},
    "timed": {
        "min": 1, "max": 4, "scaling": dict(_QUICK), "disconnect": {"replace_after_seconds": 5},
        "schedules": [
            {"name": "evening", "cron": "*/2 * * * *", "duration_seconds": 60, "min": 3, "warm": 1},
            {"name": "night", "cron": "1-59/4 * * * *", "duration_seconds": 60, "max": 2},
            {"name": "noon", "cron": "3-59/4 * * * *", "duration_seconds": 60, "mode": "STATIC"},
        ],
    },
    "match": {"min": 1, "max": 4, "restart": {"on": "failure"}, "disconnect": {"replace_after_seconds": 3}},
    "mute": {"min": 1, "max": 4, "scaling": dict(_QUICK), "args": ["mute", "%HOST_ADDRESS%"], "disconnect": {"replace_after_seconds": 4}},
}  # fmt: skip


class Orders:
    """What was ordered, and when. Times are noted before the request: it may act before it is answered."""

    def __init__(self) -> None:
        self.documents: dict[str, Fields] = {}
        self.held: dict[str, bool] = {}
        """Held groups; the value says that players are waited for."""
        self.stopped: set[str] = set()
        """Stopped by hand, and not started again by hand."""
        self.ends: dict[str, list[float]] = collections.defaultdict(list)
        """Orders that may end players, by instance or group."""
        self.edited: dict[str, float] = collections.defaultdict(float)
        """When a group was last changed."""
        self.cordoned: set[str] = set()
        self.accepted: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()

    def may_end(self, id: str, group: str, since: float, until: float) -> bool:
        """Was the end of this instance ordered between these times?"""
        return any(since <= at <= until for key in (id, group) for at in self.ends[key])


class ScalingOperator:
    """Acts at random, one order after the other."""

    def __init__(self, fleet: Fleet, orders: Orders, dice: random.Random) -> None:
        self._fleet = fleet
        self._orders = orders
        self._dice = dice
        self._first_port, _ = free_range(40)
        self._chosen: list[tuple[int, Callable[[str], Awaitable[None]]]] = []
        self._actions: list[tuple[int, Callable[[str], Awaitable[None]]]] = [
            (8, self._patch), (4, self._scale), (3, self._scale_for), (3, self._start), (3, self._stop),
            (1, self._restart), (1, self._hold), (4, self._release), (1, self._delete), (1, self._cordon),
            (4, self._uncordon), (2, self._unpause), (2, self._maintain), (3, self._bring_back),
        ]  # fmt: skip

    async def begin(self) -> None:
        for name in GROUPS:
            await self._create(name)

    def choose(self, dice: random.Random) -> None:
        """Edits, numbers and some of the other orders, for a while."""
        always, others = self._actions[:2], self._actions[2:]
        self._chosen = always + dice.sample(others, dice.randrange(len(others)))

    async def act(self) -> None:
        await self.make_again()
        weights, actions = zip(*self._chosen, strict=True)
        (action,) = self._dice.choices(actions, weights)
        label = action.__name__.lstrip("_")
        try:
            await action(self._dice.choice(sorted(GROUPS)))
            self._orders.accepted[label] += 1
        except Refused as refused:
            self._orders.refused[f"{label} {refused.code}"] += 1

    def _document(self, name: str) -> Fields:
        return {
            "name": name,
            "command": [sys.executable, "-I", "-S", program(), str(self._fleet.side)],
            "args": _STAYS,
            "env": {"CAMPAIGN_CONTROLLERS": ",".join(self._fleet.http.values())},
            "max_players": SLOTS,
            "memory_mb": 50,
            "min_alive_ms": 200,
            "probes": [{"kind": "log", "pattern": "holds"}],
            "stop": [{"signal": "SIGTERM", "wait_seconds": LADDER_SECONDS}],
            "crash_loop": {"failures": 5, "within_seconds": 15, "pause_seconds": 2, "max_pause_seconds": 4},
            **(self._ports() if name == "hand" else {}),
            **GROUPS[name],
        }

    def _ports(self) -> Fields:
        tied = {"of": "game", "offset": 1, "protocol": "udp"}
        game = {"range": [self._first_port, self._first_port + 16], "protocol": "udp"}
        return {
            "ports": {"game": game, "query": tied},
            "args": [*_STAYS, "%PORT_GAME%", "%PORT_QUERY%"],
        }

    async def _create(self, name: str) -> None:
        document = self._document(name)
        self._orders.edited[name] = time.time()
        await self._fleet.call("POST", "/api/v1/groups", document)
        self._orders.documents[name] = document

    async def _patch(self, name: str) -> None:
        dice = self._dice
        patches: list[Fields] = [
            {"min": dice.randrange(3)},
            {"max": dice.choice((2, 3, 5))},
            {"labels": {"turn": str(dice.randrange(9))}},
        ]
        if name in ("hand", "load", "step", "timed"):
            patches += [
                {"scaling": {"free_slots": dice.choice((0, 1, 5, 12))}},
                {"scaling": {"up_threshold": dice.choice((0.5, 0.8, 1.0))}},
                {"warm": dice.randrange(3)},
                {"disconnect": {"replace_after_seconds": dice.choice((2, 4, 8, None))}},
                {"scaling": {"mode": dice.choice(("MANUAL", "DYNAMIC", "DYNAMIC", "STATIC"))}},
            ]
        if name == "single":
            patches = [{"min": dice.choice((0, 1, 1))}]
        patch = dice.choice(patches)
        self._orders.edited[name] = time.time()
        await self._fleet.call("PATCH", f"/api/v1/groups/{name}", patch)
        self._orders.edited[name] = time.time()
        if name in self._orders.documents:
            self._orders.documents[name] = merged(self._orders.documents[name], patch)

    async def _maintain(self, name: str) -> None:
        order = {"enabled": self._dice.random() < 0.4, "message": "campaign"}
        await self._fleet.call("POST", f"/api/v1/groups/{name}/maintenance", order)

    async def _scale(self, name: str) -> None:
        await self._fleet.call("POST", f"/api/v1/groups/{name}/scale", {"count": self._dice.randrange(5)})

    async def _scale_for(self, name: str) -> None:
        order = {"count": self._dice.randrange(1, 5), "for_seconds": self._dice.choice((2, 5, 10))}
        await self._fleet.call("POST", f"/api/v1/groups/{name}/scale", order)

    # instances

    async def _start(self, name: str) -> None:
        made = await self._fleet.call("POST", "/api/v1/instances", {"group": name})
        self._orders.stopped.discard(made["id"])

    async def _stop(self, name: str) -> None:
        if id := await self._any_instance(name):
            how = self._dice.choice(("stop", "stop", "kill"))
            self._orders.ends[id].append(time.time())
            await self._fleet.call("POST", f"/api/v1/instances/{id}/{how}", {})
            self._orders.stopped.add(id)

    async def _restart(self, name: str) -> None:
        if id := await self._any_instance(name):
            self._orders.ends[id].append(time.time())
            self._orders.stopped.discard(id)
            await self._fleet.call("POST", f"/api/v1/instances/{id}/restart", {})

    async def _bring_back(self, _: str) -> None:
        """A world that was stopped by hand."""
        if worlds := sorted(id for id in self._orders.stopped if id.startswith("world-")):
            id = self._dice.choice(worlds)
            self._orders.ends[id].append(time.time())
            self._orders.stopped.discard(id)
            try:
                await self._fleet.call("POST", f"/api/v1/instances/{id}/restart", {})
            except Refused:
                self._orders.stopped.add(id)
                raise

    async def _any_instance(self, name: str) -> str:
        page = await self._fleet.get(f"/api/v1/instances?group={name}&live=true&limit=500")
        ids = sorted(each["id"] for each in page["items"])
        return self._dice.choice(ids) if ids else ""

    # whole groups, and nodes

    async def _hold(self, name: str) -> None:
        when_empty = self._dice.random() < 0.4
        if not when_empty:
            self._orders.ends[name].append(time.time())
        self._orders.held[name] = when_empty
        order = {"reason": "campaign", "when_empty": when_empty}
        await self._fleet.call("POST", f"/api/v1/groups/{name}/hold", order)

    async def _release(self, _: str) -> None:
        if self._orders.held:
            name = self._dice.choice(sorted(self._orders.held))
            with contextlib.suppress(Refused):  # it is not held: it was deleted meanwhile
                await self._fleet.call("POST", f"/api/v1/groups/{name}/release")
            self._orders.held.pop(name, None)

    async def release_all(self) -> None:
        while self._orders.held:
            await self._release("")
        for node in NODES:
            await self._fleet.call("POST", f"/api/v1/nodes/{node}/uncordon", {})
        self._orders.cordoned.clear()

    async def _delete(self, name: str) -> None:
        """It is made again as soon as it is gone."""
        self._orders.ends[name].append(time.time())
        await self._fleet.call("DELETE", f"/api/v1/groups/{name}?cascade=true&confirm={name}")
        self._orders.documents.pop(name, None)
        self._orders.held.pop(name, None)
        self._orders.stopped = {id for id in self._orders.stopped if id.rpartition("-")[0] != name}

    async def make_again(self) -> bool:
        """Whether all groups are there."""
        for name in GROUPS.keys() - self._orders.documents.keys():
            with contextlib.suppress(Refused):  # its instances are being stopped
                await self._create(name)
        return self._orders.documents.keys() == GROUPS.keys()

    async def _cordon(self, _: str) -> None:
        node = self._dice.choice(NODES)
        await self._fleet.call("POST", f"/api/v1/nodes/{node}/cordon", {"reason": "campaign"})
        self._orders.cordoned.add(node)

    async def _uncordon(self, _: str) -> None:
        if self._orders.cordoned:
            node = self._dice.choice(sorted(self._orders.cordoned))
            await self._fleet.call("POST", f"/api/v1/nodes/{node}/uncordon", {})
            self._orders.cordoned.discard(node)

    async def _unpause(self, name: str) -> None:
        await self._fleet.call("POST", f"/api/v1/groups/{name}/unpause")
