"""Recording of a scenario from a cluster: its groups and nodes as they are, and how many players there are over time."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

import click

from corral.cli.api.client import segment
from corral.cli.api.session import ApiSession
from corral.cli.apply import parents_first
from corral.cli.failure import CommandFailure, CommandRefused, WrongUsage, note
from corral.cli.terminal.output import Item
from corral.cli.terminal.progress_line import ProgressLine
from corral.errors import counted
from corral.system.spans import span_text

_GROUPS: Final = "/api/v1/groups"
_NODES: Final = "/api/v1/nodes"
_INSTANCES: Final = "/api/v1/instances"
_NO_MEMBERS: Final = ("ENROLLED", "REVOKED")
"""Nodes that never connected, or may not any more."""
_RUNG_SECONDS: Final = 30.0
"""How long a step of a stop ladder waits that does not say it."""
_LONGEST_SECONDS: Final = 31 * 86_400
_MOST_POINTS: Final = 30_000
"""Of all groups: a scenario is no longer than other documents."""
RECORDED_FIELDS: Final = frozenset(
    {
        "name",
        "parent",
        "abstract",
        "runtime",
        "static",
        "static_names",
        "min",
        "max",
        "warm",
        "scaling",
        "schedules",
        "maintenance",
        "max_players",
        "memory_mb",
        "cpu",
        "disk_mb",
        "ports",
        "nodes",
        "node_labels",
        "node_capabilities",
        "affinity",
        "spread",
        "priority",
        "depends_on",
        "fallback_group",
        "min_available",
        "disconnect",
        "restart",
        "crash_loop",
        "startup_timeout_seconds",
        "min_alive_ms",
    }
)
"""What decisions depend on. Nothing else of a document is recorded: it may have secrets, and a scenario may be given away."""


class PlayerRecording:
    """The players of groups over time, as points of a load: each change is two points, so that nothing lies between."""

    def __init__(self) -> None:
        self.points: dict[str, list[list[Any]]] = {}
        self.slots: dict[str, int] = {}
        """By group, the most that an instance takes: of the document, or as its workload reported it."""
        self.count = 0

    def note(self, seconds: int, instances: Iterable[Item]) -> None:
        players: dict[str, int] = {}
        for each in instances:
            if slots := int(each.get("max_players") or 0):
                name = str(each["group"])
                players[name] = players.get(name, 0) + int(each.get("players") or 0)
                self.slots[name] = max(slots, self.slots.get(name, 0))
        for group, number in players.items():
            known = self.points.setdefault(group, [["0s", number]])
            if known[-1][1] == number or self.count >= _MOST_POINTS:
                continue
            at = span_text(seconds)
            known += [[at, known[-1][1]], [at, number]]
            self.count += 2

    @property
    def full(self) -> bool:
        return self.count >= _MOST_POINTS


def record_scenario(session: ApiSession, *, seconds: int, every: int) -> None:
    """Print a scenario of the next `seconds`, or of what there was until Ctrl-C."""
    import yaml

    if seconds > _LONGEST_SECONDS:
        raise WrongUsage(f"--for {span_text(seconds)} is longer than {span_text(_LONGEST_SECONDS)}")
    began, started = time.monotonic(), dt.datetime.now(dt.UTC)
    stored = list(session.client.pages(_GROUPS))
    groups = _documents(session, stored)
    uncounted = {str(each["name"]) for each in stored if not each.get("max_players")}
    known = [each for each in session.client.pages(_NODES) if each.get("state") not in _NO_MEMBERS]
    nodes = [_node(each) for each in known]
    if not groups or not nodes:
        raise CommandRefused("there is nothing to record: no group, or no node", hint="create a group first")
    recording = PlayerRecording()
    note(f"recording the players of {counted(len(groups), 'group')}; Ctrl-C ends it and prints what there is")
    try:
        _follow(session, recording, seconds=seconds, every=every, began=began)
    except KeyboardInterrupt:
        with contextlib.suppress(CommandFailure, KeyboardInterrupt):
            recording.note(int(time.monotonic() - began), session.client.pages(_INSTANCES))
        note("interrupted: the scenario has what was recorded until now")
    for each in groups:
        if each["name"] in recording.slots and each["name"] in uncounted:
            each["max_players"] = recording.slots[each["name"]]
    lasted = max(1, min(seconds, int(time.monotonic() - began)))
    scenario = {
        "run": {"seed": 1, "start": started.strftime("%Y-%m-%dT%H:%M:%SZ"), "for": span_text(lasted)},
        "nodes": nodes,
        "groups": groups,
        "load": {
            name: {"points": points, "players": "pack"} for name, points in sorted(recording.points.items())
        },
    }
    if not scenario["load"]:
        del scenario["load"]
    click.echo(
        yaml.safe_dump(scenario, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110),
        nl=False,
    )


def _follow(
    session: ApiSession, recording: PlayerRecording, *, seconds: int, every: int, began: float
) -> None:
    counting = True
    with ProgressLine() as line:
        while True:
            now = time.monotonic() - began
            try:
                recording.note(int(now), session.client.pages(_INSTANCES))
                counting = True
            except CommandFailure as failure:
                if counting:
                    note(f"{failure.message}; players are counted again when there is an answer")
                counting = False
            if recording.full:
                note(
                    f"{counted(recording.count, 'point')} are enough for a scenario: the recording ends here"
                )
                return
            left = began + seconds - time.monotonic()
            line.show(f"recording, {span_text(max(0, left))} left, {counted(recording.count, 'point')}")
            if left <= 0:
                return
            time.sleep(min(every, left))


def _documents(session: ApiSession, groups: Iterable[Item]) -> list[dict[str, Any]]:
    found = []
    for each in groups:
        name = str(each["name"])
        document = session.client.get(f"{_GROUPS}/{segment(name)}/document")
        found.append(_recorded(name, document, each))
    return parents_first(found)


def _recorded(name: str, document: Item, group: Item) -> dict[str, Any]:
    kept: dict[str, Any] = {"name": name}
    kept |= {key: value for key, value in document.items() if key in RECORDED_FIELDS}
    for each in (kept, *(kept.get("schedules") or ())):
        if isinstance(each, dict) and isinstance(each.get("maintenance"), dict):  # without names of people
            each["maintenance"] = {"enabled": bool(each["maintenance"].get("enabled"))}
    if isinstance(ladder := document.get("stop"), list):  # the time it takes, without its commands
        waits = [each.get("wait_seconds", _RUNG_SECONDS) for each in ladder if isinstance(each, dict)]
        kept["stop"] = [{"signal": "SIGTERM", "wait_seconds": each} for each in waits]
    if not kept.get("abstract"):
        kept["command"] = ["recorded"]
    status = group.get("status")
    wanted = int(status.get("wanted") or 0) if isinstance(status, Mapping) else 0
    mode = (group.get("scaling") or {}).get("mode", "MANUAL")
    if mode == "MANUAL" and not kept.get("abstract") and wanted > int(group.get("min") or 0):
        note(f"group '{name}': {wanted} are wanted by 'scale'; the scenario has them as 'min'")
        kept["min"] = wanted
    return kept


def _node(node: Item) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": str(node["id"]),
        "memory_mb": int(node.get("memory_mb") or 0),
        "cpus": int(node.get("cpus") or 0),
    }
    for field in ("labels", "capabilities", "runtimes"):
        if node.get(field):
            found[field] = node[field]
    return found
