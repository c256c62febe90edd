"""The checker of the campaign of drains and deployments: what has to hold at any time, and what has to hold soon after the
last fault. It looks at processes by /proc, at the logs of the workloads and at the answers of the API."""

from __future__ import annotations

import collections
import datetime as dt
import time
from typing import Any, Final

from campaigns.change_operator import GROUPS, LADDER_SECONDS, SLOTS, ChangeOrders
from campaigns.crowd import Crowd
from campaigns.evidence import Process, workloads
from campaigns.fleet import Fleet, Refused

Item = dict[str, Any]
ENDED: Final = ("STOPPED", "CRASHED")
FLOORS: Final = {"roll": 3, "least": 2, "first": 2, "trial": 3}
"""How many stay ready while nodes are emptied and versions deployed and nothing fails: `min_available`, or all that are
wanted less `max_unavailable`."""
_LATE_SECONDS: Final = 25.0
"""A leader observes, nodes connect again, and the machine is busy."""
_WAITED_FOR: Final = {"first": 3}
"""Groups with `drain_seconds`."""


class ChangeRules:
    """Everything that is broken is in `violations`."""

    def __init__(self, fleet: Fleet, orders: ChangeOrders, crowd: Crowd) -> None:
        self._fleet = fleet
        self._orders = orders
        self._crowd = crowd
        self.violations: list[str] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self.last_hit = time.monotonic()
        """The last fault."""
        self._begun: dict[str, float] = {}
        """When each run that logged something began."""
        self._worlds: dict[str, list[str]] = collections.defaultdict(list)
        """The runs of each world, in their order."""

    def broken(self, rule: str, text: str) -> None:
        line = f"{dt.datetime.now(dt.UTC):%H:%M:%S} {rule}: {text}"
        self.violations.append(line)
        print(f"VIOLATION {line}", flush=True)

    # at any time

    async def watch(self, *, calm: bool) -> None:
        """Once. `calm`: nothing is killed, so that enough instances have to be ready."""
        nodes = await self._fleet.pages("/api/v1/nodes")
        for node in nodes:
            self._in_time(node)
        if calm:
            for name, floor in FLOORS.items():
                await self._enough(name, floor)
        self.counts["watches"] += 1

    def _in_time(self, node: Item) -> None:
        """I15: a node is empty soon after its deadline."""
        deadline = self._orders.deadlines.get(node["id"])
        living = [each.run for each in workloads(self._fleet.side) if each.node == node["id"]]
        if node["admission"] == "drained":
            self.counts["drained"] += 1
            if living and node["id"] not in self._orders.deadlines:
                self.counts["living on a drained node"] += 1
        if deadline is None or node["state"] != "ONLINE" or node["admission"] != "draining":
            return
        late = time.monotonic() - max(deadline, self.last_hit)
        if late > LADDER_SECONDS + _LATE_SECONDS:
            self.broken("I15", f"{node['id']} is late by {late:.0f} s, and {living} live: {node['drain']}")
            self._orders.deadlines.pop(node["id"], None)

    async def _enough(self, name: str, floor: int) -> None:
        """I10: players can be sent to so many."""
        registry = await self._fleet.get(f"/api/v1/groups/{name}/registry")
        listed = {each["id"] for each in registry["instances"]}
        alive = {each.instance for each in workloads(self._fleet.side)}
        there = sorted(listed & alive)
        self.counts["floors"] += 1
        if len(there) < floor:
            again = await self._fleet.get(f"/api/v1/instances?group={name}&live=true&limit=500")
            states = [(each["id"], each["state"], each["wanted"], each["reason"]) for each in again["items"]]
            self.broken("I10", f"{name} keeps {floor}, ready are {there}: {states}")

    # logs of workloads

    async def logs(self) -> None:
        """I7: nobody who was known to play when a stop was decided is cut off but by an order, a deadline, or after
        `drain_seconds`. A world has all its runs in its directory."""
        for line in self._crowd.news():
            run = f"{line['instance']} {line['run']}"
            if line["what"] == "begin":
                self._begun[run] = line["at"]
                self.counts["runs"] += 1
                self._world(line)
            if line["what"] == "SIGTERM":
                self.counts["stops"] += 1
                if line["players"] and line["told"] > 0:
                    self.counts["stops with players"] += 1
                    await self._cut_off(line, self._begun.get(run, 0.0))

    def _world(self, line: Item) -> None:
        id = line["instance"]
        if not id.startswith("world-"):
            return
        missing = [each for each in self._worlds[id] if each not in line["before"]]
        if missing:
            self.broken("T90", f"{id} runs on {line['node']} without its files of {missing}")
        self._worlds[id].append(line["run"])

    async def _cut_off(self, line: Item, begin: float) -> None:
        id, node = line["instance"], line["node"]
        group = id.rpartition("-")[0]
        if self._orders.may_end(id, group, begin, line["at"]):
            return
        if begin <= self._orders.forced[node] <= line["at"] + 1:
            self.counts["cut at a deadline"] += 1
            return
        decisions = await self._decisions(id, line["at"])
        stop = next((each for each in decisions if each["kind"] in ("stop", "restart")), None)
        at = _moment(stop) if stop is not None else line["at"]
        if line["busy_since"] > at - 0.5:
            self.counts["came after the decision"] += 1
            return
        drain = next((each for each in decisions if each["kind"] == "drain"), None)
        waits = _WAITED_FOR.get(group)
        if waits is not None and drain is not None and at - _moment(drain) >= waits - 0.1:
            self.counts["waited for"] += 1
            return
        self.broken("I7", f"{line}; decided: {stop}, {drain}")

    async def _decisions(self, id: str, before: float) -> list[Item]:
        try:
            page = await self._fleet.get(f"/api/v1/decisions?subject=instance/{id}&limit=100")
        except Refused:
            return []
        return [each for each in page["items"] if _moment(each) <= before]

    # at rest

    async def unexplained(self) -> list[str]:
        """What has not ended, and does not say what it waits for."""
        found = [
            f"node {each['id']} is {each['state']}"
            for each in await self._fleet.pages("/api/v1/nodes")
            if each["state"] != "ONLINE"
        ]
        for each in await self._fleet.pages("/api/v1/deployments"):
            if each["ended_at"] is None and not each["waiting"]:
                found.append(f"I14: {each['id']} of {each['group']} is {each['state']}, and names no wait")
        for each in await self._fleet.pages("/api/v1/nodes"):
            if each["admission"] == "draining":
                progress = each["drain"]["progress"]
                waits = {key: value for key, value in progress.items() if key.startswith("waiting") and value}
                if not waits and not progress["stopping"]:
                    found.append(f"I15: {each['id']} is draining, and names no wait: {each['drain']}")
        for group in await self._fleet.pages("/api/v1/groups"):
            status = group["status"]
            if status["instances"] < status["wanted"] and not (status["reason"] or status["hold"]):
                found.append(
                    f"I4: {group['name']} has {status['instances']} of {status['wanted']}, no reason"
                )
        return found

    async def unrest(self) -> list[str]:
        """What is not yet as it has to be when everything is open and nobody plays."""
        found = await self.unexplained()
        groups = await self._fleet.pages("/api/v1/groups")
        live = await self._fleet.pages("/api/v1/instances?live=true")
        processes = workloads(self._fleet.side)
        found += self._processes(processes, live)
        for each in await self._fleet.pages("/api/v1/nodes"):
            if each["admission"] != "open" or each["drain"] is not None:
                found.append(f"{each['id']} is {each['admission']}")
        deployments = await self._fleet.pages("/api/v1/deployments")
        for each in deployments:
            if each["ended_at"] is None:
                found.append(
                    f"{each['id']} of {each['group']} is {each['state']}, and waits: {each['waiting']}"
                )
        for each in live:
            if each["state"] != "RUNNING" or each["wanted"] != "run" or not each["ready"] or each["lost"]:
                found.append(f"{each['id']} is {each['state']}, {each['wanted']}: {each['reason']}")
            if each["id"] in self._orders.stopped:
                found.append(f"I8: {each['id']} was stopped by hand, and lives")
        for group in groups:
            found += self._group(group, [each for each in live if each["group"] == group["name"]])
            found += self._revisions(group["name"], live, deployments)
        return found

    def _group(self, group: Item, own: list[Item]) -> list[str]:
        name, status = group["name"], group["status"]
        if status["paused"] or status["hold"]:
            return [f"{name} is paused or held"]
        if len(own) != status["wanted"]:
            return [f"{name} has {len(own)} of {status['wanted']}: {status['reason']}"]
        return [f"{name} has what it wants, and says {status['reason']!r}"] if status["reason"] else []

    def _revisions(self, name: str, live: list[Item], deployments: list[Item]) -> list[str]:
        """Where the last deployment is COMPLETED, everything runs by its target; ROLLED_BACK, by what was stable."""
        last = next((each for each in deployments if each["group"] == name), None)
        if last is None or last["state"] not in ("COMPLETED", "ROLLED_BACK"):
            return []
        self.counts[last["state"]] += 1
        revision = last["target"] if last["state"] == "COMPLETED" else last["stable"]
        others = [
            f"{each['id']} by {each['deployment_revision']}"
            for each in live
            if each["group"] == name and each["deployment_revision"] < revision
        ]
        return [f"{last['id']} is {last['state']} at {revision}, and {others} run"] if others else []

    def _processes(self, processes: list[Process], live: list[Item]) -> list[str]:
        there, known = {each.pid for each in processes}, {each["pid"] for each in live}
        found = [
            f"{each.run} ({each.pid}) lives without a record" for each in processes if each.pid not in known
        ]
        return found + [f"{each['id']} has no process" for each in live if each["pid"] not in there]

    async def explained(self) -> None:
        """`why` answers for every deployment and node."""
        for each in (await self._fleet.pages("/api/v1/deployments"))[:20]:
            why = await self._fleet.get(f"/api/v1/deployments/{each['id']}/why")
            self.counts["whys"] += 1
            if not why["summary"]:
                self.broken("why", f"{each['id']}, {each['state']}: {why}")
            if each["state"] == "FAILED" and not each["failures"] and not each.get("outcome"):
                self.broken("why", f"{each['id']} has failed, and names nothing: {each}")


def _moment(decision: Item) -> float:
    return dt.datetime.fromisoformat(decision["at"]).timestamp()


def slots() -> dict[str, int]:
    """How many players one instance of each group takes."""
    return dict.fromkeys(GROUPS, SLOTS)
