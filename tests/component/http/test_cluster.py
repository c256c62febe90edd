"""The cluster, its audit, its certificates and its epoch."""

from __future__ import annotations

import asyncio

import httpx
from http_rig import Rig

from corral.domain.node_states import NodeState
from corral.domain.permissions import Role
from corral.pki.keys import make_csr, new_key
from corral.testing.failing_store import StoreFault


async def test_the_cluster_tells_who_leads_and_what_it_holds(client: httpx.AsyncClient, rig: Rig) -> None:
    for name, state in (("a", NodeState.ONLINE), ("b", NodeState.ONLINE), ("c", NodeState.REVOKED)):
        await rig.node(name, state=state)
    shown = (await client.get("/api/v1/cluster")).json()
    assert shown["id"] == rig.state.identity.id
    assert shown["leader"]["epoch"] == rig.cluster.epoch
    assert [member["role"] for member in shown["members"]] == ["leader"]
    assert shown["nodes"] == {"ONLINE": 2, "REVOKED": 1}
    assert (shown["store"], shown["commit"]) == ("sqlite", rig.state.number)
    assert shown["created_at"].endswith("Z")


async def test_the_settings_are_those_of_the_controller_and_hide_credentials(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    shown = (await client.get("/api/v1/settings")).json()["controller"]
    assert shown == (await client.get("/api/node/config")).json()
    _, operator = await rig.token(Role.OPERATOR)
    async with rig.client(operator) as asking:
        refused = await asking.get("/api/v1/settings")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "FORBIDDEN")


async def test_the_audit_shows_the_newest_first_in_pages(client: httpx.AsyncClient, rig: Rig) -> None:
    for number in range(5):
        await client.post("/api/v1/tokens", json={"name": f"t{number}", "role": "VIEWER"})
    names: list[str] = []
    cursor = ""
    while True:
        page = (await client.get("/api/v1/audit", params={"limit": 2, "cursor": cursor})).json()
        names += [item["after"]["name"] for item in page["items"] if item["action"] == "tokens.create"]
        if not page["next"]:
            break
        cursor = page["next"]
    assert names == ["t4", "t3", "t2", "t1", "t0"]
    refused = await client.get("/api/v1/audit?cursor=WyJhdWRpdCIsIngiXQ")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "INVALID_CURSOR")


async def test_a_certificate_is_issued_and_audited(client: httpx.AsyncClient, rig: Rig) -> None:
    csr = make_csr(new_key(), "ops").decode()
    answer = await client.post("/api/v1/cluster/certificates", json={"name": "ops", "csr_pem": csr})
    assert answer.status_code == 201
    made = answer.json()
    assert (made["certificate_pem"], made["ca_pem"]) == ("certificate 1", "authority")
    assert rig.state.admin_certificates.require(made["serial"]).record.name == "ops"
    (entry,) = await rig.audits("cluster.issue_certificate")
    assert entry["subject"] == "ops"
    refused = await client.post("/api/v1/cluster/certificates", json={"name": "ops", "csr_pem": "x"})
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "csr_pem")


async def test_an_act_with_one_key_at_once_is_done_once(client: httpx.AsyncClient, rig: Rig) -> None:
    csr = make_csr(new_key(), "ops").decode()
    asking = [
        client.post(
            "/api/v1/cluster/certificates",
            json={"name": "ops", "csr_pem": csr},
            headers={"Idempotency-Key": "k-1"},
        )
        for _ in range(10)
    ]
    answers = await asyncio.gather(*asking)
    assert {answer.json()["certificate_pem"] for answer in answers} == {"certificate 1"}
    assert rig.cluster.certified == ["ops"]
    assert len(await rig.audits("cluster.issue_certificate")) == 1


async def test_the_controller_ends_once_that_is_recorded_and_once_for_one_key(
    client: httpx.AsyncClient, rig: Rig
) -> None:
    path, headers = "/api/v1/cluster/shutdown", {"Idempotency-Key": "k-1"}
    for _ in range(2):
        answer = await client.post(path, json={"reason": "upgrade"}, headers=headers)
        assert answer.json() == {"holder": "c-1", "http": "127.0.0.1:1"}
    assert rig.cluster.shut_down_for == ["upgrade"]
    entries = await rig.audits("cluster.shutdown")
    assert [entry["outcome"] for entry in entries] == ["ok"]
    rig.store.commits.fail(StoreFault.BEFORE)
    refused = await client.post(path, json={"reason": "again"})
    assert (refused.status_code, rig.cluster.shut_down_for) == (503, ["upgrade"])


async def test_the_epoch_is_raised_once_for_one_key(client: httpx.AsyncClient, rig: Rig) -> None:
    before = rig.cluster.epoch
    path = "/api/v1/cluster/raise-epoch"
    asking = [client.post(path, headers={"Idempotency-Key": "k-1"}) for _ in range(5)]
    answers = await asyncio.gather(*asking)
    assert {answer.json()["epoch"] for answer in answers} == {before + 1000}
    assert [actor.address for actor in rig.cluster.raised_by] == ["127.0.0.1"]
    assert (await client.post(path)).json() == {"epoch": before + 2000}
    refused = await client.post(path, headers={"If-Match": '"1"'})
    assert refused.status_code == 400
