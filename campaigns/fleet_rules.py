"""The checker of the campaign of decisions: what has to hold whenever the fleet is at rest.

It uses what lies outside the planner: processes by /proc, the tables of the store, the answers of the API, and an
arithmetic of its own.
"""

from __future__ import annotations

import asyncio
import collections
import pathlib
import time
from typing import Any, Final

from campaigns.evidence import Process, port_keys, workloads
from campaigns.fitting import Room
from campaigns.fleet import Fleet
from campaigns.history import History
from campaigns.operators import ALWAYS_FAILS, Expected, Fields

Item = dict[str, Any]
ENDED: Final = ("STOPPED", "CRASHED")
_SLACK: Final = 1e-6
_REPORT_SECONDS: Final = 20.0
"""Nodes report what they hold every few seconds."""


class Picture:
    """Everything that is known of the fleet at one moment of rest."""

    groups: dict[str, Item]
    nodes: list[Item]
    live: list[Item]
    ended: dict[str, Item]
    processes: list[Process]
    reservations: dict[str, Item]
    room: Room

    @classmethod
    async def taken(cls, fleet: Fleet) -> Picture:
        made = cls()
        made.groups = {each["name"]: each for each in await fleet.pages("/api/v1/groups")}
        made.nodes = await fleet.pages("/api/v1/nodes")
        instances = await fleet.pages("/api/v1/instances")
        made.live = [each for each in instances if each["state"] not in ENDED]
        made.ended = {each["id"]: each for each in instances if each["state"] in ENDED}
        made.processes = workloads(fleet.side)
        made.reservations = await fleet.evidence.documents("reservations")
        ledgers = await fleet.evidence.documents("node_ledgers")
        made.room = Room(made.nodes, made.reservations, made.live, ledgers)
        return made

    def unrest(self) -> list[str]:
        """What is still under way."""
        found = [f"node {each['id']} is {each['state']}" for each in self.nodes if each["state"] != "ONLINE"]
        found += [
            f"{each['id']} is {each['state']}, wanted {each['wanted']}, {each['reason']}"
            for each in self.live
            if each["state"] != "RUNNING" or each["wanted"] != "run" or not each["ready"]
        ]
        for name, group in self.groups.items():
            status = group["status"]
            if status["deleting"] or (status["paused"] and name != ALWAYS_FAILS):
                found.append(f"group {name}: {status['reason']}, deleting: {status['deleting']}")
        return found


