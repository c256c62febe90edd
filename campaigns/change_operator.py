"""An operator who empties nodes and deploys versions, good and bad ones, and remembers what was ordered."""

from __future__ import annotations

import collections
import contextlib
import itertools
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from campaigns.crowd import program
from campaigns.fleet import NODES, Fleet, Refused

Fields = dict[str, Any]
SLOTS: Final = 10
LADDER_SECONDS: Final = 5
_QUICK: Final = {"min_healthy_seconds": 1, "progress_seconds": 30, "canary_seconds": 2}
_SOON: Final = {"replace_after_seconds": 5}
GROUPS: Final[dict[str, Fields]] = {
    "roll": {"min": 3, "max": 5, "update": dict(_QUICK), "disconnect": _SOON},
    "least": {"min": 3, "max": 5, "min_available": 2, "update": {**_QUICK, "max_surge": 2, "max_failures": 2}, "disconnect": _SOON},
    "first": {"min": 3, "max": 4, "update": {**_QUICK, "max_surge": 0, "max_unavailable": 1, "drain_seconds": 3}, "disconnect": _SOON},
    "trial": {"min": 3, "max": 5, "update": {**_QUICK, "strategy": "canary"}, "disconnect": _SOON},
    "world": {"min": 2, "max": 2, "static": True, "update": dict(_QUICK)},
    "load": {
        "min": 1, "max": 4, "update": dict(_QUICK), "disconnect": _SOON,
        "scaling": {"mode": "DYNAMIC", "idle_seconds": 2, "window_seconds": 3, "cooldown_seconds": 2},
    },
}  # fmt: skip


class ChangeOrders:
    """What was ordered, and when. Times are noted before the request: it may act before it is answered."""

    def __init__(self) -> None:
        self.stopped: set[str] = set()
        self.ends: dict[str, list[float]] = collections.defaultdict(list)
        """Orders that may end players, by instance or group."""
        self.edited: dict[str, float] = collections.defaultdict(float)
        """When the number of a group's instances was last changed."""
        self.deadlines: dict[str, float] = {}
        """By node that is emptied, when its deadline is over, by the monotonic clock."""
        self.forced: dict[str, float] = collections.defaultdict(float)
        """When a deadline of a node was over at the latest: players and numbers do not count then."""
        self.accepted: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()

    def may_end(self, id: str, group: str, since: float, until: float) -> bool:
        """Was the end of this instance ordered between these times?"""
        return any(since <= at <= until for key in (id, group) for at in self.ends[key])


