"""Scenarios for tests."""

from __future__ import annotations

from typing import Any

import yaml

from corral.simulation.scenario import Scenario
from corral.simulation.scenario_files import scenario_in

NODES = [{"id": "n", "count": 3, "memory_mb": 8192, "cpus": 8}]


def group(name: str = "lobby", **fields: Any) -> dict[str, Any]:
    """A group whose number follows its players."""
    return {
        "name": name,
        "command": ["serve"],
        "memory_mb": 512,
        "min": 1,
        "max": 10,
        "max_players": 20,
        "scaling": {"mode": "DYNAMIC"},
        **fields,
    }


def scenario(*groups: dict[str, Any], seconds: str = "1h", seed: int = 7, **parts: Any) -> Scenario:
    body = {
        "run": {"seed": seed, "start": "2026-03-28T00:00:00Z", "for": seconds},
        "nodes": NODES,
        "groups": list(groups) or [group()],
        **parts,
    }
    return scenario_in(yaml.safe_dump(body, sort_keys=False), file="scenario.yaml")


def steps(*changes: tuple[int, int]) -> list[list[Any]]:
    """Points of a load that has each of these numbers from its time on."""
    points: list[list[Any]] = [["0s", 0]]
    for at, number in changes:
        points += [[f"{at}s", points[-1][1]], [f"{at}s", number]]
    return points