class Rules:
    """Checks pictures; everything that is broken is in `violations`."""

    def __init__(self, fleet: Fleet, expected: Expected) -> None:
        self._fleet = fleet
        self._expected = expected
        self.violations: list[str] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self._history = History(fleet, self.broken, self.counts)

    def broken(self, rule: str, text: str) -> None:
        self.violations.append(f"{rule}: {text}")

    async def check(self, picture: Picture) -> None:
        self.counts["rests"] += 1
        await self._history.read()
        self._processes(picture)
        self._promises(picture)
        for group in picture.groups.values():
            await self._group(picture, group)
        await self._acknowledged(picture)
        self._stopped(picture)
        await self._explained(picture)
        self.violations += self._expected.violations
        self._expected.violations.clear()
        told = self._fleet.side / "violations"
        if told.exists():
            self.violations += told.read_text().splitlines()
            told.unlink()

    # I1, I2, I3

    def _processes(self, picture: Picture) -> None:
        by_id = collections.Counter(each.instance for each in picture.processes)
        for id, count in by_id.items():
            if count > 1:
                self.broken("I3", f"{count} processes of {id}: {[each.run for each in picture.processes]}")
        records = {each["id"]: each for each in picture.live}
        self.counts["processes"] += len(by_id)
        for each in picture.processes:
            record = records.get(each.instance)
            if record is None:
                self.broken("I3", f"{each.run} lives on {each.node} without a live record")
            elif (record["node"], record["pid"]) != (each.node, each.pid):
                self.broken("I3", f"{each.run} lives on {each.node} as {each.pid}, and is shown as {record}")
        for id in records.keys() - by_id.keys():
            self.broken("I3", f"{id} is shown as {records[id]['state']}, and no process of it lives")
        reserved = {key.partition("/")[2]: key.partition("/")[0] for key in picture.reservations}
        if reserved != {id: record["node"] for id, record in records.items()}:
            self.broken("I1", f"reservations {reserved}, and live are {sorted(records)}")

    def _promises(self, picture: Picture) -> None:
        room = picture.room
        for id, node in room.nodes.items():
            # What was reserved before a limit was lowered stays.
            if room.memory(id) > node["memory_mb"] and self._promised_lately(room, id, "memory_mb"):
                self.broken("I1", f"{room.memory(id)} of {node['memory_mb']} MB reserved on {id}")
            if room.cpu(id) > node["cpus"] + _SLACK and self._promised_lately(room, id, "cpu"):
                self.broken("I1", f"{room.cpu(id)} of {node['cpus']} CPUs reserved on {id}")
        for address in {node["address"] for node in picture.nodes}:
            twice = [key for key, count in room.leased(address).items() if count > 1]
            if twice:
                self.broken("I2", f"leased twice on {address}: {twice}")
        for process in picture.processes:
            held = picture.reservations.get(f"{process.node}/{process.instance}", {}).get("ports", [])
            if sorted(port["port"] for port in held) != sorted(process.ports):
                self.broken("I2", f"{process.run} has {process.ports}, leased are {held}")
            if process.ports and process.ports[1] != process.ports[0] + 1:
                self.broken("I2", f"{process.run}: a torn set of ports, {process.ports}")
            for port in held:
                assert list(port_keys(port["port"], port["protocol"])), port

    def _promised_lately(self, room: Room, node: str, what: str) -> bool:
        """Was any of it reserved after the node's limits were set?"""
        set_at = self._history.last("NODE_CONFIGURED", node)
        return any(
            each.get(what) and self._history.last("INSTANCE_SCHEDULED", id) > set_at
            for id, each in room.reserved[node].items()
        )

    # I4, I6 and holds

    async def _group(self, picture: Picture, group: Item) -> None:
        name, status = group["name"], group["status"]
        own = [each for each in picture.live if each["group"] == name]
        serving = [each for each in own if not each["warm"]]
        self._bounds(group, serving)
        if status["hold"] is not None:
            if own and not status["hold"]["when_empty"]:
                self.broken("hold", f"{name} is held, and these live: {[each['id'] for each in own]}")
            return
        if len(own) - len(serving) > (0 if group["abstract"] else group["warm"]):
            self.broken("warm", f"{name} keeps {len(own) - len(serving)} warm, wanted {group['warm']}")
        short = status["wanted"] - len(serving)
        short_of_warm = 0 if group["abstract"] else group["warm"] - (len(own) - len(serving))
        if short > 0 or short_of_warm > 0:
            self.counts["short"] += 1
            await self._reason(picture, group, f"{name} has {len(serving)} of {status['wanted']}", short)
        elif status["reason"]:
            self.broken("I4", f"{name} has what it wants, and says {status['reason']!r}")

    def _bounds(self, group: Item, serving: list[Item]) -> None:
        """No start makes more than `max` serve; instances from before it was lowered may stay."""
        if group["max"] is None or len(serving) <= group["max"]:
            return
        name = group["name"]
        written = max(self._history.last(type, name) for type in ("GROUP_CREATED", "GROUP_UPDATED"))
        late = [each["id"] for each in serving if self._history.served_since(each["id"]) > written]
        if late:
            self.broken(
                "I6", f"{len(serving)} of {group['name']} serve, max is {group['max']}; later: {late}"
            )

    async def _reason(self, picture: Picture, group: Item, what: str, short: int) -> None:
        """The reason that is told for being short is there, and true."""
        name, reason = group["name"], group["status"]["reason"]
        if group["status"]["paused"]:
            return
        if reason.startswith("waits for '"):
            need = [
                (each["group"], each["ready"], picture.groups[each["group"]]["status"]["ready"])
                for each in group["depends_on"]
            ]
            if all(ready >= wanted for _, wanted, ready in need):
                self.broken("I4", f"{what}, says {reason!r}, and there are {need}")
            return
        if reason.startswith("stopped by hand"):
            places = {f"{name}-{number}" for number in range(1, group["status"]["wanted"] + 1)}
            by_hand = self._expected.stopped.keys() | self._expected.restarts_refused
            held = places & by_hand & picture.ended.keys()
            if len(held) < short:
                self.broken("I4", f"{what}, says {reason!r}; stopped by hand were {held}")
            return
        if "the directory of '" in reason:
            self._at_home(picture, group, what, reason)
            return
        codes = picture.room.refusals(group)
        if len(codes) < len(picture.nodes):
            self.broken("I4", f"{what}, says {reason!r}, and nodes have room: refused are {codes} only")
            return
        if not reason:
            self.broken("I4", f"{what}, without a reason; every node refuses: {codes}")
            return
        await self._refusals(group, what, codes)

    def _at_home(self, picture: Picture, group: Item, what: str, reason: str) -> None:
        _, id, _, node, *_ = reason.split("'")
        if id not in picture.ended or not picture.room.refusal(group, node, at_home=True):
            self.broken("I4", f"{what}, says {reason!r}; {node} could take it")

    async def _refusals(self, group: Item, what: str, codes: dict[str, str]) -> None:
        """Both the recorded decision and `why` name every node with its true reason."""
        name = group["name"]
        journal = [
            each for each in self._history.journals[f"group/{name}"] if each.get("rule") == "place.refuse"
        ]
        recorded = [
            each
            for each in journal
            if each["subject"] == name and f"; {group['status']['reason']}" in each["reason"]
        ]
        if not recorded:
            self.broken("I4", f"{what}, and no decision says {group['status']['reason']!r}")
        else:
            last = {each["subject"].removeprefix("node/"): each["code"] for each in recorded[-1]["rejected"]}
            if collections.Counter(last.values()) != collections.Counter(codes.values()):
                self.broken("I4", f"{what}, recorded is {last}, true is {codes}")
            elif last != codes:
                self.counts["recorded for other nodes"] += 1
        why = await self._fleet.get(f"/api/v1/groups/{name}/why")
        now = [each for each in why["now"] if each["topic"] == "refuse"]
        told = {
            each["subject"].removeprefix("node/"): each["code"] for one in now for each in one["rejected"]
        }
        if told != codes:
            self.broken("I4", f"{what}, why says {told or why['now']}, true is {codes}")

    async def _explained(self, picture: Picture) -> None:
        """`why` knows the state of everything."""
        for each in picture.live:
            why = await self._fleet.get(f"/api/v1/instances/{each['id']}/why")
            if why["state"] != each["state"]:
                self.broken("why", f"{each['id']} is {each['state']}, why says {why['state']}")
        for node in picture.nodes:
            why = await self._fleet.get(f"/api/v1/nodes/{node['id']}/why")
            if why["state"] != ("ONLINE" if node["admission"] == "open" else node["admission"].upper()):
                self.broken("why", f"{node['id']} is {node['admission']}, why says {why['state']}")

    # I8, and what was acknowledged

    def _stopped(self, picture: Picture) -> None:
        living = {each["id"] for each in picture.live}
        for id in self._expected.stopped.keys() & living:
            self.broken("I8", f"{id} was stopped by hand, and lives")

    async def _acknowledged(self, picture: Picture) -> None:
        for name, fields in self._expected.groups.items():
            group = picture.groups.get(name)
            if group is None:
                self.broken("lost", f"group {name} was written, and is not there")
            elif other := _differences(fields, group):
                self.broken("lost", f"group {name}: written was {fields}; different is {other}")
        for name in picture.groups.keys() & self._expected.deleted:
            self.broken("lost", f"group {name} was deleted, and is there")
        for name, group in picture.groups.items():
            if (group["status"]["hold"] is not None) != (name in self._expected.held):
                self.broken("hold", f"{name}: {group['status']['hold']}, held are {self._expected.held}")
        for node in picture.nodes:
            if other := _differences(self._expected.nodes[node["id"]], node):
                self.broken("lost", f"node {node['id']}: different is {other}")

    async def nothing_left(self, side: pathlib.Path) -> None:
        """After all groups were deleted."""
        await self._history.read()
        if living := workloads(side):
            self.broken("left", f"processes {[each.run for each in living]}")
        for collection in ("reservations", "groups"):
            if found := await self._fleet.evidence.documents(collection):
                self.broken("left", f"{collection} {sorted(found)}")
        deadline = time.monotonic() + _REPORT_SECONDS
        while (busy := await self._busy_nodes()) and time.monotonic() < deadline:
            await asyncio.sleep(0.5)
        if busy:
            self.broken("left", f"on nodes {busy}")

    async def _busy_nodes(self) -> list[Item]:
        keys = ("id", "used_ports", "instances", "stray_count")
        nodes = await self._fleet.pages("/api/v1/nodes")
        return [{key: node[key] for key in keys} for node in nodes if any(node[key] for key in keys[1:])]


def _differences(expected: Fields, found: Item) -> Fields:
    """What of the expected fields is otherwise; null was the default, whatever that is."""
    other: Fields = {}
    for key, value in expected.items():
        if isinstance(value, dict):
            if inner := _differences(value, found.get(key) or {}):
                other[key] = inner
        elif isinstance(value, list):
            if len(found[key]) != len(value) or any(
                _differences(a, b) if isinstance(a, dict) else a != b
                for a, b in zip(value, found[key], strict=True)
            ):
                other[key] = found[key]
        elif value is not None and found.get(key) != value:
            other[key] = found.get(key)
    return other
