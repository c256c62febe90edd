"""The checker of the campaign of scaling: what has to hold at any time, and what has to hold soon after the last fault.

It looks at processes by /proc, at the logs of the workloads and at the answers of the API, and has an arithmetic of its
own for how many instances the players need.
"""

from __future__ import annotations

import collections
import datetime as dt
import fractions
import math
import threading
import time
from types import TracebackType
from typing import Any, Final, Protocol, Self

from campaigns.crowd import Crowd
from campaigns.evidence import Process, workloads
from campaigns.fleet import Fleet, Refused
from campaigns.scaling_operator import LADDER_SECONDS, SLOTS, Fields, Orders

Item = dict[str, Any]
ENDED: Final = ("STOPPED", "CRASHED")
FOLLOWS_A_CLOCK: Final = "timed"
UNKNOWN: Final = "mute"
"""Its players are unknown, and that counts as none only after five minutes where leaders have changed."""
_LOOK_SECONDS: Final = 0.1
_REASON_SECONDS: Final = 15.0
"""So long a group may be short without a reason while everything is killed."""
_STARVED_SECONDS: Final = 5.0
_WAITS: Final = ("stopped by", "the directory of", "waits for", "is away")
"""Reasons that are not about room on nodes."""


class Broken(Protocol):
    """Where a checker notes what it has found."""

    counts: collections.Counter[str]

    def broken(self, rule: str, text: str) -> None: ...


class CopyWatch:
    """A thread that lists the workloads again and again. Use as `with`."""

    def __init__(self, fleet: Fleet, rules: Broken) -> None:
        self._fleet = fleet
        self._rules = rules
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="campaign-copies", daemon=True)
        self._two_since: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            processes = workloads(self._fleet.side)
            self._rules.counts["looks"] += 1
            by_id = collections.Counter(each.instance for each in processes)
            for id, count in by_id.items():
                if count > 1:
                    runs = [f"{each.run} {each.pid}" for each in processes if each.instance == id]
                    self._rules.broken("I3", f"{count} processes of {id}: {runs}")
            self._at_most_one([each for each in processes if each.instance.startswith("single-")])

    def _at_most_one(self, single: list[Process]) -> None:
        """Of a group with `stop_after_seconds` a second one may be there only while the first is being stopped."""
        if len(single) < 2:
            self._two_since.clear()
            return
        now = time.monotonic()
        since = self._two_since.setdefault("single", now)
        if now - since > LADDER_SECONDS + 5:
            self._rules.broken("stop_after", f"several live: {[each.run for each in single]}")
            self._two_since["single"] = now + 3600


