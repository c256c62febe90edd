"""What holds in every scenario. One that fails is printed as a file: put it into `kept`, and it is run for ever."""

from __future__ import annotations

import itertools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import yaml
from scenario_strategies import check_nodes, check_short, scenario_bodies

from corral.domain.groups.group import GroupSpec
from corral.domain.planning.scaling import load_need
from corral.domain.planning.schedules import scheduled
from corral.simulation.results import compared
from corral.simulation.scenario_files import read_scenario, scenario_in
from corral.simulation.simulation import Simulation

KEPT = sorted((pathlib.Path(__file__).parent / "kept").glob("*.yaml"))
FEW = hypothesis.settings(max_examples=25)


def run_of(body: dict[str, Any], *checks: Callable[[Simulation], None]) -> Simulation:
    """Run a scenario, and check at each moment of it. If that fails, the scenario is printed as a file."""
    text = yaml.safe_dump(body, sort_keys=False, default_flow_style=None)
    hypothesis.note(text)
    return _checked(Simulation(scenario_in(text, file="random.yaml")), *checks)


def _checked(run: Simulation, *checks: Callable[[Simulation], None]) -> Simulation:
    going_on = True
    while going_on:
        run.act()
        for check in checks:
            check(run)
        going_on = run.advance()
    return run


@pytest.mark.system
@pytest.mark.trap("T11", "T21", "T89")
@FEW
@hypothesis.given(body=scenario_bodies())
def test_no_node_has_more_than_it_has_and_who_is_short_has_a_reason(body):
    run_of(body, check_nodes, check_short)


@pytest.mark.system
@FEW
@hypothesis.given(body=scenario_bodies())
def test_players_are_cut_only_by_a_loss_of_power(body):
    body["faults"] = [each for each in body["faults"] if "kill" not in each]
    run = run_of(body)
    assert {name: each.cut_players for name, each in run.figures().items() if each.cut_players} == {}


def bound_seconds(spec: GroupSpec, most: int) -> float:
    """After which the number stays as long as the players do."""
    scaling = spec.scaling
    starts = math.ceil(most / scaling.max_step) * spec.startup_timeout_seconds
    return scaling.window_seconds + scaling.idle_seconds + most * scaling.cooldown_seconds + starts


@pytest.mark.trap("T23")
@FEW
@hypothesis.given(body=scenario_bodies(crash=False, faults=False), players=st.integers(0, 120))
def test_the_number_stays_at_constant_load_and_fits_it(body, players):
    body["nodes"][0]["memory_mb"] = 100_000
    body["nodes"][0]["cpus"] = 100
    [document, *_] = body["groups"]
    document.pop("schedules", None)
    document["static"] = False
    document["scaling"]["mode"] = "DYNAMIC"
    document["ports"] = {}
    body["groups"] = [document]
    body["boot"] = {"lobby": {"seconds": [1, 30]}}
    body["load"] = {"lobby": {"points": [["0s", 40], ["600s", 40], ["600s", players]], "players": "pack"}}
    body["run"]["for"] = "4h"
    run = run_of(body, check_nodes)
    group = run.controller.state.groups.require("lobby").record
    settled = 600 + bound_seconds(group.spec, document["max"])
    scales = [each for each in run.timeline.entries if each.kind == "scale"]
    assert [each.seconds for each in scales if each.seconds > settled] == []
    directions = [each.rule == "idle.down" for each in scales if each.seconds >= 600]
    turns = sum(one is not other for one, other in itertools.pairwise(directions))
    assert turns <= 1
    values = scheduled(group.spec, run.clock.now())
    serving = run.measures["lobby"].ready
    assert serving == load_need(group.spec, values, run.players["lobby"].seated)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_scenarios_that_failed_once_hold(path):
    scenario = read_scenario(str(path))
    run = _checked(Simulation(scenario), check_nodes, check_short)
    assert [str(found) for each in scenario.expect if not (found := compared(each, run.figures())).met] == []
