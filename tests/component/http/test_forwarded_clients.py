"""A proxy before the controller: whose address counts in the audit, in logs and in limits, and which origin is its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from corral.controller.http.pipeline.caller_limits import STRANGERS_PER_SECOND
from corral.errors import Rejected
from corral.system.logs import Logs
from corral.testing.cluster import LocalCluster, LocalController, controller_config
from corral.testing.waiting import eventually

PERSON = "198.51.100.7"
OTHER = "203.0.113.9"
MANY = STRANGERS_PER_SECOND * 20
"""More refused requests than an address may send at once, however slowly they are answered."""


@contextlib.asynccontextmanager
async def client_of(
    controller: LocalController, token: str | None = None
) -> AsyncIterator[httpx.AsyncClient]:
    text = controller.admin_token if token is None else token
    headers = {"Authorization": f"Bearer {text}"} if text else {}
    async with httpx.AsyncClient(base_url=controller.url, headers=headers, timeout=30) as client:
        yield client


def via(address: str, **more: str) -> dict[str, str]:
    """The headers that a proxy sets."""
    return {"X-Forwarded-For": address, **more}


async def audited_from(controller: LocalController) -> list[str]:
    found: dict[str, Any] = await controller.call("GET", "/api/v1/audit?limit=500")
    return [item["address"] for item in found["items"] if item["action"] == "tokens.create"]


async def test_the_audit_and_the_access_log_have_the_address_that_a_trusted_proxy_names(
    cluster: LocalCluster, logs: Logs
) -> None:
    controller = await cluster.controller(http__trusted_proxies=["127.0.0.1"], http__access_log=True)
    async with client_of(controller) as client:
        for headers in (via(PERSON), via(f"{OTHER}, {PERSON}"), via("unknown"), {}):
            body = {"name": "t", "role": "VIEWER"}
            answer = await client.post("/api/v1/tokens", json=body, headers=headers)
            assert answer.status_code == 201, answer.text
    assert sorted(await audited_from(controller)) == ["127.0.0.1", "127.0.0.1", PERSON, PERSON]

    def logged() -> list[str]:
        found = [record for _, record in logs.ring.tail(1000) if record.message == "http_request.ended"]
        return [record.fields["address"] for record in found if record.fields["path"] == "/api/v1/tokens"]

    assert (await eventually(lambda: logged()[3:] and logged())) == [PERSON, PERSON, "127.0.0.1", "127.0.0.1"]


async def test_an_address_that_nobody_was_told_to_trust_claims_nothing(cluster: LocalCluster) -> None:
    controller = await cluster.controller(http__trusted_proxies=["10.0.0.0/8"])
    async with client_of(controller) as client:
        answer = await client.post(
            "/api/v1/tokens", json={"name": "t", "role": "VIEWER"}, headers=via(PERSON)
        )
        assert answer.status_code == 201
    assert await audited_from(controller) == ["127.0.0.1"]


@pytest.mark.parametrize(
    ("guesser", "other"), [(PERSON, OTHER), ("2001:db8:0:1::{:x}", "2001:db8:0:2::1")], ids=["IPv4", "IPv6"]
)
async def test_one_who_guesses_behind_a_proxy_does_not_use_up_the_tries_of_others(
    cluster: LocalCluster, guesser: str, other: str
) -> None:
    """A host with IPv6 has any number of addresses in its network."""
    controller = await cluster.controller(
        http__trusted_proxies=["127.0.0.1"], http__limits__requests_per_second=50
    )
    async with client_of(controller, token="corral_wrong") as client:
        statuses = {
            (await client.get("/api/v1/nodes", headers=via(f"10.1.1.9, {guesser.format(each)}"))).status_code
            for each in range(MANY)
        }
        assert statuses == {401, 429}
        assert (await client.get("/api/v1/nodes", headers=via(other))).status_code == 401


@pytest.mark.parametrize(("scheme", "status"), [("https", 401), ("http", 403)])
async def test_a_page_that_came_through_the_proxy_with_tls_is_our_own(
    cluster: LocalCluster, scheme: str, status: int
) -> None:
    controller = await cluster.controller(
        http__trusted_proxies=["127.0.0.1"], http__allowed_hosts=["panel.example.org"]
    )
    page = {"Host": "panel.example.org", "Origin": "https://panel.example.org", "X-Forwarded-Proto": scheme}
    async with client_of(controller, token="") as client:
        answer = await client.post("/api/v1/groups", json={}, headers=page)
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize("proxies", [[], ["127.0.0.1"]])
async def test_metrics_are_open_to_a_scraper_and_never_through_a_proxy(
    cluster: LocalCluster, proxies: list[str]
) -> None:
    controller = await cluster.controller(
        http__trusted_proxies=proxies, metrics__scrape_networks=["127.0.0.0/8", f"{PERSON}/32"]
    )
    async with client_of(controller, token="") as client:
        assert (await client.get("/metrics")).status_code == 200
        for headers in (via("127.0.0.1"), via(PERSON), {"Forwarded": "for=127.0.0.1"}):
            assert (await client.get("/metrics", headers=headers)).status_code == 401, headers


@pytest.mark.parametrize("network", ["0.0.0.0/0", "::/0", "10.0.0.1/8", "proxy.example.org"])
def test_what_is_no_network_of_proxies_is_refused(tmp_path: Any, network: str) -> None:
    with pytest.raises(Rejected) as refused:
        controller_config(tmp_path, http__trusted_proxies=[network])
    assert refused.value.field == "http.trusted_proxies"
