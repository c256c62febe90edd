"""Scenarios with known outcomes: what is decided, when and why."""

from __future__ import annotations

import msgspec
import pytest
from scenarios import NODES, group, scenario, steps

from corral.simulation.results import SimulationResult, simulate
from corral.simulation.scenario import Scenario
from corral.simulation.scenario_files import ScenarioRejected

BOOT = {"lobby": {"seconds": 5}}


def decided(result: SimulationResult, *kinds: str) -> list[tuple[float, str, str]]:
    return [(each.seconds, each.kind, each.instance) for each in result.timeline if each.kind in kinds]


def scaled(result: SimulationResult) -> list[tuple[float, str, str]]:
    return decided(result, "start", "stop")


def test_the_number_follows_the_players_of_the_design():
    load = {"lobby": {"points": steps((60, 17), (300, 33), (600, 10))}}
    found = simulate(scenario(boot=BOOT, load=load))
    assert scaled(found) == [
        (0.0, "start", "lobby-1"),
        (60.0, "start", "lobby-2"),
        (300.0, "start", "lobby-3"),
        (900.0, "stop", "lobby-3"),
        (960.0, "stop", "lobby-2"),
    ]
    reasons = [each.reason for each in found.timeline if each.kind == "scale"]
    assert reasons[:2] == ["17 players need 2, 1 is there", "33 players need 3, 2 are there"]
    figures = found.groups["lobby"]
    assert (figures.starts, figures.stops, figures.flaps, figures.cut_players) == (3, 2, 0, 0)
    assert figures.short_minutes == 0.25, "three starts of five seconds"


def test_a_visit_to_an_idle_instance_puts_its_stop_off():
    load = {"lobby": {"points": steps((60, 17), (300, 33), (600, 10), (880, 21), (890, 10))}}
    stops = decided(simulate(scenario(boot=BOOT, load=load)), "stop")
    assert stops == [(900.0, "stop", "lobby-3"), (1190.0, "stop", "lobby-2")]


