"""Deployments over the API: orders, lists, dry runs, and who may do what; nothing is carried out here."""

from __future__ import annotations

import datetime as dt
from typing import Any

import httpx
import msgspec
import pytest
from http_rig import Rig

from corral.controller.state.collections import DEPLOYMENTS
from corral.controller.state.collections import GROUPS as GROUP_RECORDS
from corral.domain.decisions import Rule
from corral.domain.groups.deployments import DeploymentFailure, DeploymentState
from corral.domain.groups.drain_records import InstanceDrain
from corral.domain.instance_states import InstanceState, Wanted
from corral.domain.permissions import Role

GROUPS = "/api/v1/groups"
ALL = "/api/v1/deployments"
DRY = {"dry_run": "true"}


async def changed(client: httpx.AsyncClient, value: str = "1") -> None:
    answer = await client.patch(f"{GROUPS}/lobby", json={"env": {"A": value}})
    assert answer.status_code == 200, answer.text


async def deployed(client: httpx.AsyncClient, **options: Any) -> dict[str, Any]:
    answer = await client.post(f"{GROUPS}/lobby/deploy", json={"options": options})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def ordered(client: httpx.AsyncClient, id: str, verb: str, **body: Any) -> httpx.Response:
    return await client.post(f"{ALL}/{id}/{verb}", json=body or None)


async def set_state(rig: Rig, id: str, state: DeploymentState, **fields: Any) -> None:
    """Bring a deployment to a state as the reconciler would."""
    stored = rig.state.deployments.require(id)
    record = msgspec.structs.replace(stored.record, state=state, **fields)
    await rig.ledger.commit(DEPLOYMENTS.put(id, record, expect=stored.revision))


async def test_a_deployment_is_begun_once_with_the_options_that_were_given(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.instance()
    await changed(client)
    body = {"reason": "a new map", "options": {"max_surge": "50%", "drain_seconds": 60}}
    begun = (await client.post(f"{GROUPS}/lobby/deploy", json=body)).json()
    assert (begun["group"], begun["state"], begun["trigger"]) == ("lobby", "PENDING", "manual")
    assert (begun["target"], begun["stable"], begun["reason"]) == (2, 1, "a new map")
    assert (begun["options"]["max_surge"], begun["options"]["drain_seconds"]) == ("50%", 60)
    assert (begun["progress"]["wanted"], begun["progress"]["updated"]) == (1, 0)
    again = (await client.post(f"{GROUPS}/lobby/deploy", json=body)).json()
    assert (again["id"], again["revision"]) == (begun["id"], (await shown(client, begun["id"]))["revision"])
    assert len(await rig.audits("groups.deploy")) == 1, "the second one has changed nothing"
    group = (await client.get(f"{GROUPS}/lobby")).json()["status"]
    assert (group["deployment"], group["deployment_revision"]) == (begun["id"], 2)
    other = await deployed(client, max_surge=1)
    assert other["id"] != begun["id"]
    assert (await shown(client, begun["id"]))["state"] == "SUPERSEDED"
    assert (other["stable"], other["target"]) == (1, 2)


async def shown(client: httpx.AsyncClient, id: str) -> dict[str, Any]:
    return (await client.get(f"{ALL}/{id}")).json()


async def test_a_key_makes_one_deployment(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.instance()
    headers = {"Idempotency-Key": "once"}
    answers = [await client.post(f"{GROUPS}/lobby/restart", json={}, headers=headers) for _ in range(2)]
    assert [each.status_code for each in answers] == [200, 200]
    assert answers[0].json()["status"]["deployment"] == answers[1].json()["status"]["deployment"]
    assert len((await client.get(ALL)).json()["items"]) == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"options": {"surge": 1}}, "options.surge"),
        ({"options": {"max_surge": 0, "max_unavailable": 0}}, "update/max_surge"),
        ({"options": {"max_surge": "many"}}, "options.max_surge"),
        ({"options": {"auto": ["template"]}}, "options.auto"),
        ({"options": {"canary": 0}}, "options.canary"),
        ({"reason": "x" * 501}, "reason"),
    ],
)
async def test_options_that_could_never_work_are_refused(
    client: httpx.AsyncClient, rig: Rig, body: dict[str, Any], field: str
) -> None:
    await rig.instance()
    refused = await client.post(f"{GROUPS}/lobby/deploy", json=body)
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, field), refused.text
    assert (await client.get(ALL)).json()["items"] == []


