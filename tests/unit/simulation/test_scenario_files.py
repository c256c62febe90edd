"""Scenario files: what is read, and how what is wrong is named."""

from __future__ import annotations

import datetime as dt
import os
import pathlib
import textwrap

import pytest
import yaml

from corral.simulation.measures import GroupFigures
from corral.simulation.results import simulate
from corral.simulation.scenario import ExpectedBound, Fault, FaultKind, LoadModel, Seating
from corral.simulation.scenario_files import ScenarioRejected, read_scenario, scenario_in
from corral.simulation.scenario_reader import FIGURES, KEYS

EXAMPLE = """\
run: {seed: 7, start: 2026-03-28T00:00:00Z, for: 2d}
nodes: [{id: n, count: 3, memory_mb: 8192, cpus: 8}]
groups: [./lobby.yaml]
boot: {lobby: {seconds: [20, 40], crash: 0.01}}
load: {lobby: {points: [[0h, 0], [18h, 180], [24h, 10]], noise: 0.1, players: pack}}
faults: [{at: 20h, cut: n-1, for: 5m}, {at: 30h, kill: n-2}, {at: 31h, leader: change}]
expect: {flaps: 0, short_minutes: {lobby: 2}}
"""
LOBBY = "name: lobby\ncommand: [serve]\nmax_players: 20\n"
SMALL = """\
run: {for: 1h}
nodes:
  - {id: a, memory_mb: 1024, cpus: 2}
groups:
  - {name: lobby, command: [serve], max_players: 20}
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "lobby.yaml").write_text(LOBBY)
    (tmp_path / "scenario.yaml").write_text(EXAMPLE)
    return tmp_path


def test_the_example_of_the_design_is_read(files):
    found = read_scenario(str(files / "scenario.yaml"))
    assert (found.run.seed, found.run.seconds) == (7, 2 * 86_400)
    assert found.run.start == dt.datetime(2026, 3, 28, tzinfo=dt.UTC)
    assert [each.id for each in found.nodes] == ["n-1", "n-2", "n-3"]
    assert [each.body["name"] for each in found.groups] == ["lobby"]
    assert found.boot["lobby"].seconds == (20.0, 40.0)
    points = ((0, 0.0), (64_800, 180.0), (86_400, 10.0))
    assert found.load["lobby"] == LoadModel(points=points, noise=0.1, players=Seating.PACK)
    assert found.faults == (
        Fault(kind=FaultKind.CUT, at=72_000, node="n-1", seconds=300),
        Fault(kind=FaultKind.KILL, at=108_000, node="n-2"),
        Fault(kind=FaultKind.LEADER, at=111_600),
    )
    assert found.expect == (
        ExpectedBound(figure="flaps", most=0.0),
        ExpectedBound(figure="short_minutes", group="lobby", most=2.0),
    )


def test_a_scenario_may_be_json(tmp_path):
    (tmp_path / "s.json").write_text(
        '{"run": {"for": "1h"}, "nodes": [{"id": "a", "memory_mb": 1, "cpus": 1}],'
        ' "groups": [{"name": "lobby", "command": ["serve"]}]}'
    )
    assert read_scenario(str(tmp_path / "s.json")).run.seconds == 3600


def test_the_reference_has_every_key_and_is_a_scenario_that_runs():
    path = pathlib.Path(__file__).parents[3] / "docs" / "reference" / "scenario.yaml"
    scenario = read_scenario(str(path))
    written = yaml.safe_load(path.read_text())
    assert set(written) == set(KEYS[""])
    assert set(written["expect"]) == set(FIGURES) < set(GroupFigures.__struct_fields__)
    faults = {key for each in written["faults"] for key in each}
    found = [written["run"], written["nodes"][0], written["boot"]["lobby"], written["load"]["lobby"], faults]
    parts = ("run", "nodes", "boot", "load", "faults")
    assert [set(part) for part in found] == [set(KEYS[name]) for name in parts]
    assert simulate(scenario).failed == []


def faults_of(text: str) -> tuple[str, ...]:
    with pytest.raises(ScenarioRejected) as refused:
        scenario_in(text, file="s.yaml")
    return refused.value.lines or (refused.value.message,)


WRONG = {
    "runs: {}": ["s.yaml:6: runs: unknown key 'runs'; did you mean 'run'?"],
    "boot: {lobi: {}}": ["s.yaml:6: boot.lobi: unknown group 'lobi'; did you mean 'lobby'?"],
    "boot: {lobby: {second: 3}}": [
        "s.yaml:6: boot.lobby.second: unknown key 'second'; did you mean 'seconds'?"
    ],
    "boot: {lobby: {seconds: [40, 20]}}": ["s.yaml:6: boot.lobby.seconds: the least comes first"],
    "boot: {lobby: {seconds: [1, 2, 3]}}": ["s.yaml:6: boot.lobby.seconds: 3 entries are more than 2"],
    "boot: {lobby: {crash: 1.5}}": ["s.yaml:6: boot.lobby.crash: 1.5 is not between 0 and 1"],
    "boot: [lobby]": ["s.yaml:6: boot: write an object, as {key: value}"],
    "load: {lobby: {points: []}}": ["s.yaml:6: load.lobby.points: at least one point is needed, as [0h, 0]"],
    "load: {lobby: {}}": ["s.yaml:6: load.lobby.points: it is missing; add it"],
    "load: {lobby: {points: [[0h]]}}": [
        "s.yaml:6: load.lobby.points[0]: write a time and a number of players, as [18h, 180]"
    ],
    "load:\n  lobby:\n    points:\n    - [2h, 1]\n    - [1h, 1]": [
        "s.yaml:10: load.lobby.points[1][0]: it is before the point above it; sort them by time"
    ],
    "load: {lobby: {points: [[soon, 1]]}}": [
        "s.yaml:6: load.lobby.points[0][0]: 'soon' is not a span of time; write it like 90s, 5m, 24h or 2d"
    ],
    "load: {lobby: {points: [[0h, -1]]}}": [
        "s.yaml:6: load.lobby.points[0][1]: -1 is not between 0 and 1e+07"
    ],
    "load: {lobby: {points: [[0h, 1]], players: packed}}": [
        "s.yaml:6: load.lobby.players: unknown word 'packed'; did you mean 'pack'?"
    ],
    "load: {lobby: {points: [[2h, 1]], repeat: 1h}}": [
        "s.yaml:6: load.lobby.repeat: '1h' is not between 2h and 3660d"
    ],
    "load: {lobby: {points: [[0h, 1]], step: 0s}}": [
        "s.yaml:6: load.lobby.step: '0s' is not between 1s and 1d"
    ],
    "faults: [{at: 1h}]": [
        "s.yaml:6: faults[0]: write one of 'cut: NODE', 'kill: NODE', 'leader: change', 'drain: NODE', "
        "'undrain: NODE' and 'deploy: GROUP'"
    ],
    "faults: [{at: 1h, drain: a, for: 1h}]": ["s.yaml:6: faults[0].for: 'drain' does not last; leave it out"],
    "faults: [{at: 1h, cut: a, deadline: 1h}]": [
        "s.yaml:6: faults[0].deadline: 'cut' has no 'deadline'; leave it out"
    ],
    "faults: [{at: 1h, undrain: b}]": ["s.yaml:6: faults[0].undrain: unknown node 'b'; there are a"],
    "faults: [{at: 1h, deploy: hub}]": ["s.yaml:6: faults[0].deploy: unknown group 'hub'; there are lobby"],
    "faults: [{at: 1h, deploy: lobby, boot: {crash: 2}}]": [
        "s.yaml:6: faults[0].boot.crash: 2 is not between 0 and 1"
    ],
    "faults: [{at: 1h, cut: b}]": ["s.yaml:6: faults[0].cut: unknown node 'b'; there are a"],
    "faults: [{at: 2h, cut: a}]": [
        "s.yaml:6: faults[0].at: the run ends after 1h, before this; make it longer, or leave this out"
    ],
    "faults: [{kill: a}]": ["s.yaml:6: faults[0].at: it is missing; add it"],
    "faults: [{at: 1h, leader: gone}]": ["s.yaml:6: faults[0].leader: write 'leader: change'"],
    "faults: [{at: 1h, leader: change, for: 1m}]": [
        "s.yaml:6: faults[0].for: a change of the leader does not last; leave it out"
    ],
    "expect: {flap: 0}": ["s.yaml:6: expect.flap: unknown key 'flap'; did you mean 'flaps'?"],
    "expect: {flaps: none}": ["s.yaml:6: expect.flaps: write a number"],
    "expect: {flaps: {hub: 1}}": ["s.yaml:6: expect.flaps.hub: unknown group 'hub'; there are lobby"],
}


@pytest.mark.parametrize("text", WRONG, ids=str)
def test_a_wrong_part_is_named_with_its_path_and_line(text):
    assert list(faults_of(SMALL + text + "\n")) == WRONG[text]


WRONG_TOPS = {
    "run: {for: 1h}\nnodes: [{id: a, memory_mb: 1, cpus: 1}]\n"
    "groups: [{name: base, abstract: true}, {name: hub, parent: base, command: [serve]}]\n"
    "faults: [{at: 1h, deploy: base}]": [
        "s.yaml:4: faults[0].deploy: group 'base' is abstract; write one that has it as its parent"
    ],
    "[]": ["s.yaml:1: write an object, as {key: value}"],
    "run: {}\nnodes: []\ngroups: []": [
        "s.yaml:1: run.for: it is missing; add it",
        "s.yaml:2: nodes: at least one node is needed",
        "s.yaml:3: groups: at least one group is needed",
    ],
    "run: {for: 20y}\nnodes: [{id: a, memory_mb: 1, cpus: 1}]\ngroups: [{name: a, command: [serve]}]": [
        "s.yaml:1: run.for: '20y' is not a span of time; write it like 90s, 5m, 24h or 2d"
    ],
    "run: {for: 1h, seed: x, start: soon}\nnodes: [{id: a}]\ngroups: [3]": [
        "s.yaml:1: run.seed: write an integer",
        "s.yaml:1: run.start: 'soon' is no time; write it like 2026-03-28T00:00:00Z",
        "s.yaml:2: nodes[0].memory_mb: it is missing; add it",
        "s.yaml:2: nodes[0].cpus: it is missing; add it",
        "s.yaml:3: groups[0]: write the path of a file, or a group as an object",
    ],
    "run: {for: 1h}\nnodes: [{id: a, count: 2, memory_mb: 1, cpus: 1}, {id: a-1, memory_mb: 1, cpus: 1}]\n"
    "groups: [none.yaml]": [
        "s.yaml:2: nodes[1]: node 'a-1' is there twice; give one of them another id",
        "s.yaml:3: groups[0]: none.yaml does not exist; give a file, a directory, or '-' for stdin",
    ],
    "run: {for: 1h}\nrun: {for: 2h}": [
        "s.yaml:2: the key 'run' stands twice in one object; leave one of them out"
    ],
    "a: 1\n---\nb: 2": ["s.yaml has 2 documents: a scenario is one"],
}


@pytest.mark.parametrize("text", WRONG_TOPS)
def test_what_is_missing_is_named(text):
    assert list(faults_of(text)) == WRONG_TOPS[text]


def test_more_steps_than_a_run_can_have_are_refused():
    long = SMALL.replace("1h", "3000d") + "load: {lobby: {points: [[0h, 1]], step: 1s}}\n"
    [fault] = faults_of(long)
    assert fault.startswith("s.yaml:6: load: the number of players would change 259200001 times")


def test_many_faults_are_counted_and_not_all_listed():
    entries = "".join(f"  - {{at: 1h, cut: x{number}}}\n" for number in range(80))
    faults = faults_of(SMALL + "faults:\n" + entries)
    assert len(faults) == 51
    assert faults[-1] == "and 30 more errors"


def test_a_file_that_is_no_yaml_is_named_with_its_line():
    assert faults_of("run: {for: 1h\nnodes: ]")[0].startswith("s.yaml:2: it is not YAML")


def test_faults_of_group_files_are_shown(files):
    (files / "lobby.yaml").write_text("name: [")
    with pytest.raises(ScenarioRejected) as refused:
        read_scenario(str(files / "scenario.yaml"))
    assert "groups[0]: " in refused.value.lines[0]
    assert "lobby.yaml:1: it is not YAML" in refused.value.lines[0]


def test_faults_of_the_scenario_and_of_all_groups_are_listed_at_once_with_their_lines(tmp_path):
    (tmp_path / "hub.yaml").write_text("name: hub\ncommand: [serve]\nmemory: 3\nmin: -1\n")
    (tmp_path / "s.yaml").write_text(
        textwrap.dedent(
            """\
            run: {for: 1h}
            nodes: [{id: a, memory_mb: 1, cpus: 1}]
            groups:
              - name: lobby
                command: [serve]
                memory: 3
              - hub.yaml
              - name: duels
                command: [serve]
            load: {duels: {points: [[0h, 1]]}}
            boot: {lobby: {crash: 2}}
            """
        )
    )
    with pytest.raises(ScenarioRejected) as refused:
        read_scenario(str(tmp_path / "s.yaml"))
    lines = [each.replace(f"{tmp_path}/", "") for each in refused.value.lines]
    starts = [
        "s.yaml:11: boot.lobby.crash: 2 is not between 0 and 1",
        "s.yaml:6: groups[0].memory: unknown field 'memory'; did you mean 'memory_mb'?",
        "s.yaml:10: load.duels: group 'duels' has no 'max_players'",
        "hub.yaml:3: unknown field 'memory'",
        "hub.yaml:4: field 'min' is invalid",
    ]
    assert len(lines) == len(starts), lines
    for start in starts:
        assert any(each.startswith(start) for each in lines), (start, lines)
    assert refused.value.message.startswith("5 errors in ")


def test_a_wrong_number_of_nodes_makes_no_other_node_unknown():
    text = SMALL.replace("{id: a,", "{id: a, count: two,") + "faults: [{at: 1m, cut: a-2}]\n"
    assert faults_of(text) == ("s.yaml:3: nodes[0].count: write an integer",)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ScenarioRejected, match=r"none\.yaml: No such file"):
        read_scenario(str(tmp_path / "none.yaml"))


def test_lines_are_found_below_references():
    text = textwrap.dedent(
        """\
        run: {for: 1h}
        nodes: [{id: a, memory_mb: 1, cpus: 1}]
        groups:
          - &g {name: lobby, command: [serve], max_players: 2}
          - {<<: *g, name: hub}
        load:
          lobby: &load {points: [[0h, x]]}
          hub: *load
        """
    )
    assert faults_of(text) == (
        "s.yaml:7: load.lobby.points[0][1]: write a number",
        "s.yaml:7: load.hub.points[0][1]: write a number",
    )


def test_a_group_file_that_is_a_pipe_or_a_device_is_not_waited_for(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", str(tmp_path / "pipe")):
        text = f"{SMALL}  - {path}\n"
        assert any(each.endswith("it is no regular file") for each in faults_of(text))


def test_points_that_repeat_at_once_count_as_changes_of_the_number() -> None:
    load = "load: {lobby: {points: [[0s, 1], [1s, 2]], repeat: 1s, step: 1d}}\n"
    (fault,) = faults_of(SMALL.replace("for: 1h", "for: 3650d") + load)
    assert "more than 5000000; make 'step' or 'repeat' longer" in fault
