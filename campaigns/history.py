"""What happened, read from the store: events and decisions, and the rules about their order and their causes."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from campaigns.fleet import Fleet

Item = dict[str, Any]


class History:
    """Everything since the begin of the campaign; `read` adds what is new, and checks it."""

    def __init__(
        self, fleet: Fleet, broken: Callable[[str, str], None], counts: collections.Counter[str]
    ) -> None:
        self.journals: dict[str, list[Item]] = collections.defaultdict(list)
        """Decisions by subject, such as `group/lobby`, the newest last."""
        self._fleet = fleet
        self._broken = broken
        self._counts = counts
        self._events: list[Item] = []
        self._decisions: dict[str, Item] = {}
        self._last_decision = 0
        self._held: set[str] = set()
        self._cordoned: set[str] = set()

    async def read(self) -> None:
        evidence = self._fleet.evidence
        after = self._events[-1]["sequence"] if self._events else 0
        new = await evidence.events(after)
        if [event["sequence"] for event in new] != list(range(after + 1, after + 1 + len(new))):
            self._broken("events", f"a hole after {after}")
        self._events += new
        decisions = await evidence.decisions(self._last_decision)
        for each in decisions:
            self._last_decision = each["number"]
            self._decisions[each["id"]] = each
            self.journals[each["journal"]].append(each)
        known = {f"event:{event['id']}" for event in self._events}
        known |= {f"request:{id}" for id in await evidence.requests()}
        known |= {f"crash:{id}" for id in await evidence.documents("crashes")}
        known |= {
            f"node:{id}" for id in await evidence.documents("nodes")
        }  # it reported a copy, or lost a run
        known |= self._decisions.keys()
        for decision in {each["id"]: each for each in decisions}.values():
            self._causes(decision, known)
        for event in new:
            self._decided(event)
            self._allowed(event)

    def last(self, type: str, subject: str) -> int:
        """The number of the last event of a type about something; 0: there was none."""
        found = (
            each["sequence"] for each in self._events if (each["type"], each["subject"]) == (type, subject)
        )
        return max(found, default=0)

    def served_since(self, id: str) -> int:
        """The number of the event with which an instance began to serve; restarts do not count."""
        found = 0
        for event in self._events:
            if event["subject"] == id and event["type"] == "INSTANCE_PROMOTED":
                found = event["sequence"]
            elif event["subject"] == id and event["type"] == "INSTANCE_SCHEDULED":
                decided = self._decisions.get(event["data"]["decision"], {})
                found = event["sequence"] if decided.get("kind") == "start" else found
        return found

    def _causes(self, decision: Item, known: set[str]) -> None:
        """I13: each cause of a decision exists, and the last of them is its root."""
        self._counts["decisions"] += 1
        what = f"{decision['id']} about {decision['subject']}"
        causes = decision.get("causes", [])
        if not decision.get("root") or (causes and decision["root"] != causes[-1]):
            self._broken("I13", f"{what} has no root: {decision}")
        if decision["kind"] in ("start", "stop", "promote") and not causes:
            self._counts["without causes"] += 1  # the first look of a new leader, a copy that a node reports
            if decision["cause"].startswith("a change of"):
                self._broken("I13", f"{what} has no causes: {decision}")
        if decision["kind"] == "refuse" and decision["reason"].startswith("asked for by"):
            return  # a request that changed nothing is not in the audit
        for cause in causes:
            if cause not in known:
                self._broken("I13", f"{what}: its cause {cause} is not there")

    def _decided(self, event: Item) -> None:
        """I13: each start and stop has a decision in the journal of its instance."""
        id, data = event["subject"], event["data"]
        journal = self.journals[f"instance/{id}"]
        outcome = (data.get("exit") or {}).get("outcome")
        if event["type"] in ("INSTANCE_SCHEDULED", "INSTANCE_PROMOTED"):
            decided = any(each["id"] == data["decision"] for each in journal)
        elif event["type"] == "INSTANCE_STOPPED" and outcome in ("stopped", "killed"):
            decided = any(each["kind"] in ("stop", "restart") for each in journal)
        else:
            return
        if not decided:
            self._broken("I13", f"{event['type']} {id} ({event['id']}) without a decision")

    def _allowed(self, event: Item) -> None:
        """Nothing is started for a held group or on a cordoned node."""
        subject, data = event["subject"], event["data"]
        match event["type"]:
            case "GROUP_HELD":
                self._held.add(subject)
            case "GROUP_RELEASED" | "GROUP_DELETED":
                self._held.discard(subject)
            case "NODE_CORDONED":
                self._cordoned.add(subject)
            case "NODE_UNCORDONED":
                self._cordoned.discard(subject)
            case "INSTANCE_SCHEDULED":
                self._counts["starts"] += 1
                if data["group"] in self._held:
                    self._broken("hold", f"{subject} was started ({event['id']}), its group is held")
                if data["node"] in self._cordoned:
                    self._broken("cordon", f"{subject} was started ({event['id']}) on a cordoned node")