class Rules:
    """Everything that is broken is in `violations`."""

    def __init__(self, fleet: Fleet, orders: Orders, crowd: Crowd) -> None:
        self._fleet = fleet
        self._orders = orders
        self._crowd = crowd
        self.violations: list[str] = []
        self.counts: collections.Counter[str] = collections.Counter()
        self._short_since: dict[str, float] = {}
        self._epoch = 0
        self._watched = 0.0
        self._runs: dict[str, float] = {}
        """When each run that logged something began."""

    def broken(self, rule: str, text: str) -> None:
        line = f"{dt.datetime.now(dt.UTC):%H:%M:%S} {rule}: {text}"
        self.violations.append(line)
        print(f"VIOLATION {line}", flush=True)

    # at any time

    async def watch(self) -> None:
        """Once, while everything is killed."""
        groups = await self._fleet.pages("/api/v1/groups")
        instances = await self._fleet.pages("/api/v1/instances?live=true")
        epoch = (await self._fleet.get("/api/v1/cluster"))["leader"]["epoch"]
        now = time.monotonic()
        if epoch != self._epoch or now - self._watched > _STARVED_SECONDS:
            self._short_since.clear()  # each leader waits for nodes anew
        self._epoch, self._watched = epoch, now
        for group in groups:
            name, status = group["name"], group["status"]
            if (
                status["instances"] >= status["wanted"]
                or status["reason"]
                or status["hold"]
                or status["paused"]
            ):
                self._short_since.pop(name, None)
            elif now - self._short_since.setdefault(name, now) > _REASON_SECONDS:
                self.broken("I4", f"{name} has {status['instances']} of {status['wanted']}, and no reason")
                self._short_since[name] = now
        written = {group["name"]: group for group in groups}
        for each in instances:
            if each["lost"] and each["group"] in written:
                self._lost(each, written[each["group"]])
        self.counts["watches"] += 1

    def _lost(self, each: Item, group: Item) -> None:
        """Nothing is lost before its time."""
        self.counts["lost"] += 1
        after = group["disconnect"]["replace_after_seconds"]
        if time.time() - self._orders.edited[each["group"]] < 30:
            return
        away = time.time() - dt.datetime.fromisoformat(each["lost_at"]).timestamp()
        if after is None or away < after - 0.5:
            self.broken("loss", f"{each['id']} is lost after {away:.1f} s, its group waits {after}")

    # players

    async def players(self) -> None:
        """I7: nobody who was known to play when a stop was decided is cut off, unless an operator ordered it."""
        for line in self._crowd.news():
            run = f"{line['instance']} {line['run']}"
            if line["what"] == "begin":
                self._runs[run] = line["at"]
                self.counts["runs"] += 1
            if line["what"] == "SIGTERM":
                self.counts["stops"] += 1
                self.counts["stops with untold players"] += bool(line["players"] and line["told"] <= 0)
                if line["players"] and line["told"] > 0:
                    self.counts["stops with players"] += 1
                    await self._cut_off(line, self._runs.get(run, 0.0))

    async def _cut_off(self, line: Item, begin: float) -> None:
        id = line["instance"]
        group = id.rpartition("-")[0]
        if self._orders.may_end(id, group, begin, line["at"]):
            return
        decided = await self._stop_decided(id, line["at"])
        at = dt.datetime.fromisoformat(decided["at"]).timestamp() if decided else line["at"]
        if line["busy_since"] > at - 0.5:
            self.counts["came after the decision"] += 1
            print(f"{line}; decided: {decided}", flush=True)
            return
        if group == "single" and decided is None:
            self.counts["isolated"] += 1
            return
        self.broken("I7", f"{line}; decided: {decided}")

    async def _stop_decided(self, id: str, before: float) -> Item | None:
        try:
            page = await self._fleet.get(f"/api/v1/decisions?subject=instance/{id}&limit=100")
        except Refused:
            return None
        for each in page["items"]:
            at = dt.datetime.fromisoformat(each["at"]).timestamp()
            if each["kind"] in ("stop", "restart") and at <= before:
                return dict(each)
        return None

    # at rest

    async def unrest(self) -> list[str]:
        """What is not yet as it has to be."""
        groups = await self._fleet.pages("/api/v1/groups")
        nodes = await self._fleet.pages("/api/v1/nodes")
        instances = await self._fleet.pages("/api/v1/instances")
        live = [each for each in instances if each["state"] not in ENDED]
        processes = workloads(self._fleet.side)
        playing: collections.Counter[str] = collections.Counter()
        for key, count in self._crowd.players(processes).items():
            playing[key.partition(".")[0]] += count
        found = [f"node {each['id']} is {each['state']}" for each in nodes if each["state"] != "ONLINE"]
        found += self._processes(processes, live)
        for each in live:
            found += self._instance(each, playing[each["id"]])
        for group in groups:
            own = [each for each in live if each["group"] == group["name"]]
            found += self._group(group, own, nodes, playing)
            found += await self._registry(group, own)
        for each in nodes:
            if each["reserved_memory_mb"] > each["memory_mb"]:
                self.broken(
                    "I1", f"{each['id']} has reserved {each['reserved_memory_mb']} of {each['memory_mb']} MB"
                )
        return found

    async def _registry(self, group: Item, own: list[Item]) -> list[str]:
        """Proxies see those that serve."""
        try:
            registry = await self._fleet.get(f"/api/v1/groups/{group['name']}/registry")
        except Refused as refused:  # it was deleted meanwhile
            return [str(refused)]
        listed = sorted(each["id"] for each in registry["instances"])
        serving = sorted(
            each["id"] for each in own if not each["warm"] and each["ready"] and each["wanted"] == "run"
        )
        return [f"{group['name']} lists {listed}, serving are {serving}"] if listed != serving else []

    def _processes(self, processes: list[Process], live: list[Item]) -> list[str]:
        there, known = {each.pid for each in processes}, {each["pid"] for each in live}
        found = [
            f"{each.run} ({each.pid}) lives without a record" for each in processes if each.pid not in known
        ]
        return found + [f"{each['id']} has no process" for each in live if each["pid"] not in there]

    def _instance(self, each: Item, playing: int) -> list[str]:
        what = f"{each['id']} is {each['state']}, wanted {each['wanted']}, ready {each['ready']}, {each['reason']}"
        found = []
        if each["id"] in self._orders.stopped:
            found.append(f"I8: {each['id']} was stopped by hand, and lives")
        if each["wanted"] == "drain" and each["state"] == "DRAINING":
            if not playing and each["group"] != UNKNOWN:
                found.append(f"{what}, and nobody plays there")
        elif each["state"] != "RUNNING" or each["wanted"] != "run" or not each["ready"]:
            found.append(what)
        if each["lost"]:
            found.append(f"{each['id']} is lost")
        told = each["players"]
        if each["group"] != UNKNOWN and told != playing:
            found.append(f"{each['id']} has {playing} players, told is {told}")
        return found

    def _group(
        self, group: Item, own: list[Item], nodes: list[Item], playing: collections.Counter[str]
    ) -> list[str]:
        name, status = group["name"], group["status"]
        if status["deleting"] or status["paused"]:
            return [f"{name} is paused or deleted"]
        if status["hold"]:
            waits = status["hold"]["when_empty"]
            left = [each["id"] for each in own if not (waits and (playing[each["id"]] or name == UNKNOWN))]
            return [f"{name} is held, and {left} live"] if left else []
        serving = [each for each in own if not each["warm"] and each["wanted"] == "run"]
        found = self._bounds(group, serving)
        short = status["wanted"] - len(serving)
        warm = len(own) - len([each for each in own if not each["warm"]])
        keep_warm = warm if name == FOLLOWS_A_CLOCK else group["warm"]
        if short > 0 or warm < keep_warm:
            found += self._short(
                group, nodes, f"{name} has {len(serving)} of {status['wanted']}, {warm} warm", short
            )
        elif status["reason"]:
            found.append(f"{name} has what it wants, and says {status['reason']!r}")
        return found + self._number(group, serving, playing)

    def _bounds(self, group: Item, serving: list[Item]) -> list[str]:
        most = group["status"]["scaling"]["max"]
        if group["name"] == UNKNOWN:
            there = {each["id"] for each in serving}
            serving = [each for each in serving if each["replaces"] not in there]
        if most is not None and len(serving) > most:
            return [f"I6: {len(serving)} of {group['name']} serve, most are {most}"]
        return []

    def _short(self, group: Item, nodes: list[Item], what: str, short: int) -> list[str]:
        reason = group["status"]["reason"]
        if not reason:
            return [f"I4: {what}, and no reason"]
        self.counts["short"] += short > 0
        if any(word in reason for word in _WAITS):
            return []
        roomy = [
            node["id"]
            for node in nodes
            if node["state"] == "ONLINE"
            and node["admission"] == "open"
            and node["memory_mb"] - node["reserved_memory_mb"] >= group["memory_mb"]
        ]
        return [f"I4: {what}, says {reason!r}, and {roomy} have room"] if roomy else []

    def _number(self, group: Item, serving: list[Item], playing: collections.Counter[str]) -> list[str]:
        """The number is that of the mode, or by the players."""
        name, scaling = group["name"], group["status"]["scaling"]
        if scaling["floor"] is not None:
            return [f"{name} has a floor until {scaling['floor']}"]
        mode, wanted = scaling["mode"], group["status"]["wanted"]
        if group["status"]["maintenance"]["enabled"]:
            return []
        if mode != "DYNAMIC":
            least = scaling["min"]
            if mode == "MANUAL":
                least = max(least, group["status"]["target"])
            least = least if scaling["max"] is None else min(least, scaling["max"])
            if wanted != least:
                return [f"{name} wants {wanted}, by {mode} it is {least}"]
            return [f"{name} has {len(serving)}, wanted are {wanted}"] if len(serving) > wanted else []
        if name == UNKNOWN:
            return []
        players = sum(playing[each["id"]] for each in serving)
        need = needed(players, group["scaling"], scaling["min"], scaling["max"])
        self.counts["needs"] += 1
        if scaling["need"] != need:
            return [f"{name} says that {players} players need {scaling['need']}, it is {need}"]
        idle = [each["id"] for each in serving if not playing[each["id"]]]
        return (
            [f"{name} has {len(serving)}, needed are {need}, idle {idle}"]
            if len(serving) > need and idle
            else []
        )

    async def explained(self) -> None:
        """`why` answers for every instance, by a chain from something that happened."""
        instances = await self._fleet.pages("/api/v1/instances")
        ended = [each for each in instances if each["state"] in ENDED][-30:]
        for each in [one for one in instances if one["state"] not in ENDED] + ended:
            why = await self._fleet.get(f"/api/v1/instances/{each['id']}/why")
            self.counts["whys"] += 1
            if not why["chain"] or not why["decisions"] or not why["summary"]:
                self.broken("why", f"{each['id']}, {each['state']}: {why}")
            elif why["chain"][0]["kind"] in ("decision", "cut"):
                self.broken("why", f"{each['id']}, {each['state']} has no root: {why['chain']}")


def needed(players: int, scaling: Fields, least: int, most: int | None) -> int:
    """As docs/concepts/scaling.md says."""
    threshold = fractions.Fraction(str(scaling["up_threshold"]))
    need = max(least, math.ceil(players / (threshold * SLOTS)))
    if scaling["free_slots"]:
        need = max(need, math.ceil(fractions.Fraction(players + scaling["free_slots"], SLOTS)))
    return need if most is None else min(most, need)