class ChangeOperator:
    """Acts at random, one order after the other."""

    def __init__(self, fleet: Fleet, orders: ChangeOrders, dice: random.Random) -> None:
        self._fleet = fleet
        self._orders = orders
        self._dice = dice
        self._versions = itertools.count(1)
        self.calm = True
        """Nothing is ordered that may leave a group with fewer healthy instances than it is to keep."""
        self._actions: list[tuple[int, Callable[[str], Awaitable[None]]]] = [
            (6, self._deploy), (3, self._deploy_bad), (2, self._restart_group), (2, self._pause), (3, self._resume),
            (2, self._promote), (2, self._roll_back), (1, self._cancel), (4, self._drain), (3, self._undrain),
        ]  # fmt: skip
        self._harsh: list[tuple[int, Callable[[str], Awaitable[None]]]] = [
            (2, self._drain_soon), (1, self._shut_down), (2, self._scale), (2, self._stop), (1, self._hold),
            (3, self._release), (1, self._edit),
        ]  # fmt: skip

    async def begin(self) -> None:
        for name in GROUPS:
            await self._fleet.call("POST", "/api/v1/groups", self._document(name))

    async def act(self) -> None:
        chosen = self._actions if self.calm else self._actions + self._harsh
        weights, actions = zip(*chosen, strict=True)
        (action,) = self._dice.choices(actions, weights)
        label = action.__name__.lstrip("_")
        try:
            await action(self._dice.choice(sorted(GROUPS)))
            self._orders.accepted[label] += 1
        except Refused as refused:
            self._orders.refused[f"{label} {refused.code}"] += 1

    def _document(self, name: str) -> Fields:
        kind = "world" if name == "world" else "stays"
        return {
            "name": name,
            "command": [sys.executable, "-I", "-S", program(), str(self._fleet.side)],
            "args": [kind, "%HOST_ADDRESS%"],
            "env": {"CAMPAIGN_CONTROLLERS": ",".join(self._fleet.http.values()), "VERSION": "0"},
            "max_players": SLOTS,
            "memory_mb": 20,
            "min_alive_ms": 200,
            "probes": [{"kind": "log", "pattern": "holds"}],
            "restart": {"attempts": 0},
            "stop": [{"signal": "SIGTERM", "wait_seconds": LADDER_SECONDS}],
            "crash_loop": {"failures": 20, "within_seconds": 10, "pause_seconds": 2, "max_pause_seconds": 4},
            **GROUPS[name],
        }

    # deployments

    async def _edit(self, name: str, *, bad: bool = False) -> None:
        kind = "bad" if bad else "world" if name == "world" else "stays"
        patch = {"env": {"VERSION": str(next(self._versions))}, "args": [kind, "%HOST_ADDRESS%"]}
        await self._fleet.call("PATCH", f"/api/v1/groups/{name}", patch)

    async def _deploy(self, name: str) -> None:
        await self._edit(name)
        await self._fleet.call("POST", f"/api/v1/groups/{name}/deploy?confirm={name}", {"reason": "campaign"})

    async def _deploy_bad(self, name: str) -> None:
        if name == "world" and self.calm:
            return  # one of two stands still until it is rolled back
        await self._edit(name, bad=True)
        try:
            await self._fleet.call(
                "POST", f"/api/v1/groups/{name}/deploy?confirm={name}", {"reason": "campaign"}
            )
        finally:
            await self._edit(name)  # what is started by the document afterwards is good again

    async def _restart_group(self, name: str) -> None:
        await self._fleet.call("POST", f"/api/v1/groups/{name}/restart?confirm={name}", {})

    async def _of_deployment(self, name: str, verb: str) -> None:
        page = await self._fleet.get(f"/api/v1/deployments?group={name}&limit=1")
        if page["items"] and page["items"][0]["ended_at"] is None:
            body = {"reason": "campaign"} if verb in ("rollback", "cancel") else None
            meant = f"?confirm={name}" if verb == "rollback" else ""
            path = f"/api/v1/deployments/{page['items'][0]['id']}/{verb}{meant}"
            await self._fleet.call("POST", path, body)

    async def _pause(self, name: str) -> None:
        await self._of_deployment(name, "pause")

    async def _resume(self, name: str) -> None:
        await self._of_deployment(name, "resume")

    async def _promote(self, name: str) -> None:
        await self._of_deployment(name, "promote")

    async def _roll_back(self, name: str) -> None:
        await self._of_deployment(name, "rollback")

    async def _cancel(self, name: str) -> None:
        await self._of_deployment(name, "cancel")

    # nodes

    async def _drain(self, _: str) -> None:
        await self._empty(self._dice.choice(NODES), self._dice.choice((None, 120)))

    async def _drain_soon(self, _: str) -> None:
        await self._empty(self._dice.choice(NODES), self._dice.choice((0, 3, 10)))

    async def _shut_down(self, _: str) -> None:
        await self._empty(self._dice.choice(NODES), self._dice.choice((None, 5)), shutdown=True)

    async def _empty(self, node: str, deadline: int | None, *, shutdown: bool = False) -> None:
        """All three at once would leave nothing to check."""
        nodes = await self._fleet.pages("/api/v1/nodes")
        if sum(each["id"] != node and each["drain"] is None for each in nodes) < 1:
            return
        if deadline is not None:
            self._orders.forced[node] = max(self._orders.forced[node], time.time() + deadline)
        order = {"reason": "campaign", "deadline_seconds": deadline, "shutdown": shutdown}
        await self._fleet.call("POST", f"/api/v1/nodes/{node}/drain?confirm={node}", order)
        self._orders.deadlines.pop(node, None)
        if deadline is not None:
            self._orders.deadlines[node] = time.monotonic() + deadline

    async def _undrain(self, _: str) -> None:
        node = self._dice.choice(NODES)
        self._orders.deadlines.pop(node, None)
        await self._fleet.call("POST", f"/api/v1/nodes/{node}/undrain", {})
        self._orders.deadlines.pop(node, None)

    async def open_everything(self) -> None:
        for node in NODES:
            self._orders.deadlines.pop(node, None)
            await self._fleet.call("POST", f"/api/v1/nodes/{node}/undrain", {})
        for name in GROUPS:
            with contextlib.suppress(Refused):
                await self._fleet.call("POST", f"/api/v1/groups/{name}/release")
            for verb in ("resume", "promote"):
                with contextlib.suppress(Refused):
                    await self._of_deployment(name, verb)

    # numbers and instances

    async def _scale(self, name: str) -> None:
        self._orders.edited[name] = time.time()
        await self._fleet.call("POST", f"/api/v1/groups/{name}/scale", {"count": self._dice.randrange(1, 5)})
        self._orders.edited[name] = time.time()

    async def _stop(self, name: str) -> None:
        page = await self._fleet.get(f"/api/v1/instances?group={name}&live=true&limit=500")
        if name != "world" and (ids := sorted(each["id"] for each in page["items"])):
            id = self._dice.choice(ids)
            self._orders.edited[name] = time.time()
            self._orders.ends[id].append(time.time())
            await self._fleet.call("POST", f"/api/v1/instances/{id}/stop", {})
            self._orders.stopped.add(id)

    async def _hold(self, name: str) -> None:
        self._orders.edited[name] = time.time()
        self._orders.ends[name].append(time.time())
        await self._fleet.call("POST", f"/api/v1/groups/{name}/hold", {"reason": "campaign"})

    async def _release(self, name: str) -> None:
        self._orders.edited[name] = time.time()
        await self._fleet.call("POST", f"/api/v1/groups/{name}/release")
