"""Metrics: stable names, and who may read them."""

from __future__ import annotations

import pathlib

import httpx
import pytest
from http_rig import Rig, http_rig
from prometheus_client.parser import text_string_to_metric_families
from sse_client import following

from corral.testing.waiting import eventually


async def families(client: httpx.AsyncClient) -> dict[str, dict[tuple[str, ...], float]]:
    answer = await client.get("/metrics")
    assert answer.status_code == 200
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(answer.text)
    }


async def test_every_name_begins_with_corral(client: httpx.AsyncClient) -> None:
    assert all(name.startswith("corral_") for name in await families(client))


async def test_requests_streams_and_events_are_counted(client: httpx.AsyncClient, rig: Rig) -> None:
    await client.get("/api/v1/nodes")
    await client.get("/api/v1/nodes/ghost")
    await client.patch("/api/v1/nodes")
    async with following(client) as reader:
        await reader.frame()
        await rig.happen("x")
        await reader.event()
        found = await families(client)
        assert found["corral_sse_clients"][("/api/v1/events/stream",)] == 1
    requests = found["corral_http_requests"]
    assert requests["GET", "/api/v1/nodes", "200"] == 1
    assert requests["GET", "/api/v1/nodes/{id}", "404"] == 1
    assert requests["(other)", "/api/v1/nodes", "405"] == 1
    assert found["corral_events_published"][("NODE_ERROR_REPORTED",)] == 1
    assert "corral_http_request_seconds" in found
    await eventually(lambda: len(rig.leading.streams) == 0)
    assert (await families(client))["corral_sse_clients"][("/api/v1/events/stream",)] == 0


async def test_metrics_need_a_token(rig: Rig) -> None:
    async with rig.client("") as nobody:
        assert (await nobody.get("/metrics")).status_code == 401


@pytest.mark.parametrize(("network", "status"), [("127.0.0.0/8", 200), ("10.0.0.0/8", 401)])
async def test_a_scrape_network_needs_no_token_for_metrics_and_for_nothing_else(
    data: pathlib.Path, network: str, status: int
) -> None:
    async with http_rig(data, scrape_networks=["fd00::/8", network]) as rig, rig.client("") as scraper:
        assert (await scraper.get("/metrics")).status_code == status
        assert (await scraper.get("/api/v1/nodes")).status_code == 401
        forged = await scraper.get("/api/v1/nodes", headers={"X-Forwarded-For": "127.0.0.1"})
        assert forged.status_code == 401


async def test_a_standby_can_be_scraped(data: pathlib.Path) -> None:
    async with http_rig(data, scrape_networks=["127.0.0.1/32"]) as rig, rig.client("") as scraper:
        rig.leads = False
        assert "corral_http_requests" in await families(scraper)
