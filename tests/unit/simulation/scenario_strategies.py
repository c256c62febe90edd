"""Random scenarios, and what must hold at every moment of one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis.strategies as st

from corral.domain.groups.instance_records import live
from corral.domain.planning.schedules import scheduled
from corral.simulation.simulation import Simulation
from corral.system.spans import span_seconds

MINUTE = 60


def spans(least: int, most: int) -> st.SearchStrategy[str]:
    return st.integers(least, most).map(lambda seconds: f"{seconds}s")


@st.composite
def group_documents(draw: st.DrawFn, name: str) -> dict[str, Any]:
    least = draw(st.integers(0, 3))
    document: dict[str, Any] = {
        "name": name,
        "command": ["serve"],
        "memory_mb": draw(st.sampled_from([256, 512, 1500])),
        "cpu": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "min": least,
        "max": least + draw(st.integers(1, 6)),
        "max_players": draw(st.sampled_from([5, 10, 20])),
        "warm": draw(st.integers(0, 2)),
        "priority": draw(st.sampled_from([10, 50])),
        "ports": {"primary": {"range": [30_000, 30_000 + draw(st.integers(0, 8))]}},
        "scaling": {
            "mode": draw(st.sampled_from(["DYNAMIC", "DYNAMIC", "MANUAL", "STATIC"])),
            "free_slots": draw(st.sampled_from([0, 4])),
            "idle_seconds": draw(st.sampled_from([30, 300])),
            "window_seconds": draw(st.sampled_from([0, 60, 300])),
            "cooldown_seconds": draw(st.sampled_from([0, 60])),
            "max_step": draw(st.integers(1, 5)),
        },
        "disconnect": {"replace_after_seconds": draw(st.sampled_from([None, 60, 300]))},
        "crash_loop": {"pause_seconds": 60, "max_pause_seconds": 300},
    }
    if draw(st.booleans()):
        document["ports"]["query"] = {"of": "primary", "offset": 100}
    if draw(st.integers(0, 4)) == 0:
        document |= {"static": True, "warm": 0}
    if name != "lobby" and draw(st.booleans()):
        document["depends_on"] = [{"group": "lobby"}]
    if draw(st.integers(0, 3)) == 0:
        document["schedules"] = [
            {
                "name": "evening",
                "cron": "*/30 * * * *",
                "duration_seconds": 600,
                "min": draw(st.integers(0, document["max"])),
            }
        ]
    return document


@st.composite
def scenario_bodies(draw: st.DrawFn, *, crash: bool = True, faults: bool = True) -> dict[str, Any]:
    """The body of a scenario of one to three groups, for some hours."""
    names = ["lobby", "hub", "arena"][: draw(st.integers(1, 3))]
    count = draw(st.integers(1, 4))
    body: dict[str, Any] = {
        "run": {"seed": draw(st.integers(0, 1000)), "for": draw(spans(30 * MINUTE, 180 * MINUTE))},
        "nodes": [{"id": "n", "count": count, "memory_mb": draw(st.sampled_from([1024, 4096])), "cpus": 4}],
        "groups": [draw(group_documents(name)) for name in names],
        "boot": {
            name: {
                "seconds": [1, draw(st.integers(1, 70))],
                "crash": draw(st.sampled_from([0, 0, 0.1, 0.5])) if crash else 0,
            }
            for name in names
        },
        "load": {
            name: {
                "points": sorted(
                    draw(
                        st.lists(st.tuples(st.integers(0, 7200), st.integers(0, 120)), min_size=1, max_size=5)
                    )
                ),
                "noise": draw(st.sampled_from([0, 0.1, 0.5])),
                "players": draw(st.sampled_from(["pack", "spread"])),
            }
            for name in names
        },
    }
    if faults:
        node = st.integers(1, count).map(lambda number: f"n-{number}")
        lasts = st.fixed_dictionaries({"at": spans(60, 7200)}, optional={"for": spans(1, 1200)})
        cut = st.tuples(lasts, node).map(lambda pair: {**pair[0], "cut": pair[1]})
        kill = st.tuples(lasts, node).map(lambda pair: {**pair[0], "kill": pair[1]})
        leader = spans(60, 7200).map(lambda at: {"at": at, "leader": "change"})
        at = spans(60, 7200)
        drain = st.tuples(st.sampled_from(["drain", "undrain"]), at, node).map(
            lambda found: {"at": found[1], found[0]: found[2]}
        )
        crashes = st.sampled_from([0, 0, 0.5, 1])
        deploy = st.tuples(at, st.sampled_from(names), crashes).map(
            lambda found: {
                "at": found[0],
                "deploy": found[1],
                "boot": {"seconds": [1, 30], "crash": found[2]},
            }
        )
        drawn = draw(st.lists(st.one_of(cut, kill, leader, drain, deploy), max_size=6))
        ends = span_seconds(body["run"]["for"]) or 0
        body["faults"] = [each for each in drawn if (span_seconds(each["at"]) or 0) <= ends]
    body["load"] = {
        name: {**load, "points": [[f"{at}s", number] for at, number in load["points"]]}
        for name, load in body["load"].items()
    }
    return body


def check_nodes(run: Simulation) -> None:
    """No node has more than it has, and no port or id is there twice."""
    state = run.controller.state
    ids = Counter(each.id for each in run.nodes.runs())
    assert all(count == 1 for count in ids.values()), f"an id runs twice: {ids}"
    for stored in state.nodes:
        node = stored.record
        reserved = [each.record for each in state.reservations.of_node(node.id)]
        assert sum(each.memory_mb for each in reserved) <= node.memory_mb
        assert sum(each.cpu for each in reserved) <= node.cpus + 1e-6
        ports = Counter((port.port, port.protocol) for each in reserved for port in each.ports)
        assert all(count == 1 for count in ports.values()), f"a port is leased twice on {node.id}: {ports}"
    for stored in state.instances:
        if live(stored.record.state):
            held = state.reservations.find(f"{stored.record.node}/{stored.record.id}")
            assert held is not None, f"{stored.record.id} runs without a reservation"


def check_short(run: Simulation) -> None:
    """A group that has fewer than wanted has the reason recorded, or is about to get them."""
    for stored in run.controller.state.groups:
        group = stored.record
        serving = run.controller.workspace("check").tally(group.spec.name).serving
        if serving < scheduled(group.spec, run.clock.now()).min:
            assert group.reason or group.paused, f"'{group.spec.name}' has {serving} and no reason"
