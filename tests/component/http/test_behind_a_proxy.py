"""A controller on loopback behind a proxy with TLS: people log in through it, instances report through it."""

from __future__ import annotations

import asyncio
import json
import pathlib
import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from browsers import CSRF, LOGIN, PASSWORD
from sse_client import SseClient
from tls_proxy import Proxy, caddy, nginx, tls_proxy
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from corral.testing import workloads
from corral.testing.api_calls import create_group, wait_for_instance, wait_for_instances, wait_for_line
from corral.testing.cluster import LocalCluster, LocalController

PERSON = "127.0.0.5"
"""Of this host, and no proxy."""


@pytest.fixture(params=[tls_proxy, nginx, caddy], ids=lambda each: each.__name__)
async def proxy(request: pytest.FixtureRequest, scratch: pathlib.Path) -> AsyncIterator[Proxy]:
    """One of ours, and the programs of the guide, as they are configured there."""
    async with request.param(scratch / "proxy") as made:
        yield made


OURS = pytest.mark.parametrize("proxy", [tls_proxy], indirect=True)
"""For what a controller or an instance decides, whichever program passes it on."""


async def behind(cluster: LocalCluster, proxy: Proxy, **more: Any) -> LocalController:
    controller = await cluster.controller(http__public_url=proxy.url, **more)
    await proxy.pass_on(controller.url.removeprefix("http://"))
    return controller


def trust(proxy: Proxy) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(proxy.certificate))


def person(proxy: Proxy, **headers: str) -> httpx.AsyncClient:
    """A page of the dashboard in a browser, that claims to be somewhere else."""
    page = {"Origin": proxy.url, "Sec-Fetch-Site": "same-origin", "X-Forwarded-For": "10.9.9.9", **headers}
    transport = httpx.AsyncHTTPTransport(verify=trust(proxy), local_address=PERSON)
    return httpx.AsyncClient(base_url=proxy.url, headers=page, transport=transport, timeout=30)


async def make_user(controller: LocalController) -> dict[str, str]:
    body = {
        "name": "ada",
        "bindings": [{"role": "ADMIN"}],
        "must_change_password": False,
        "password": PASSWORD,
    }
    await controller.call("POST", "/api/v1/users", body)
    return {"name": "ada", "password": PASSWORD}


async def test_a_person_logs_in_and_works_through_the_proxy(cluster: LocalCluster, proxy: Proxy) -> None:
    controller = await behind(cluster, proxy, http__trusted_proxies=["127.0.0.1"])
    body = await make_user(controller)
    async with person(proxy) as stranger:
        login = await stranger.post(LOGIN, json=body)
    assert login.status_code == 200, login.text
    cookie, *attributes = login.headers["set-cookie"].split("; ")
    assert cookie.startswith("__Host-corral-")
    assert "Secure" in attributes
    async with person(proxy, Cookie=cookie, **{CSRF: login.json()["csrf"]}) as browser:
        me = (await browser.get("/api/v1/auth/me")).json()
        assert (me["user"], me["session"]["address"]) == ("ada", PERSON)
        made = await browser.post("/api/v1/groups", json={"name": "lobby", "command": ["x"], "min": 0})
        assert made.status_code == 201, made.text
        ticket = (await browser.post("/api/v1/events/tickets")).json()["ticket"]
        async with browser.stream("GET", "/api/v1/events/stream", params={"ticket": ticket}) as stream:
            reader = SseClient(stream)
            await browser.delete("/api/v1/groups/lobby")
            assert (await reader.event()).event == "GROUP_DELETED"
    audit = await controller.call("GET", "/api/v1/audit?limit=100&action=groups")
    assert {item["address"] for item in audit["items"]} == {PERSON}


@OURS
async def test_without_a_word_of_whom_to_trust_nobody_logs_in_through_it(
    cluster: LocalCluster, proxy: Proxy
) -> None:
    controller = await behind(cluster, proxy, http__cors__origins=[proxy.url])
    body = await make_user(controller)
    async with person(proxy) as stranger:
        answer = await stranger.post(LOGIN, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "INSECURE_LOGIN")
    assert "http.trusted_proxies" in answer.json()["error"]["hint"]


@pytest.mark.parametrize("page", ["", "https://evil.example.org"])
async def test_a_websocket_through_the_proxy_is_for_its_own_pages(
    cluster: LocalCluster, proxy: Proxy, page: str
) -> None:
    controller = await behind(cluster, proxy, http__trusted_proxies=["127.0.0.1"])
    await cluster.daemon("n1", controller)
    await create_group(controller, "lobby", workloads.reading_commands())
    (item,) = await wait_for_instances(controller, "lobby", 1)
    ticket = (await controller.call("POST", "/api/v1/events/tickets"))["ticket"]
    url = f"{proxy.url.replace('https', 'wss')}/api/v1/instances/{item['id']}/console/ws"
    opening = connect(
        url,
        ssl=trust(proxy),
        origin=page or proxy.url,  # type: ignore[arg-type]  # a text like any other
        subprotocols=["corral.console", f"ticket.{ticket}"],  # type: ignore[list-item]
        proxy=None,
    )
    if page:
        with pytest.raises(InvalidStatus) as refused:
            await opening
        assert refused.value.response.status_code == 403
        return
    async with opening as socket, asyncio.timeout(30):
        await socket.send(json.dumps({"command": "hello"}))
        await wait_for_line(controller, item["id"], "got hello")


@OURS
async def test_instances_report_through_the_proxy(
    cluster: LocalCluster, proxy: Proxy, scratch: pathlib.Path
) -> None:
    """Its certificate is none of the cluster's: whom to trust is not said, and the system decides."""
    controller = await behind(cluster, proxy, http__trusted_proxies=["127.0.0.1"])
    await cluster.daemon("n1", controller)
    reporting = workloads.reporting_players(str(scratch))
    env = {"SSL_CERT_FILE": str(proxy.certificate)}
    await create_group(controller, "arena", reporting, env=env)
    await create_group(controller, "plain", workloads.describing_itself())
    (item,) = await wait_for_instances(controller, "arena", 1)
    (scratch / item["id"]).write_text("7")
    await wait_for_instance(controller, item["id"], lambda found: found["players"] == 7)
    (plain,) = await wait_for_instances(controller, "plain", 1)
    environ = json.loads(await wait_for_line(controller, plain["id"], "environ"))["environ"]
    assert environ["CORRAL_API_URL"] == proxy.url
    assert "CORRAL_API_CA_FILE" not in environ
