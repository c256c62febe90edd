"""The modules that ship with Corral, built by the tool their users have and installed through the API."""

from __future__ import annotations

import hashlib
import hmac
import http.server
import json
import pathlib
import threading
from collections.abc import Iterator

import pytest

from corral.domain.field_classes.event_data import EVENT_PERMISSIONS
from corral.modules.manifest.manifest_reader import read_manifest
from corral.testing import workloads
from corral.testing.api_calls import create_group, wait_for_instances
from corral.testing.module_house import ModuleHouse
from corral.testing.waiting import eventually

SOURCES = pathlib.Path(__file__).parents[3] / "modules"
SECRET = "a-secret-of-16-letters"


class Receiver:
    """A service that takes webhooks; it refuses as long as it is told to."""

    def __init__(self) -> None:
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.refusing = False
        self.refused = 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if outer.refusing:
                    outer.refused += 1
                    self.send_response(503)
                else:
                    outer.taken.append((dict(self.headers.items()), body))
                    self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/hook"

    def types(self) -> list[str]:
        return [headers["Corral-Event"] for headers, _ in self.taken]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


async def test_statistics_count_what_instances_do_and_miss_nothing_while_off(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    house = ModuleHouse(controller, SOURCES / "stats-aggregator", scratch)
    assert (await house.install())["phase"] == "ACTIVE"
    await create_group(controller, "lobby", workloads.reading_commands())
    (instance,) = await wait_for_instances(controller, "lobby", 1)

    async def totals() -> dict[str, int]:
        rows = await house.request("GET", "/groups")
        return {key: rows[0][key] for key in ("starts", "stops", "crashes")} if rows else {}

    await eventually(lambda: _equals(totals, {"starts": 1, "stops": 0, "crashes": 0}))
    await house.act("deactivate")
    await controller.call("PATCH", "/api/v1/groups/lobby", {"min": 0})
    await controller.call("POST", f"/api/v1/instances/{instance['id']}/stop")
    await wait_for_instances(controller, "lobby", 1, state="STOPPED")
    await house.act("activate")
    await eventually(lambda: _equals(totals, {"starts": 1, "stops": 1, "crashes": 0}))
    days = await house.request("GET", "/groups/lobby")
    assert days[0]["run_seconds"] > 0
    lines = await controller.call("POST", "/api/v1/commands/execute", {"command": "stats show lobby"})
    assert lines["output"][0].startswith("lobby: 1 starts, 1 stops, 0 crashes")
    capabilities = await controller.call("GET", "/api/v1/capabilities")
    assert "stats.groups" in [each["id"] for each in capabilities["items"]]
    await daemon.app.stop()


async def _equals(read, wanted) -> bool:
    return await read() == wanted


async def test_alerts_reach_their_destination_signed_and_again_after_an_outage(cluster, scratch, receiver):
    controller = await cluster.controller()
    house = ModuleHouse(controller, SOURCES / "webhook-alerts", scratch)
    assert (await house.install())["phase"] == "ACTIVE"
    await house.configure(
        {
            "destinations": [
                {"name": "ops", "url": receiver.url, "events": ["GROUP_CREATED"], "secret": SECRET},
            ]
        }
    )
    receiver.refusing = True
    await controller.call("POST", "/api/v1/groups", {"name": "one", "command": ["serve"], "min": 0})
    await eventually(lambda: receiver.refused > 0)
    await house.act("deactivate")
    await house.act("activate")
    receiver.refusing = False
    await controller.call("POST", "/api/v1/groups", {"name": "two", "command": ["serve"], "min": 0})
    await eventually(lambda: len(receiver.taken) >= 2, state=receiver.types)
    headers, body = receiver.taken[0]
    assert (
        headers["Corral-Signature"] == f"sha256={hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()}"
    )
    told = json.loads(body)
    assert (told["type"], told["subject"]) == ("GROUP_CREATED", "one")
    assert (await house.request("POST", "/test/ops"))["sent"] is True


async def test_alerts_about_accounts_reach_the_destination_that_names_them(cluster, scratch, receiver):
    controller = await cluster.controller()
    house = ModuleHouse(controller, SOURCES / "webhook-alerts", scratch)
    await house.install()
    await house.configure(
        {"destinations": [{"name": "ops", "url": receiver.url, "events": ["TOKEN_*", "GROUP_CREATED"]}]}
    )
    await controller.call("POST", "/api/v1/tokens", {"name": "ci", "role": "VIEWER"})
    await controller.call("POST", "/api/v1/groups", {"name": "one", "command": ["serve"], "min": 0})
    await eventually(lambda: len(receiver.taken) >= 2, state=receiver.types)
    told = [json.loads(body) for _, body in receiver.taken]
    assert [each["type"] for each in told] == ["TOKEN_CREATED", "GROUP_CREATED"]
    assert told[0]["data"]["name"] == "ci"
    assert "corral_" not in json.dumps(told)


def test_alerts_can_be_about_every_event_of_accounts():
    """A type that a module gets only by name, and that is not listed here, would be sent to nobody, silently."""
    manifest = read_manifest((SOURCES / "webhook-alerts" / "module.yaml").read_text())
    assert set(manifest.events.subscribes) == {"*", *EVENT_PERMISSIONS}


@pytest.mark.parametrize("id", ["stats-aggregator", "webhook-alerts"])
async def test_settings_that_do_not_fit_are_refused_and_change_nothing(cluster, scratch, id):
    controller = await cluster.controller()
    house = ModuleHouse(controller, SOURCES / id, scratch)
    before = (await house.install())["settings"]
    with pytest.raises(Exception, match="settings do not fit"):
        await house.configure({"nonsense": 1})
    assert (await house.info())["settings"] == before
