"""Why a group is to have as many instances as it is: players, floors, schedules, maintenance, and what would change it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec
import pytest
from http_rig import Rig
from test_api_workload import say, token_of

from corral.controller.state.collections import GROUPS
from corral.domain.groups.instance_records import InstanceRecord, LastScale, ScaleDirection
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.permissions import Role

DYNAMIC = {"scaling": {"mode": "DYNAMIC"}, "max_players": 20, "min": 1, "max": 4}


@pytest.fixture
def lobby(rig: Rig) -> Rig:
    rig.workload.vitals.players_changed = rig.instances.signals.players_changed
    return rig


async def why(rig: Rig, role: Role = Role.VIEWER) -> dict[str, Any]:
    _, token = await rig.token(role)
    async with rig.client(token) as client:
        answer = await client.get("/api/v1/groups/lobby/why")
    assert answer.status_code == 200, answer.text
    return answer.json()


def reasons(found: dict[str, Any], topic: str) -> list[str]:
    return [each["reason"] for each in found["now"] if each["topic"] == topic]


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {each["condition"]: each["effect"] for each in found["would_change"]}


async def counted(rig: Rig, record: InstanceRecord, players: int) -> None:
    assert (await say(rig, token_of(rig, record), "players", {"count": players})).status_code == 204


async def scaled(rig: Rig, **fields: Any) -> None:
    stored = rig.state.groups.require("lobby")
    changed = msgspec.structs.replace(stored.record, **fields)
    await rig.ledger.commit(GROUPS.put("lobby", changed, expect=stored.revision))


async def test_the_players_and_what_they_need_are_named(lobby: Rig) -> None:
    await lobby.group(**DYNAMIC)
    for players in (20, 13):
        await counted(lobby, await lobby.instance(), players)
    found = await why(lobby)
    assert "33 players need 3, 2 are there" in found["summary"]
    assert found["state"] == "SHORT"
    assert {"scale", "start"} <= {each["topic"] for each in found["now"]}
    (scale,) = reasons(found, "scale")
    assert scale == "33 players need 3, 2 are there"
    assert conditions(found)["16 more players"] == "one more instance is started"


async def test_the_need_is_told_before_the_most_that_is_allowed(lobby: Rig) -> None:
    await lobby.group(**{**DYNAMIC, "max": 1})
    await counted(lobby, await lobby.instance(), 40)
    summary = (await why(lobby))["summary"]
    assert "20 players need 2 and 'max' allows 1, 1 is there; 20 more are reported than" in summary


async def test_an_unknown_number_is_said_to_be_one(lobby: Rig) -> None:
    await lobby.group(**DYNAMIC)
    await counted(lobby, await lobby.instance(), 1)
    await lobby.instance()
    (reason,) = reasons(await why(lobby), "players")
    assert reason.startswith("1 player needs 1, 2 are there; those of 1 instance are not known; ")
    assert reason.endswith("its load is not known for long enough")


async def test_the_end_of_a_cooldown_is_a_time(lobby: Rig) -> None:
    await lobby.group(**DYNAMIC)
    await counted(lobby, await lobby.instance(), 17)
    now = lobby.clock.now()
    last = LastScale(at=now - dt.timedelta(seconds=20), direction=ScaleDirection.DOWN, need=1)
    await scaled(lobby, last_scale=last)
    found = await why(lobby)
    (reason,) = reasons(found, "players")
    assert reason.startswith("17 players need 2, 1 is there; the cooldown after the last stop ends in ")
    (ends,) = [each for each in found["would_change"] if each["condition"] == "the cooldown ends"]
    assert ends["effect"] == "2 are wanted"
    assert now < dt.datetime.fromisoformat(ends["at"]) <= now + dt.timedelta(seconds=60)


async def test_a_floor_a_schedule_and_maintenance_are_named_without_names_of_players(lobby: Rig) -> None:
    closed = {"enabled": True, "message": "soon", "bypass": ["ann-the-tester"]}
    night = {"name": "night", "cron": "* * * * *", "duration_seconds": 3600, "min": 2, "maintenance": closed}
    await lobby.group(**DYNAMIC, schedules=[night])
    async with lobby.client() as client:
        order = {"count": 3, "for_seconds": 900}
        assert (await client.post("/api/v1/groups/lobby/scale", json=order)).status_code == 200
    for role in Role:
        found = await why(lobby, role)
        (floor,) = reasons(found, "floor")
        assert floor.startswith("at least 3 by an operator's order until 20")
        assert reasons(found, "schedule") == ["schedule 'night' is active and sets min to 2, maintenance"]
        assert reasons(found, "maintenance") == [
            "it is closed to players by schedule 'night': its number does not follow them"
        ]
        assert conditions(found)["the order of at least 3 ends"] == "the players decide"
        assert conditions(found)["schedule 'night' ends"] == "the number follows the players again"
        assert "ann-the-tester" not in str(found)


async def test_an_instance_that_waits_for_its_players_is_named(lobby: Rig) -> None:
    await lobby.group(max_players=20)
    record = await lobby.instance()
    await counted(lobby, record, 3)
    await lobby.report(record.id, state=InstanceState.DRAINING, wanted=Wanted.DRAIN)
    await scaled(lobby, target=0)
    found = await why(lobby)
    assert "beside 1 draining" in found["summary"]
    assert reasons(found, "draining") == [
        "'lobby-1' takes no more players, and is stopped when its 3 players have left"
    ]


async def test_the_number_of_the_last_scale_is_named_in_other_modes(lobby: Rig) -> None:
    await lobby.group(min=1, max=5)
    async with lobby.client() as client:
        await client.post("/api/v1/groups/lobby/scale", json={"count": 4})
    assert reasons(await why(lobby), "target") == [
        "the last 'scale', or starts by hand, ask for 4; 'min' is 1"
    ]
    async with lobby.client() as client:
        await client.patch("/api/v1/groups/lobby", json={"scaling": {"mode": "STATIC"}})
    assert reasons(await why(lobby), "target") == ["'min' alone decides, its mode is STATIC: 1"]


async def test_a_dry_run_shows_who_would_go_and_who_would_wait_for_players(lobby: Rig) -> None:
    await lobby.group(max_players=20, max=5)
    for players in (3, 0, None):
        record = await lobby.instance()
        if players is not None:
            await counted(lobby, record, players)
    async with lobby.client() as client:
        dry = {"dry_run": "true"}
        found = (await client.post("/api/v1/groups/lobby/scale", json={"count": 0}, params=dry)).json()
        effects = {each["id"]: (each["effect"], each["players"]) for each in found["instances"]}
        assert effects["lobby-1"] == ("stopped_when_empty", 3)
        assert effects["lobby-2"] == ("stopped", 0)
        assert {each["rule"] for each in found["decisions"]} == {"surplus.stop"}
        lowered = (await client.patch("/api/v1/groups/lobby", json={"max": 1}, params=dry)).json()
        assert [each["group"] for each in lowered["changes"]] == ["lobby"]
        assert {each["kind"] for each in lowered["decisions"]} <= {"stop", "drain"}
        assert lowered["decisions"]
    group = lobby.state.groups.require("lobby").record
    assert (group.target, group.spec.max) == (3, 5), "nothing was written"