def noisy(seed: int) -> Scenario:
    hub = group("hub", max_players=10, warm=1)
    return scenario(
        group(),
        hub,
        seconds="1d",
        seed=seed,
        boot={"lobby": {"seconds": [5, 40], "crash": 0.2}, "hub": {"seconds": [1, 3]}},
        load={
            "lobby": {"points": [["0h", 0], ["12h", 150], ["24h", 10]], "noise": 0.2},
            "hub": {"points": [["0h", 50]], "noise": 0.5, "players": "spread", "step": "5m"},
        },
        faults=[
            {"at": "6h", "cut": "n-1", "for": "5m"},
            {"at": "7h", "leader": "change"},
            {"at": "8h", "kill": "n-2", "for": "20m"},
        ],
    )


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    first, again, other = (msgspec.json.encode(simulate(noisy(seed))) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_looks_at_every_group_find_nothing_that_events_have_not_found():
    from corral.simulation.simulation import Simulation

    results = []
    for floor in (1_000_000, 30):
        run = Simulation(noisy(3), floor_seconds=floor)
        run.run()
        results.append((run.figures(), [(each.seconds, each.kind) for each in run.timeline.entries]))
    assert results[0] == results[1]


def test_only_the_first_part_of_a_run_is_simulated_until_a_time():
    load = {"lobby": {"points": steps((60, 17), (300, 33))}}
    found = simulate(scenario(boot=BOOT, load=load), until=120)
    assert [each[2] for each in scaled(found)] == ["lobby-1", "lobby-2"]
    assert found.seconds == 120


def test_players_beyond_the_capacity_are_refused_once_each():
    load = {"lobby": {"points": steps((60, 50), (120, 55), (600, 10))}}
    found = simulate(scenario(group(max=2), boot=BOOT, load=load))
    figures = found.groups["lobby"]
    # 50 come: 20 find a place at once, 30 do not; the second instance takes 20 of these; then 5 more come
    assert (figures.refused_players, figures.full_minutes) == (35, 9.0)


def test_instances_go_on_while_their_node_is_cut_off():
    load = {"lobby": {"points": steps((10, 15))}}
    cut = [{"at": "10m", "cut": "n-1", "for": "30s"}]
    one = {"nodes": [{"id": "n", "count": 1, "memory_mb": 8192, "cpus": 8}]}
    found = simulate(scenario(boot=BOOT, load=load, faults=cut, **one))
    assert scaled(found) == [(0.0, "start", "lobby-1")]
    assert found.groups["lobby"].cut_players == 0
    faults = [(each.seconds, each.node, each.reason) for each in found.timeline if each.kind == "fault"]
    assert faults == [(600.0, "n-1", "it loses its connection for 30 seconds")]


def test_a_node_that_lost_its_power_starts_what_it_ran_when_it_is_back():
    load = {"lobby": {"points": steps((10, 15))}}
    kill = [{"at": "10m", "kill": "n-1", "for": "30s"}]
    one = {"nodes": [{"id": "n", "count": 1, "memory_mb": 8192, "cpus": 8}]}
    found = simulate(scenario(boot=BOOT, load=load, faults=kill, **one))
    assert scaled(found) == [(0.0, "start", "lobby-1")], "under its id, and it is no failure of the group"
    figures = found.groups["lobby"]
    assert (figures.cut_players, figures.refused_players) == (15, 15)
    assert figures.full_minutes == pytest.approx(35 / 60, abs=0.01), "until it has started"


def about(result: SimulationResult, since: float) -> list[tuple[float, str, str]]:
    """What was decided from then on, with its rule."""
    return [
        (each.seconds, f"{each.kind} {each.rule}", each.instance)
        for each in result.timeline
        if each.seconds >= since and each.kind not in ("fault", "order")
    ]


def test_a_partition_of_five_minutes_is_replaced_and_resolved():
    cut = [{"at": "10m", "cut": "n-1", "for": "300s"}]
    found = simulate(scenario(group(min=3, scaling={}), boot=BOOT, faults=cut))
    [lost] = [each.instance for each in found.timeline if each.kind == "start" and each.node == "n-1"]
    assert about(found, 600) == [
        (660.0, "phase lost.replace", lost),
        (660.0, "start lost.replace", "lobby-4"),
        (900.0, "adopt lost.return", lost),
        (900.0, "stop duplicate.stop", lost),
    ]
    assert found.groups["lobby"].short_minutes == 1.08, (
        "from 5 s after the cut until the replacement is ready"
    )


def test_a_new_leader_waits_for_a_node_from_its_own_beginning():
    faults = [{"at": "600s", "cut": "n-1", "for": "300s"}, {"at": "640s", "leader": "change"}]
    found = simulate(scenario(group(min=3, scaling={}), boot=BOOT, faults=faults))
    assert [at for at, kind, _ in about(found, 600) if kind == "start lost.replace"] == [700.0]


def test_instances_of_a_node_that_is_gone_for_good_are_replaced():
    load = {"lobby": {"points": steps((10, 15))}}
    kill = [{"at": "10m", "kill": "n-1"}]
    for seed in range(20):
        found = simulate(scenario(boot=BOOT, load=load, faults=kill, seed=seed))
        if found.groups["lobby"].cut_players:
            break
    assert [(kind, at) for at, kind, _ in about(found, 600)][-1] == ("start lost.replace", 660.0)
    figures = found.groups["lobby"]
    assert (figures.cut_players, figures.refused_players) == (15, 15)
    assert figures.full_minutes == pytest.approx(1 + 10 / 60, abs=0.1)


def test_a_node_is_emptied_and_opened_again_without_a_shortage():
    faults = [{"at": "10m", "drain": "n-1"}, {"at": "20m", "undrain": "n-1"}]
    found = simulate(scenario(group(min=3, scaling={}), boot=BOOT, faults=faults))
    [moved] = [each.instance for each in found.timeline if each.kind == "start" and each.node == "n-1"]
    orders = [(each.seconds, each.node, each.reason) for each in found.timeline if each.kind == "order"]
    assert orders == [
        (600.0, "n-1", "it is emptied; players are waited for"),
        (1200.0, "n-1", "it is opened again"),
    ]
    assert about(found, 600) == [
        (600.0, "start drain.move", "lobby-4"),
        (615.0, "drain drain.move", moved),
        (615.0, "stop drain.move", moved),
    ]
    assert found.groups["lobby"].short_minutes == 0.08, "only the first starts"


def test_players_are_cut_at_the_deadline_of_a_drain():
    load = {"lobby": {"points": steps((10, 15))}}
    one = {"nodes": [{"id": "n", "count": 1, "memory_mb": 8192, "cpus": 8}]}
    waits = simulate(scenario(boot=BOOT, load=load, faults=[{"at": "10m", "drain": "n-1"}], **one))
    assert waits.groups["lobby"].cut_players == 0
    soon = [{"at": "10m", "drain": "n-1", "deadline": "2m"}]
    found = simulate(scenario(boot=BOOT, load=load, faults=soon, **one))
    assert (720.0, "stop drain.deadline", "lobby-1") in about(found, 600)
    assert found.groups["lobby"].cut_players == 15


def test_a_version_that_starts_replaces_all_and_one_that_crashes_is_taken_back():
    faults = [{"at": "10m", "deploy": "lobby"}, {"at": "20m", "deploy": "lobby", "boot": {"crash": 1}}]
    found = simulate(scenario(group(min=2, scaling={}), boot=BOOT, faults=faults))
    phases = [
        (each.seconds > 1200, each.reason.partition(":")[0])
        for each in found.timeline
        if each.kind == "phase" and each.reason.partition(":")[0].isupper()
    ]
    assert (False, "COMPLETED") in phases
    assert phases[-1] == (True, "ROLLED_BACK")
    figures = found.groups["lobby"]
    assert figures.crashes >= 1
    assert figures.short_minutes == 0.08, "only the first starts"


def test_players_on_retired_instances_take_no_places_of_others():
    load = {"lobby": {"points": [["0h", 0], ["5m", 60]], "players": "spread"}}
    many = group(min=3, scaling={})
    found = simulate(
        scenario(many, seconds="10h", boot=BOOT, load=load, faults=[{"at": "10m", "deploy": "lobby"}])
    )
    assert found.groups["lobby"].unused_slots > 50, "60 places, and nobody has left the old ones"


def test_a_node_ends_what_may_run_only_once_before_it_is_replaced():
    alone = {"replace_after_seconds": 120, "stop_after_seconds": 30}
    cut = [{"at": "10m", "cut": "n-1", "for": "300s"}]
    found = simulate(scenario(group(min=3, scaling={}, disconnect=alone), boot=BOOT, faults=cut))
    assert [kind for _, kind, _ in about(found, 600)] == ["phase lost.replace", "start lost.replace"]
    assert found.groups["lobby"].stops == 1, "it is known when its node is back"


def test_a_node_without_power_has_no_connection_to_lose():
    faults = [{"at": "10m", "kill": "n-1"}, {"at": "20m", "cut": "n-1", "for": "60s"}]
    found = simulate(scenario(group(min=3, scaling={}), boot=BOOT, faults=faults))
    assert [kind for _, kind, _ in about(found, 600)] == ["phase lost.replace", "start lost.replace"]


def test_a_new_leader_waits_for_nodes_that_have_instances_before_it_acts():
    more = {"name": "more", "cron": "11 * * * *", "duration_seconds": 600, "min": 4}
    kept = group(min=3, schedules=[more], disconnect={"replace_after_seconds": None}, scaling={})
    cut, change = {"at": "600s", "cut": "n-1"}, {"at": "655s", "leader": "change"}
    for faults, expected in (([cut], 660.0), ([change], 660.0), ([cut, change], 670.0)):
        found = simulate(scenario(kept, boot=BOOT, faults=faults))
        assert [at for at, kind, _ in about(found, 600) if kind == "start schedule.up"] == [expected]


def test_timers_in_memory_begin_anew_with_another_leader():
    load = {"lobby": {"points": steps((60, 17), (300, 10))}}
    without = simulate(scenario(boot=BOOT, load=load))
    with_change = simulate(scenario(boot=BOOT, load=load, faults=[{"at": "500s", "leader": "change"}]))
    assert decided(without, "stop") == [(600.0, "stop", "lobby-2")]
    [(at, _, instance)] = decided(with_change, "stop")
    assert instance == "lobby-2"
    assert 800 <= at <= 810, "five minutes after the new leader has heard of the players"


def test_nothing_is_started_or_stopped_because_another_leads():
    load = {"lobby": {"points": steps((60, 70))}}
    changes = [{"at": f"{minute}m", "leader": "change"} for minute in range(20, 50, 3)]
    found = simulate(scenario(boot=BOOT, load=load, faults=changes))
    assert all(at < 200 for at, _, _ in scaled(found))
    assert found.groups["lobby"].cut_players == 0


def test_starts_that_crash_are_paused():
    found = simulate(scenario(boot={"lobby": {"seconds": 10, "crash": 1}}, seconds="1d"))
    figures = found.groups["lobby"]
    assert 20 < figures.starts < 120, "a pause of an hour after the first ones"
    assert figures.crashes == 2 * figures.starts, "each is restarted once by its node"
    assert any(each.rule == "crash.pause" for each in found.timeline)


def test_a_start_that_takes_longer_than_its_group_allows_is_a_crash():
    found = simulate(scenario(group(startup_timeout_seconds=30), boot={"lobby": {"seconds": 31}}))
    assert found.groups["lobby"].crashes > 2
    assert found.groups["lobby"].short_minutes == 60.0


def test_schedules_follow_their_zone():
    night = {
        "name": "night",
        "cron": "30 2 * * *",
        "time_zone": "Europe/Berlin",
        "duration_seconds": 600,
        "min": 3,
    }
    found = simulate(scenario(group(schedules=[night]), seconds="2d", boot=BOOT))
    starts = [at for at, _, _ in decided(found, "start")]
    day = 86_400
    assert starts[:3] == [0.0, 5400.0, 5400.0], "half past two is 01:30 UTC"
    assert starts[3:] == [day + 3600.0, day + 3600.0], "in the gap of the 29th of March at its end, 01:00 UTC"


def test_nobody_joins_while_a_group_is_closed_for_maintenance():
    closed = {
        "name": "closed",
        "cron": "30 * * * *",
        "duration_seconds": 600,
        "maintenance": {"enabled": True},
    }
    load = {"lobby": {"points": steps((60, 5), (2100, 9))}}
    found = simulate(scenario(group(schedules=[closed]), boot=BOOT, load=load, seconds="50m"))
    figures = found.groups["lobby"]
    assert (figures.refused_players, figures.full_minutes) == (4, 5.0), "from minute 35 until it is over"
    assert figures.cut_players == 0


def test_what_does_not_fit_is_refused_with_its_reason():
    found = simulate(scenario(group(min=3, memory_mb=5000), seconds="10m", nodes=[{**NODES[0], "count": 2}]))
    [refusal] = [each for each in found.timeline if each.kind == "refuse"]
    assert refusal.rule == "place.refuse"
    assert "2 not enough memory" in refusal.reason
    assert found.groups["lobby"].short_minutes == 10.0


def test_templates_and_programs_need_not_exist():
    files = group(
        templates=["base"],
        artifact={"platform": "paper", "version": "1.21"},
        jvm={},
        command=[],
        config_format="paper",
    )
    assert simulate(scenario(files, seconds="10m")).groups["lobby"].starts == 1


def test_expectations_are_compared():
    load = {"lobby": {"points": steps((60, 17))}}
    expect = {"starts": 1, "flaps": 0, "short_minutes": {"lobby": 0.1}}
    found = simulate(scenario(boot=BOOT, load=load, expect=expect))
    assert [str(each) for each in found.failed] == [
        "starts: at most 1 expected, 2 found",
        "short_minutes of 'lobby': at most 0.1 expected, 0.17 found",
    ]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"memory": 3}, ": groups[0].memory: unknown field 'memory'; did you mean 'memory_mb'?"),
        ({"parent": "base"}, ": groups[0].parent: "),
        ({"max_players": 0, "scaling": {}}, ": load.lobby: group 'lobby' has no 'max_players'"),
    ],
)
def test_a_wrong_group_is_refused_with_its_place(fields, message):
    with pytest.raises(ScenarioRejected) as refused:
        scenario(group(**fields), load={"lobby": {"points": steps()}})
    assert refused.value.lines[0].startswith("scenario.yaml:")
    assert message in refused.value.lines[0]
