"""Drain, undrain and shutdown of nodes through the API."""

from __future__ import annotations

import datetime as dt
from typing import Any

import httpx
import msgspec
import pytest
from http_rig import Rig

from corral.controller.sessions.live_nodes import DrainAck, StrayRun
from corral.controller.state.collections import INSTANCES
from corral.controller.state.collections import NODES as NODES_STORED
from corral.domain.decisions import Rule
from corral.domain.groups.drain_records import InstanceDrain
from corral.domain.groups.instance_records import InstanceRecord
from corral.domain.ids import InstanceId
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.node_states import Admission, NodeState
from corral.domain.permissions import Role
from corral.testing.counted_calls import counted_calls

NODES = "/api/v1/nodes"
NODE = f"{NODES}/node-1"
CONFIRM = {"confirm": "node-1"}
DRY = {"dry_run": "true"}
MERGE = {"Content-Type": "application/merge-patch+json"}


def error(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


async def with_players(rig: Rig, count: int | None) -> str:
    made = await rig.instance()
    if count is not None:
        rig.workload.vitals.players(made.id, made.incarnation, count=count, maximum=20)
    return made.id


async def test_a_drain_is_kept_with_its_node_until_it_is_undrained(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await with_players(rig, 0)
    await rig.online("node-2")
    assert (await client.get(NODE)).json()["drain"] is None
    asked = await client.post(f"{NODE}/drain", json={"reason": "new disk", "deadline_seconds": 600})
    assert asked.status_code == 200, asked.text
    node = asked.json()
    drain = node["drain"]
    assert (node["admission"], node["admission_reason"], drain["reason"]) == (
        "draining",
        "new disk",
        "new disk",
    )
    assert (drain["shutdown"], drain["was_cordoned"], drain["exit_ordered_at"]) == (False, False, None)
    assert (drain["progress"]["total"], drain["progress"]["moved"]) == (1, 0)
    assert [(each["id"], each["players"]) for each in drain["instances"]] == [("lobby-1", 0)]
    assert (await client.get(NODES)).json()["items"][0]["drain"]["id"] == drain["id"]
    (entry,) = await rig.audits("nodes.drain")
    assert entry["after"] == {
        "admission": "draining",
        "reason": "new disk",
        "deadline_seconds": 600,
        "shutdown": False,
    }

    number = rig.state.number
    again = await client.post(f"{NODE}/drain", json={"reason": "new disk", "deadline_seconds": 600})
    assert (again.json()["drain"], rig.state.number) == (drain, number), "twice is once"
    longer = await client.post(f"{NODE}/drain", json={"deadline_seconds": None, "reason": "old disk"})
    changed = longer.json()["drain"]
    assert (changed["id"], changed["deadline_at"], changed["reason"]) == (drain["id"], None, "old disk")
    down = (await client.post(f"{NODE}/shutdown", json={})).json()["drain"]
    assert (down["id"], down["shutdown"]) == (drain["id"], True)

    open_again = (await client.post(f"{NODE}/undrain", json={})).json()
    assert (open_again["admission"], open_again["drain"]) == ("open", None)
    assert (await client.post(f"{NODE}/undrain")).json()["admission"] == "open"


async def test_an_order_keeps_what_it_leaves_out(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")

    async def ordered(verb: str, **body: Any) -> Any:
        drain = (await client.post(f"{NODE}/{verb}", json=body)).json()["drain"]
        return drain["deadline_at"], drain["reason"], drain["shutdown"]

    assert (await ordered("drain"))[0] is not None, "an hour, where nobody says otherwise"
    assert await ordered("drain", deadline_seconds=None, reason="disks") == (None, "disks", False)
    number = rig.state.number
    assert await ordered("drain") == (None, "disks", False)
    assert rig.state.number == number, "nothing new was said"
    until, _, _ = await ordered("shutdown", deadline_seconds=300)
    rig.clock.offset = dt.timedelta(seconds=60)
    assert await ordered("drain") == (until, "disks", True)
    assert await ordered("drain", reason="fans") == (until, "fans", True), "the time does not begin anew"
    assert await ordered("drain", shutdown=False) == (until, "fans", False)


async def test_a_node_that_was_cordoned_is_so_again(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    await client.post(f"{NODE}/cordon", json={"reason": "noise"})
    assert (await client.post(f"{NODE}/drain", json={})).json()["drain"]["was_cordoned"]
    back = (await client.post(f"{NODE}/undrain", json={})).json()
    assert (back["admission"], back["admission_reason"]) == ("cordoned", "noise")


@pytest.mark.trap("T90")
async def test_players_and_worlds_are_named_and_confirmed_first(client: httpx.AsyncClient, rig: Rig) -> None:
    await with_players(rig, 3)
    await rig.group("smp", static=True)
    await rig.instance("smp")
    refused = await client.post(f"{NODE}/drain", json={})
    assert error(refused) == (409, "CONFIRMATION_REQUIRED")
    message = refused.json()["error"]["message"]
    assert "'smp-1' (RUNNING) would be stopped when they are empty" in message
    assert "'lobby-1' (3 players)" in message
    assert "at the deadline" in message
    now = await client.post(f"{NODE}/drain", json={"force": True})
    assert "players of 'lobby-1' (3 players) would be cut off now" in now.json()["error"]["message"]
    wrong = await client.post(f"{NODE}/drain", json={}, params={"confirm": "node-2"})
    assert error(wrong) == (400, "INVALID_FIELD")
    assert (await client.get(NODE)).json()["admission"] == "open"
    assert (await client.post(f"{NODE}/drain", json={}, params=CONFIRM)).status_code == 200


async def test_a_shutdown_names_the_strays_that_end_with_the_daemon(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.online("node-1")
    live = rig.sessions.connect("node-1")
    stray = StrayRun(instance="ghost-1", group="ghost", incarnation=1, reason="no record")
    rig.sessions.present["node-1"] = msgspec.structs.replace(live, strays=(stray,), stray_count=1)
    assert (await client.post(f"{NODE}/drain", json={})).status_code == 200, "a drain leaves them alone"
    refused = await client.post(f"{NODE}/shutdown", json={})
    assert error(refused) == (409, "CONFIRMATION_REQUIRED")
    assert "1 run there that no record knows" in refused.json()["error"]["message"]


async def test_a_shutdown_that_is_repeated_ends_a_daemon_that_runs_again_and_no_other(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.online("node-1")
    first = (await client.post(f"{NODE}/shutdown", json={})).json()["drain"]

    async def stored(state: NodeState) -> None:
        found = rig.state.nodes.require("node-1")
        assert found.record.drain is not None
        ended = msgspec.structs.replace(found.record.drain, exit_ordered_at=rig.clock.now())
        record = msgspec.structs.replace(found.record, drain=ended, state=state)
        await rig.ledger.commit(NODES_STORED.put("node-1", record, expect=found.revision))

    await stored(NodeState.DISCONNECTED)
    twice = (await client.post(f"{NODE}/shutdown", json={})).json()["drain"]
    assert (twice["id"], twice["exit_ordered_at"] is None) == (first["id"], False), "it is down, as ordered"
    await stored(NodeState.ONLINE)
    again = (await client.post(f"{NODE}/shutdown", json={})).json()["drain"]
    assert again["id"] != first["id"]
    assert again["exit_ordered_at"] is None


async def test_a_dry_run_says_what_would_leave_and_how(client: httpx.AsyncClient, rig: Rig) -> None:
    await with_players(rig, 3)
    await rig.online("node-2")
    await rig.group("smp", static=True)
    await rig.instance("smp")
    await rig.group("tied", nodes=["node-1"])
    await rig.instance("tied")
    number = rig.state.number
    found = (await client.post(f"{NODE}/drain", json={}, params=DRY)).json()
    effects = {each["id"]: (each["effect"], each["players"]) for each in found["instances"]}
    assert effects == {
        "lobby-1": ("moved", 3),
        "smp-1": ("stopped_when_empty", None),
        "tied-1": ("stopped_when_empty", None),
    }
    assert "'smp-1' is the only instance of group 'smp'" in found["warnings"]
    at_once = (await client.post(f"{NODE}/shutdown", json={"force": True}, params=DRY)).json()
    assert {each["effect"] for each in at_once["instances"]} == {"stopped"}
    assert rig.state.number == number


@pytest.mark.parametrize(("players", "effect"), [(3, "stopped_when_empty"), (0, "stopped")])
async def test_a_dry_run_says_that_players_keep_what_would_stop_at_once(
    client: httpx.AsyncClient, rig: Rig, players: int, effect: str
) -> None:
    id = await with_players(rig, players)
    await rig.online("node-2")
    known = rig.state.instances.require(id)
    warm = msgspec.structs.replace(known.record, warm=True)
    await rig.ledger.commit(INSTANCES.put(id, warm, expect=known.revision))
    found = (await client.post(f"{NODE}/drain", json={}, params=DRY)).json()
    assert [(each["id"], each["effect"]) for each in found["instances"]] == [(id, effect)]


async def test_the_answer_of_the_node_is_shown(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.online("node-1")
    live = rig.sessions.connect("node-1")
    drain = (await client.post(f"{NODE}/drain", json={})).json()["drain"]
    assert drain["ack"] is None

    async def answered(id: str) -> Any:
        ack = DrainAck(drain_id=id, running_instances=4, estimated_seconds=40)
        rig.sessions.present["node-1"] = msgspec.structs.replace(live, drain_ack=ack)
        return (await client.get(NODE)).json()["drain"]["ack"]

    assert await answered(drain["id"]) == {"running_instances": 4, "estimated_seconds": 40}
    assert await answered("drn-of-yesterday") is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"deadline_seconds": -1}, "deadline_seconds"),
        ({"deadline_seconds": "1h"}, "deadline_seconds"),
        ({"force": True, "deadline_seconds": 60}, "force"),
        ({"until": 3}, "until"),
    ],
)
async def test_a_wrong_order_is_refused_by_field(
    client: httpx.AsyncClient, rig: Rig, body: dict[str, Any], field: str
) -> None:
    await rig.node("node-1")
    refused = await client.post(f"{NODE}/drain", json=body)
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, field)


async def test_who_may_and_what_is_not_there(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.node("node-1")
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client(viewer) as reader:
        for verb in ("drain", "undrain", "shutdown"):
            assert error(await reader.post(f"{NODE}/{verb}", json={})) == (403, "FORBIDDEN")
            assert error(await client.post(f"{NODES}/ghost/{verb}", json={})) == (404, "NOT_FOUND")
    key = {"Idempotency-Key": "once"}
    first = await client.post(f"{NODE}/drain", json={"reason": "x"}, headers=key)
    again = await client.post(f"{NODE}/drain", json={"reason": "x"}, headers=key)
    assert first.json() == again.json()
    assert len(await rig.audits("nodes.drain")) == 1


async def test_an_equal_order_is_the_state_and_needs_no_second_confirmation(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await with_players(rig, 3)
    first = await client.post(f"{NODE}/drain", json={"reason": "disks"}, params=CONFIRM)
    number = rig.state.number
    again = await client.post(f"{NODE}/drain", json={"reason": "disks"})
    assert again.status_code == 200
    assert again.json()["drain"]["id"] == first.json()["drain"]["id"]
    assert rig.state.number == number
    other = await client.post(f"{NODE}/drain", json={"reason": "disks", "force": True})
    assert error(other) == (409, "CONFIRMATION_REQUIRED")


async def test_last_copies_are_named(client: httpx.AsyncClient, rig: Rig) -> None:
    await with_players(rig, 3)
    refused = await client.post(f"{NODE}/drain", json={})
    assert "no other instances of their groups are elsewhere: 'lobby-1'" in refused.json()["error"]["message"]
    answer = (await client.post(f"{NODE}/drain", json={}, params=CONFIRM)).json()
    assert [(each["id"], each["last_copy"]) for each in answer["drain"]["instances"]] == [("lobby-1", True)]


async def test_the_last_of_a_group_that_no_other_node_takes_now_is_confirmed_first(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.group("lobby", min=1)
    await with_players(rig, 0)
    await rig.online("node-2", admission=Admission.CORDONED)
    refused = await client.post(f"{NODE}/drain", json={})
    assert error(refused) == (409, "CONFIRMATION_REQUIRED")
    assert "nothing would be left of 'lobby': no other node takes" in refused.json()["error"]["message"]
    dry = (await client.post(f"{NODE}/drain", json={}, params=DRY)).json()
    left = "nothing would be left of group 'lobby': no other node takes its instances now"
    assert left in dry["warnings"]
    waits = await client.post(f"{NODE}/drain", json={"deadline_seconds": None})
    assert waits.status_code == 200, "node-2 could take it, and nothing is stopped until it does"
    await client.post(f"{NODE}/undrain", json={})
    await client.post(f"{NODES}/node-2/uncordon", json={})
    assert (await client.post(f"{NODE}/drain", json={})).status_code == 200


async def test_why_leads_from_an_undrained_instance_to_the_order(client: httpx.AsyncClient, rig: Rig) -> None:
    made = await rig.instance()
    drain = InstanceDrain(by=Rule.DRAIN_MOVE.value, since=rig.clock.now(), reason="")
    stored = rig.state.instances.require(made.id)
    leaving = msgspec.structs.replace(
        stored.record, wanted=Wanted.DRAIN, state=InstanceState.DRAINING, drain=drain
    )
    await client.post(f"{NODE}/drain", json={}, params=CONFIRM)
    await rig.ledger.commit(INSTANCES.put(made.id, leaving, expect=stored.revision))
    await client.post(f"{NODE}/undrain", json={"reason": "wrong node"})
    why = (await client.get(f"/api/v1/instances/{made.id}/why")).json()
    assert "truncated" not in [each["kind"] for each in why["chain"]], why["chain"]
    assert any(each["subject"] == "node-1" for each in why["chain"])


async def test_a_wait_for_unknown_players_says_until_when(client: httpx.AsyncClient, rig: Rig) -> None:
    made = await rig.instance()
    await client.post(f"{NODE}/drain", json={}, params=CONFIRM)
    stored = rig.state.instances.require(made.id)
    leaving = msgspec.structs.replace(stored.record, wanted=Wanted.DRAIN, state=InstanceState.DRAINING)
    await rig.ledger.commit(INSTANCES.put(made.id, leaving, expect=stored.revision))
    [line] = (await client.get(NODE)).json()["drain"]["instances"]
    assert (line["waits_for"], line["players"]) == ("players", None)
    left = dt.datetime.fromisoformat(line["empty_at"]) - rig.clock.now()
    assert dt.timedelta() <= left <= dt.timedelta(seconds=300)
    rig.workload.vitals.players(made.id, made.incarnation, count=2, maximum=20)
    [line] = (await client.get(NODE)).json()["drain"]["instances"]
    assert (line["players"], line["empty_at"]) == (2, None)


async def test_a_dry_run_names_what_no_other_node_could_take(client: httpx.AsyncClient, rig: Rig) -> None:
    await with_players(rig, 3)
    alone = "nothing is started in the place of 'lobby-1' until the node is undrained: no other node could take it"
    found = (await client.post(f"{NODE}/drain", json={}, params=DRY)).json()
    assert ([each["effect"] for each in found["instances"]], found["players"]) == (["stopped_when_empty"], 3)
    assert alone in found["warnings"]
    await rig.online("node-2")
    found = (await client.post(f"{NODE}/drain", json={}, params=DRY)).json()
    assert [each["effect"] for each in found["instances"]] == ["moved"]
    assert alone not in found["warnings"]


async def test_why_of_a_node_says_how_far_it_is_and_what_each_instance_waits_for(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await with_players(rig, 3)
    await client.post(f"{NODE}/drain", json={"reason": "disks"}, params=CONFIRM)
    why = (await client.get(f"{NODE}/why")).json()
    assert why["state"] == "DRAINING"
    drain = [each for each in why["now"] if each["topic"] == "drain"]
    assert drain[0]["subject"] == "node/node-1"
    assert "0 of 1 have left" in drain[0]["reason"]
    assert [each["subject"] for each in drain[1:]] == ["instance/lobby-1"]
    assert drain[1]["reason"]
    conditions = [each["condition"] for each in why["would_change"]]
    assert conditions[0] == "corral node undrain node-1"
    assert any(each["at"] for each in why["would_change"])
    [order] = [each for each in why["decisions"] if "to be emptied" in each["reason"]]
    assert order["kind"] == "phase"
    of_group = (await client.get("/api/v1/groups/lobby/why")).json()
    assert "instance/lobby-1" in {each["subject"] for each in of_group["now"] if each["topic"] == "drain"}
    of_instance = (await client.get("/api/v1/instances/lobby-1/why")).json()
    [mine] = [each for each in of_instance["now"] if each["topic"] == "drain"]
    assert mine["reason"].startswith("node 'node-1' is draining: disks; ")
    assert "corral node undrain node-1" in {each["condition"] for each in of_instance["would_change"]}


async def copies(rig: Rig, like: InstanceRecord, numbers: range) -> None:
    """Instances as this one, with these numbers: more than a test can start."""
    for first in range(numbers.start, numbers.stop, 500):
        these = range(first, min(first + 500, numbers.stop))
        ids = [InstanceId(f"{like.group}-{number}") for number in these]
        made = [msgspec.structs.replace(like, id=id) for id in ids]
        await rig.ledger.commit(*(INSTANCES.put(each.id, each, expect=0) for each in made))


@pytest.mark.parametrize("path", ["drain?dry_run=true", "drain", "drain?confirm=node-1"])
@pytest.mark.parametrize("elsewhere", [True, False])
async def test_a_drain_looks_at_each_instance_of_a_group_once(rig: Rig, path: str, elsewhere: bool) -> None:
    """Twice as many of them cost twice as much, whether another node could take them or not."""
    made = rig.state.instances.require(await with_players(rig, 3)).record
    if elsewhere:
        await rig.online("node-2")
    costs = []
    async with rig.client() as client:
        await client.patch("/api/v1/groups/lobby", json={"min": 321}, headers=MERGE)  # none is one too many
        for numbers in (range(2, 41), range(41, 81), range(81, 161), range(161, 321)):
            await copies(rig, made, numbers)
            with counted_calls() as count:
                answer = await client.post(f"{NODE}/{path}", json={})
            assert answer.status_code == (409 if path == "drain" else 200), answer.text
            costs.append(count.calls)
            await client.post(f"{NODE}/undrain", json={})
    first, second = costs[2] - costs[1], costs[3] - costs[2]
    assert second < 2.4 * first, costs


async def test_the_question_and_the_dry_run_name_the_deadline_that_there_is(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await with_players(rig, 3)
    await rig.online("node-2")

    async def after(**order: Any) -> Any:
        found = (await client.post(f"{NODE}/drain", json=order, params=DRY)).json()
        return [each["stop_after_seconds"] for each in found["instances"]]

    assert await after(deadline_seconds=600) == [600]
    assert await after(deadline_seconds=None) == [None]
    assert await after(force=True) == [0]
    refused = await client.post(f"{NODE}/drain", json={"deadline_seconds": None})
    message = refused.json()["error"]["message"]
    assert "players of 'lobby-1' (3 players) would be waited for, however long they stay" in message
    assert "deadline" not in message


@pytest.mark.parametrize("kind", ["nodes", "groups", "deployments", "instances"])
async def test_what_does_not_exist_comes_with_the_list_of_what_does(
    client: httpx.AsyncClient, kind: str
) -> None:
    refused = (await client.get(f"/api/v1/{kind}/nothing-like-it")).json()["error"]
    assert refused["hint"] == f"'corral {kind.removesuffix('s')} list' shows those that exist"