async def test_what_cannot_be_planned_or_has_no_instances_is_not_deployed(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    assert (await client.post(f"{GROUPS}/nobody/deploy", json={})).status_code == 404
    await rig.group("base", abstract=True, command=[])
    assert (await client.post(f"{GROUPS}/base/deploy", json={})).status_code == 409
    await rig.instance()
    raised = {"variable_types": {"MOTD": {"required": True}}}
    assert (await client.patch(f"{GROUPS}/lobby", json=raised)).status_code == 200
    refused = await client.post(f"{GROUPS}/lobby/deploy", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (422, "VARIABLE_INVALID")


async def test_a_pinned_group_is_deployed_though_nothing_can_be_started_by_its_pin(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.instance()
    stored = rig.state.groups.require("lobby")
    pinned = msgspec.structs.replace(stored.record, pinned_revision=1)
    await rig.ledger.commit(GROUP_RECORDS.put("lobby", pinned, expect=stored.revision))
    answer = await client.patch(f"{GROUPS}/lobby", json={"static": True})
    assert answer.status_code == 200, answer.text
    refused = await client.post(f"{GROUPS}/lobby/restart", json={})
    assert "corral deploy lobby" in refused.json()["error"]["hint"]
    await deployed(client)
    assert (await client.get(f"{GROUPS}/lobby")).json()["status"]["pinned_revision"] == 0


async def test_a_dry_run_names_whom_a_deployment_would_replace(client: httpx.AsyncClient, rig: Rig) -> None:
    made = await rig.instance()
    rig.workload.vitals.players(made.id, made.incarnation, count=4, maximum=10)
    same = (await client.post(f"{GROUPS}/lobby/deploy", json={}, params=DRY)).json()
    assert same["instances"] == []
    await changed(client)
    number = rig.state.number
    found = (await client.post(f"{GROUPS}/lobby/deploy", json={}, params=DRY)).json()
    assert [(each["group"], each["change"]) for each in found["changes"]] == [("lobby", "deployed")]
    assert [(each["id"], each["effect"], each["players"]) for each in found["instances"]] == [
        ("lobby-1", "replaced", 4)
    ]
    assert found["players"] == 4
    assert [(each["kind"], each["rule"], each["instance"]) for each in found["decisions"]] == [
        ("start", "deploy.start", "lobby-2")
    ]
    all_of_them = (await client.post(f"{GROUPS}/lobby/restart", json={}, params=DRY)).json()
    assert [each["id"] for each in all_of_them["instances"]] == ["lobby-1"]
    assert (rig.state.number, (await client.get(ALL)).json()["items"]) == (number, [])


async def test_a_dry_run_warns_where_there_is_no_way_back(client: httpx.AsyncClient, rig: Rig) -> None:
    made = await rig.instance()
    rig.workload.vitals.players(made.id, made.incarnation, count=0, maximum=10)
    await changed(client)
    found = (await client.post(f"{GROUPS}/lobby/deploy", json={}, params=DRY)).json()
    assert found["warnings"] == []
    answer = await client.patch(f"{GROUPS}/lobby", json={"static": True})
    assert answer.status_code == 200, answer.text
    found = (await client.post(f"{GROUPS}/lobby/deploy", json={}, params=DRY)).json()
    why = "revision 1 of group 'lobby' is not static, and the group is"
    assert found["warnings"] == [f"there will be no way back: {why}"]


async def test_each_order_is_done_once_and_refused_where_it_makes_no_sense(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.instance()
    await changed(client)
    id = (await deployed(client, strategy="canary"))["id"]
    refused = await ordered(client, id, "promote")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFLICT")
    assert refused.json()["error"]["hint"]
    await set_state(rig, id, DeploymentState.GATE)
    paused = (await ordered(client, id, "pause")).json()
    assert (paused["state"], paused["resumes"]) == ("PAUSED", "GATE")
    assert (await ordered(client, id, "pause")).json()["revision"] == paused["revision"]
    assert (await ordered(client, id, "resume")).json()["state"] == "GATE"
    assert (await ordered(client, id, "promote")).json()["state"] == "ROLLING"
    back = (await ordered(client, id, "rollback", reason="it lags")).json()
    assert (back["state"], "it lags" in back["outcome"]) == ("ROLLING_BACK", True)
    group = (await client.get(f"{GROUPS}/lobby")).json()["status"]
    assert group["pinned_revision"] == 1
    ended = (await ordered(client, id, "cancel", reason="enough")).json()
    assert (ended["state"], ended["progress"], ended["ended_at"] is not None) == ("CANCELLED", None, True)
    assert (await ordered(client, id, "cancel")).json()["revision"] == ended["revision"]
    for verb in ("pause", "resume", "promote"):
        assert (await ordered(client, id, verb)).status_code == 409
    for action in ("pause", "resume", "promote", "rollback", "cancel"):
        (entry,) = await rig.audits(f"deployments.{action}")
        assert (entry["subject"], entry["before"]["group"]) == (id, "lobby")
    assert (await ordered(client, "dep-nobody", "pause")).status_code == 404
    mismatch = await client.post(f"{ALL}/{id}/cancel", headers={"If-Match": '"1"'})
    assert mismatch.status_code == 412


async def test_the_list_is_the_newest_first_in_pages_with_filters(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.instance()
    await rig.group("other")
    made = []
    for value in range(4):
        await changed(client, str(value))
        made.append((await deployed(client))["id"])
    other = (await client.post(f"{GROUPS}/other/deploy", json={})).json()["id"]
    first = (await client.get(ALL, params={"limit": 3})).json()
    assert [each["id"] for each in first["items"]] == [other, *reversed(made[2:])]
    second = (await client.get(ALL, params={"limit": 3, "cursor": first["next"]})).json()
    assert ([each["id"] for each in second["items"]], second["next"]) == (list(reversed(made[:2])), None)
    mine = (await client.get(ALL, params={"group": "other"})).json()["items"]
    assert [each["id"] for each in mine] == [other]
    query = [("group", "lobby"), ("state", "SUPERSEDED"), ("state", "PENDING")]
    assert len((await client.get(ALL, params=query)).json()["items"]) == 4
    for asked, found in (
        ({"group": "lobby", "state": "SUPERSEDED,PENDING"}, 4),
        ({"ids": f"{other},dep-nobody,{made[0]}"}, 2),
        ({"q": "OTHER"}, 1),
    ):
        assert len((await client.get(ALL, params=asked)).json()["items"]) == found, asked
    assert (await client.get(ALL, params={"state": "DONE"})).status_code == 400


async def test_a_viewer_sees_deployments_without_console_lines_and_may_order_nothing(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.instance()
    await changed(client)
    id = (await deployed(client))["id"]
    failure = DeploymentFailure(
        at=dt.datetime.now(dt.UTC),
        instance="lobby-2",
        node="node-1",
        reason="exit code 3",
        lines=("password: x",),
    )
    await set_state(rig, id, DeploymentState.ROLLING, failures=(failure,), failed=1)
    _, token = await rig.token(Role.VIEWER)
    async with rig.client(token) as viewer:
        seen = (await viewer.get(f"{ALL}/{id}")).json()
        (listed,) = (await viewer.get(ALL)).json()["items"]
        for verb in ("pause", "rollback", "cancel"):
            assert (await viewer.post(f"{ALL}/{id}/{verb}")).status_code == 403
        assert (await viewer.post(f"{GROUPS}/lobby/deploy", json={})).status_code == 403
    assert seen["failures"][0]["lines"] == listed["failures"][0]["lines"] == ["•••"]
    assert seen["failures"][0]["reason"] == "exit code 3"
    assert (await shown(client, id))["failures"][0]["lines"] == ["password: x"]


async def test_a_restart_is_a_deployment_unless_all_are_to_go_at_once(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.instance()
    restarted = (await client.post(f"{GROUPS}/lobby/restart", json={"reason": "leaks"})).json()
    found = await shown(client, restarted["status"]["deployment"])
    assert (found["trigger"], found["reason"], found["target"]) == ("restart", "leaks", 2)
    assert (await client.get("/api/v1/instances/lobby-1")).json()["wanted"] == "run"
    both = await client.post(f"{GROUPS}/lobby/restart", json={"at_once": True, "options": {"max_surge": 1}})
    assert (both.status_code, both.json()["error"]["field"]) == (400, "at_once")


async def test_revisions_have_the_document_of_their_time_and_what_changed(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.template("base", {"a.txt": b"a"})
    await rig.group(templates=["base"], env={"SECRET": "x"})
    await rig.instance()
    await rig.template("base", {"a.txt": b"b"})
    await deployed(client)
    await changed(client)
    await deployed(client)
    await client.post(f"{GROUPS}/lobby/restart", json={})
    listed = (await client.get(f"{GROUPS}/lobby/revisions")).json()["items"]
    assert [(each["number"], each["trigger"], each["changed"]) for each in listed] == [
        (4, "restart", ["restart"]),
        (3, "manual", ["env"]),
        (2, "manual", ["template base"]),
        (1, "start", []),
    ]
    assert [each["instances"] for each in listed] == [0, 0, 0, 1]
    page = (await client.get(f"{GROUPS}/lobby/revisions", params={"limit": 2})).json()
    rest = (await client.get(f"{GROUPS}/lobby/revisions", params={"limit": 2, "cursor": page["next"]})).json()
    assert [each["number"] for each in (*page["items"], *rest["items"])] == [4, 3, 2, 1]
    one = (await client.get(f"{GROUPS}/lobby/revisions/1")).json()
    assert (one["document"]["env"], one["templates"][0]["version"]) == ({"SECRET": "x"}, 1)
    for wrong in ("5", "0", "-1", "x", "9" * 30):
        missing = await client.get(f"{GROUPS}/lobby/revisions/{wrong}")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "NOT_FOUND")
    assert (await client.get(f"{GROUPS}/nobody/revisions")).status_code == 404
    _, token = await rig.token(Role.VIEWER)
    async with rig.client(token) as viewer:
        seen = (await viewer.get(f"{GROUPS}/lobby/revisions/1")).json()
    assert seen["document"]["env"] == {"SECRET": "•••"}


async def retired(rig: Rig, count: int, *, serving: int) -> None:
    """One instance that an earlier deployment has retired, and one that serves, with so many players each."""
    first = await rig.instance()
    await rig.report(
        first.id,
        wanted=Wanted.DRAIN,
        state=InstanceState.DRAINING,
        drain=InstanceDrain(by=Rule.DEPLOY_RETIRE, since=rig.clock.now(), reason="enough are healthy"),
        retired_by="dep-0",
    )
    second = await rig.instance()
    for record, players in ((first, count), (second, serving)):
        rig.workload.vitals.players(record.id, record.incarnation, count=players, maximum=20)


async def test_a_dry_run_names_retired_instances_and_when_their_players_are_cut_off(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await retired(rig, 5, serving=3)
    await changed(client)

    async def leaving(**options: Any) -> list[tuple[Any, ...]]:
        answer = await client.post(f"{GROUPS}/lobby/deploy", json={"options": options}, params=DRY)
        fields = ("id", "effect", "players", "stop_after_seconds")
        return [tuple(each[field] for field in fields) for each in answer.json()["instances"]]

    waited = [("lobby-1", "stopped_when_empty", 5, None), ("lobby-2", "replaced", 3, None)]
    assert await leaving() == waited
    limited = await leaving(drain_seconds=3600)
    assert [each[:3] for each in limited] == [each[:3] for each in waited]
    assert all(3000 < each[3] <= 3600 for each in limited), "what is left of the hour"
    assert [each[3] for each in await leaving(drain_seconds=0)] == [0, 0]


@pytest.mark.parametrize("verb", ["deploy", "restart"])
async def test_players_who_would_be_cut_off_are_confirmed_first(
    client: httpx.AsyncClient, rig: Rig, verb: str
) -> None:
    await retired(rig, 5, serving=3)
    await changed(client)
    path, cutting = f"{GROUPS}/lobby/{verb}", {"options": {"drain_seconds": 0}}
    refused = await client.post(path, json=cutting)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "CONFIRMATION_REQUIRED")
    assert refused.json()["error"]["message"] == (
        "with drain_seconds 0 players who have not left by then would be cut off: "
        "'lobby-1' (5 players) at once, 'lobby-2' (3 players) at once"
    )
    assert (await client.get(ALL)).json()["items"] == [], "nothing was done"
    assert (await client.post(path, json=cutting, params={"confirm": "other"})).status_code == 400
    assert (await client.post(path, json=cutting, params={"confirm": "lobby"})).status_code == 200
    if verb == "deploy":
        again = await client.post(path, json=cutting)
        assert again.status_code == 200, "it was confirmed, and goes on"


async def test_nobody_is_asked_where_players_are_waited_for_or_not_known(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    made = await rig.instance()
    await changed(client)
    assert (await deployed(client, drain_seconds=0))["options"]["drain_seconds"] == 0
    rig.workload.vitals.players(made.id, made.incarnation, count=3, maximum=10)
    await deployed(client)
    standing = await client.patch(f"{GROUPS}/lobby", json={"update": {"drain_seconds": 60}})
    assert standing.status_code == 200
    refused = await client.post(f"{GROUPS}/lobby/deploy", json={})
    assert refused.status_code == 409, "a standing order of the document is confirmed, too"
    assert "'lobby-1' (3 players) after 60 s" in refused.json()["error"]["message"]


async def test_a_rollback_asks_for_the_players_of_new_instances(client: httpx.AsyncClient, rig: Rig) -> None:
    made = await rig.instance()
    await changed(client)
    begun = await deployed(client, drain_seconds=30)
    await rig.report(made.id, revision=begun["target"], basis="")
    rig.workload.vitals.players(made.id, made.incarnation, count=2, maximum=10)
    await set_state(rig, begun["id"], DeploymentState.ROLLING)
    refused = await ordered(client, begun["id"], "rollback")
    assert refused.status_code == 409
    assert "'lobby-1' (2 players) after 30 s" in refused.json()["error"]["message"]
    path = f"{ALL}/{begun['id']}/rollback"
    assert (await client.post(path, params={"confirm": "lobby"})).json()["state"] == "ROLLING_BACK"
    assert (await client.post(path)).status_code == 200, "it goes back already"


async def test_a_restart_of_all_at_once_names_players_and_worlds_first(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.group("smp", static=True)
    made = await rig.instance("smp")
    rig.workload.vitals.players(made.id, made.incarnation, count=3, maximum=10)
    path, body = f"{GROUPS}/smp/restart", {"at_once": True}
    number = rig.state.number
    dry = (await client.post(path, json=body, params=DRY)).json()
    shown = [
        (each["id"], each["effect"], each["players"], each["stop_after_seconds"]) for each in dry["instances"]
    ]
    assert shown == [("smp-1", "restarted", 3, 0)]
    assert dry["changes"][0]["change"] == "restarted"
    assert dry["warnings"] == ["worlds that are stopped and used again: 'smp-1' on node 'node-1'"]
    refused = await client.post(path, json=body)
    assert (refused.status_code, rig.state.number) == (409, number)
    assert refused.json()["error"]["message"] == (
        "players would be cut off at once: 'smp-1' (3 players); "
        "worlds that are stopped and used again: 'smp-1' on node 'node-1'"
    )
    assert (await client.post(path, json=body, params={"confirm": "smp"})).status_code == 200
    assert rig.state.instances.require("smp-1").record.wanted is Wanted.STOP
