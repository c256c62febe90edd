"""Why a deployment is where it is, and what is said of it in the answers about its group and instances."""

from __future__ import annotations

import datetime as dt
from typing import Any

import httpx
from http_rig import Rig
from test_deployments import changed, deployed, ordered, set_state

from corral.domain.groups.deployments import DeploymentFailure, DeploymentState
from corral.domain.groups.instance_records import Readiness
from corral.domain.instance_states import InstanceState

S = DeploymentState


async def why(client: httpx.AsyncClient, subject: str) -> dict[str, Any]:
    answer = await client.get(f"/api/v1/{subject}/why")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def conditions(found: dict[str, Any]) -> dict[str, str]:
    return {each["condition"]: each["effect"] for each in found["would_change"]}


def reasons(found: dict[str, Any], topic: str) -> list[str]:
    return [each["reason"] for each in found["now"] if each["topic"] == topic]


async def test_the_wait_the_plan_and_what_would_change_are_named(client: httpx.AsyncClient, rig: Rig) -> None:
    record = await rig.instance(state=InstanceState.RUNNING, readiness=Readiness.READY)
    await changed(client)
    id = (await deployed(client))["id"]
    now = dt.datetime.now(dt.UTC)
    await set_state(rig, id, S.ROLLING, waiting="1 are being started", clock_since=now)
    found = await why(client, f"deployments/{id}")
    assert (found["subject"], found["state"]) == (f"deployment/{id}", "ROLLING")
    assert found["summary"].startswith(f"deployment '{id}' of revision 2 is ROLLING: 1 are being started")
    assert "0 of 1 run by revision 2, 1 is outdated" in found["summary"]
    assert [each["rule"] for each in found["now"] if each["topic"] == "start"] == ["deploy.start"]
    assert conditions(found)["no progress until then"] == "it goes back to revision 1"
    assert found["chain"][0]["kind"] == "request"
    assert found["decisions"][0]["deployment"] == id
    for subject in ("groups/lobby", f"instances/{record.id}"):
        [text] = reasons(await why(client, subject), "deployment")
        assert text == f"deployment '{id}' of revision 2 is ROLLING: 1 are being started"
    listed = await client.get("/api/v1/decisions", params={"subject": f"deployment/{id}"})
    assert [each["deployment"] for each in listed.json()["items"]] == [id]


async def test_a_paused_one_says_what_lets_it_go_on(client: httpx.AsyncClient, rig: Rig) -> None:
    await rig.instance()
    await changed(client)
    id = (await deployed(client))["id"]
    await ordered(client, id, "pause")
    found = await why(client, f"deployments/{id}")
    assert conditions(found) == {f"corral deployment resume {id}": "it goes on"}
    assert conditions(await why(client, "groups/lobby"))[f"corral deployment resume {id}"] == "it goes on"


async def test_one_that_failed_names_what_failed_and_what_was_undone(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    await rig.instance()
    await changed(client)
    id = (await deployed(client))["id"]
    failure = DeploymentFailure(
        at=dt.datetime.now(dt.UTC), instance="lobby-7", node="n1", reason="exit code 1", phase="CANARY"
    )
    await set_state(
        rig, id, S.FAILED, outcome="'lobby-7' exit code 1", undone="nothing was undone", failures=(failure,)
    )
    found = await why(client, f"deployments/{id}")
    assert found["summary"].endswith("is FAILED: 'lobby-7' exit code 1; nothing was undone")
    assert reasons(found, "failure") == ["exit code 1 (CANARY)"]
    assert found["would_change"] == []


async def test_an_unknown_one_is_not_found(client: httpx.AsyncClient) -> None:
    assert (await client.get("/api/v1/deployments/dep-none/why")).status_code == 404
