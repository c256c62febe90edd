"""P22: a year of three groups on five nodes, whose players change every five minutes, is simulated in less than a minute of
one core.

It is the real reconciler that decides; only nodes and players are a model. Measured is the time of the processor. The
floor is the same year as a bare calendar: each change of players is taken from a heap and spread over instances, and
nothing is decided. It shows how fast the processor was in this run: beside a busy neighbour both take longer.
"""

from __future__ import annotations

import heapq
import logging
import sys
import time
from typing import Any, Final

from benchmarks.figures import result
from benchmarks.sizes import sized
from corral.simulation.results import simulate
from corral.simulation.scenario_files import scenario_in
from corral.system.logger import log_plainly

TARGET_SECONDS: Final = 60
DAYS: Final = sized(365, 2)
GROUPS: Final = 3
INSTANCES: Final = 10
STEP_SECONDS: Final = 300
SCENARIO: Final = """\
run: {seed: 7, start: 2026-01-01T00:00:00Z, for: DAYS}
nodes: [{id: n, count: 5, memory_mb: 32768, cpus: 16}]
groups:
  - &group
    name: lobby
    command: [serve]
    memory_mb: 1024
    min: 2
    max: 20
    max_players: 50
    scaling: {mode: DYNAMIC, free_slots: 20}
  - {<<: *group, name: survival, max_players: 40, warm: 1}
  - {<<: *group, name: minigames, max_players: 16, max: 30}
boot:
  lobby: {seconds: [20, 40], crash: 0.01}
  survival: {seconds: [40, 55]}
  minigames: {seconds: [5, 10]}
load:
  lobby: {points: [[0h, 40], [6h, 10], [18h, 400], [21h, 450], [24h, 40]], repeat: 24h, step: 5m, noise: 0.1}
  survival: {points: [[0h, 80], [6h, 20], [18h, 300], [24h, 80]], repeat: 24h, step: 5m, noise: 0.1, players: spread}
  minigames: {points: [[0h, 10], [6h, 2], [18h, 150], [24h, 10]], repeat: 24h, step: 5m, noise: 0.1}
faults:
  - {at: 20h, cut: n-1, for: 5m}
  - {at: 30h, kill: n-2, for: 1h}
  - {at: 31h, leader: change}
""".replace("DAYS", f"{DAYS}d")


def run() -> list[dict[str, Any]]:
    """The claim of P22, in the shape of `benchmarks/results.json`."""
    log_plainly(sys.stderr, least=logging.WARNING)
    scenario = scenario_in(SCENARIO, file="year.yaml")
    began = time.process_time()
    found = simulate(scenario, timeline=False)
    seconds = time.process_time() - began
    floor = _bare_calendar()
    starts = sum(each.starts for each in found.groups.values())
    return [
        result(
            f"P22 a year of 3 groups on 5 nodes, {starts} starts, CPU time",
            seconds,
            "s",
            floor=floor,
            target=f"< {TARGET_SECONDS} s",
            ok=seconds < TARGET_SECONDS,
        )
    ]


def _bare_calendar() -> float:
    """The CPU seconds of the players' changes alone."""
    began = time.process_time()
    due = [(0, group) for group in range(GROUPS)]
    players = [[0] * INSTANCES for _ in range(GROUPS)]
    while due:
        at, group = heapq.heappop(due)
        share, rest = divmod(at % 450, INSTANCES)
        players[group] = [share + (number < rest) for number in range(INSTANCES)]
        if at + STEP_SECONDS < DAYS * 86_400:
            heapq.heappush(due, (at + STEP_SECONDS, group))
    return time.process_time() - began
