"""A controller that is killed, or stopped, in the middle of anything its modules do, and comes back.

To start a controller is what costs here. So several modules stand in the middle of something when it ends, and
one data directory goes through many ends: each return is the beginning of what comes next.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest
from small_modules import archive

from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.waiting import eventually

pytestmark = pytest.mark.timeout(300)

PATIENCE = 60.0
MODULES = "/api/v1/modules"
GATED = """
import asyncio, os, pathlib
from corral.sdk import PlatformModule

class Module(PlatformModule):
    async def pass_gate(self, ctx, name):
        here = pathlib.Path(ctx.config["gates"])
        if (here / ("raise-in-" + name)).exists():
            raise RuntimeError("as told")
        closed = here / ("stop-at-" + name)
        if closed.exists():
            (here / ("at-" + name + ".part")).write_text(str(os.getpid()))
            (here / ("at-" + name + ".part")).rename(here / ("at-" + name))
            while closed.exists():
                await asyncio.sleep(0.01)

    async def on_load(self, ctx):
        await self.pass_gate(ctx, "on_load")

    async def on_upgrade(self, ctx):
        marks = await ctx.require_document_storage().create("marks", dict)
        await marks.insert({"by": "upgrade"})
        await self.pass_gate(ctx, "on_upgrade")

    async def on_start(self, ctx):
        await self.pass_gate(ctx, "on_start")

    async def on_stop(self, ctx):
        await self.pass_gate(ctx, "on_stop")

    async def on_unload(self, ctx):
        await self.pass_gate(ctx, "on_unload")
"""
PHASES = {"INSTALLED", "WAITING", "ACTIVE", "STOPPING", "FAILED"}


class Site:
    """One data directory, the controller that works on it, and the gates of its modules."""

    def __init__(self, directory: pathlib.Path, processes: ProcessCluster) -> None:
        self._directory = directory
        self._processes = processes
        self._client = httpx.AsyncClient()
        self.controller: ServiceProcess

    async def begin(self) -> None:
        await self._client.aclose()
        self.controller = self._processes.start(
            *("controller", "--data", str(self._directory / "c")),
            *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"),
            environment={"CORRAL_SHUTDOWN_BUDGET_SECONDS": "5"},
        )
        url = await self.controller.ready()
        token = (self._directory / "c" / "admin.token").read_text().strip()
        self._client = httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=2 * PATIENCE,
        )

    async def end(self) -> None:
        await self._client.aclose()

    def _gates(self, id: str) -> pathlib.Path:
        path = self._directory / "gates" / id
        path.mkdir(parents=True, exist_ok=True)
        return path

    def close_gate(self, id: str, hook: str) -> None:
        (self._gates(id) / f"at-{hook}").unlink(missing_ok=True)
        (self._gates(id) / f"stop-at-{hook}").touch()

    def open_gates(self) -> None:
        for gate in self._directory.glob("gates/*/stop-at-*"):
            gate.unlink()

    def break_hook(self, id: str, hook: str, *, broken: bool = True) -> None:
        path = self._gates(id) / f"raise-in-{hook}"
        path.touch() if broken else path.unlink()

    async def at_gate(self, id: str, hook: str) -> int:
        """The module's process that stands there."""
        path = self._gates(id) / f"at-{hook}"
        await eventually(path.exists, deadline=PATIENCE)
        return int(path.read_text())

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self._client.request(method, f"{MODULES}{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    async def install(self, id: str, version: str = "1.0.0") -> Any:
        gates = {"type": "string", "default": str(self._gates(id))}
        path = archive(
            self._directory / "archives",
            id,
            version,
            source=GATED,
            hook_ms=30_000,
            storage={"documents": True},
            config={"type": "object", "properties": {"gates": gates}},
        )
        headers = {"Content-Type": "application/octet-stream"}
        answer = await self._client.post(MODULES, content=path.read_bytes(), headers=headers)
        assert answer.is_success, answer.text
        return answer.json()

    async def record(self, id: str) -> Any:
        found = await self.call("GET", f"/{id}")
        assert found["phase"] in PHASES
        return found

    async def serving(self, id: str) -> Any:
        """The module once it runs again, and not only as it was stored."""

        async def looked() -> Any:
            found = await self.record(id)
            return found if found["phase"] == "ACTIVE" and found["live"] else None

        return await eventually(looked, deadline=PATIENCE)

    async def resting(self, id: str) -> Any:
        async def looked() -> Any:
            found = await self.record(id)
            return found if found["phase"] == "INSTALLED" and found["live"] is None else None

        return await eventually(looked, deadline=PATIENCE)


@pytest.fixture
async def site(scratch: pathlib.Path) -> AsyncIterator[Site]:
    async with ProcessCluster(scratch) as processes:
        site = Site(scratch, processes)
        try:
            await site.begin()
            yield site
        finally:
            await site.end()


@contextlib.asynccontextmanager
async def under_way(*work: Awaitable[Any]) -> AsyncIterator[None]:
    """Requests that nobody will answer."""
    asked = [asyncio.ensure_future(each) for each in work]
    try:
        yield
    finally:
        for each in asked:
            each.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _gone(*pids: int) -> None:
    await eventually(
        lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids), deadline=PATIENCE
    )


Ask = Callable[[Site, str], Awaitable[Any]]

STOPS: dict[str, tuple[str, Ask]] = {
    "deactivate": ("on_stop", lambda site, name: site.call("POST", f"/{name}/deactivate")),
    "pause": ("on_stop", lambda site, name: site.call("POST", f"/{name}/pause", {"reason": "x"})),
    "uninstall": ("on_stop", lambda site, name: site.call("DELETE", f"/{name}")),
    "unload": ("on_unload", lambda site, name: site.call("DELETE", f"/{name}")),
}
"""By the module that it is done to: where it stops, and what is asked."""


@pytest.mark.system
async def test_a_kill_in_the_middle_of_every_way_down_leaves_a_state_of_the_table(site: Site) -> None:
    for id in STOPS:
        assert (await site.install(id))["phase"] == "ACTIVE"
    for id, (hook, _) in STOPS.items():
        site.close_gate(id, hook)
    async with under_way(*(ask(site, id) for id, (_, ask) in STOPS.items())):
        pids = [await site.at_gate(id, hook) for id, (hook, _) in STOPS.items()]
        await site.controller.kill()
    await _gone(*pids)
    site.open_gates()
    await site.begin()
    for id in STOPS:
        found = await site.resting(id)
        assert found["intent"] == ("paused" if id == "pause" else "inactive"), id
        await site.call("POST", f"/{id}/{'resume' if id == 'pause' else 'activate'}")
        await site.serving(id)
        await site.call("DELETE", f"/{id}")
    assert (await site.call("GET", ""))["items"] == []


@pytest.mark.system
async def test_what_rested_or_ran_or_had_failed_when_its_controller_was_killed_is_so_again(
    site: Site,
) -> None:
    await site.install("runs")
    await site.install("rests")
    await site.call("POST", "/rests/deactivate")
    site.break_hook("failed", "on_start")
    answer = await site.install("failed")
    assert (answer["phase"], answer["reason"]) == ("FAILED", "hook_failed:on_start")
    pid = (await site.serving("runs"))["live"]["pid"]
    await site.controller.kill()
    await _gone(pid)
    site.break_hook("failed", "on_start", broken=False)
    await site.begin()
    found = await site.serving("runs")
    assert found["live"]["pid"] != pid
    assert [step["reason"] for step in found["history"]].count("host_restarted") >= 1
    found = await site.record("rests")
    assert (found["phase"], found["intent"], found["live"]) == ("INSTALLED", "inactive", None)
    found = await site.record("failed")
    assert (found["phase"], found["reason"]) == ("FAILED", "hook_failed:on_start")
    assert "as told" in json.dumps(found["failure"])
    await site.call("POST", "/failed/recover")
    assert (await site.serving("failed"))["failure"] is None


@pytest.mark.system
async def test_a_kill_in_the_middle_of_every_way_up_leaves_a_version_that_serves(site: Site) -> None:
    """Each return to the same data: an install, then one upgrade after the other."""
    ways = [
        ("fresh", "1.0.0", "on_load"),
        ("gated", "1.0.0", "on_start"),
        ("gated", "1.1.0", "on_stop"),
        ("gated", "1.2.0", "on_upgrade"),
        ("gated", "1.3.0", "on_start"),
    ]
    before = ""
    for id, version, hook in ways:
        site.close_gate(id, hook)
        async with under_way(site.install(id, version)):
            pid = await site.at_gate(id, hook)
            await site.controller.kill()
        await _gone(pid)
        site.open_gates()
        await site.begin()
        found = await site.serving(id)
        assert found["version"] in {before, version}, (version, hook)
        again = await site.install(id, version)
        assert (again["version"], again["phase"]) == (version, "ACTIVE"), again
        before = version
    await site.call("DELETE", "/gated")
    assert [item["id"] for item in (await site.call("GET", ""))["items"]] == ["fresh"]


@pytest.mark.system
async def test_a_controller_that_is_told_to_end_in_the_middle_ends_in_time_and_comes_back(site: Site) -> None:
    await site.install("stops")
    site.close_gate("stops", "on_stop")
    site.close_gate("comes", "on_start")
    async with under_way(site.call("POST", "/stops/deactivate"), site.install("comes")):
        pids = [await site.at_gate("stops", "on_stop"), await site.at_gate("comes", "on_start")]
        await site.controller.terminate()
    await _gone(*pids)
    site.open_gates()
    await site.begin()
    assert (await site.resting("stops"))["intent"] == "inactive"
    await site.serving("comes")
    site.close_gate("comes", "on_upgrade")
    async with under_way(site.install("comes", "1.1.0")):
        pid = await site.at_gate("comes", "on_upgrade")
        await site.controller.terminate()
    await _gone(pid)
    site.open_gates()
    await site.begin()
    assert (await site.serving("comes"))["version"] == "1.0.0"
    assert (await site.install("comes", "1.1.0"))["phase"] == "ACTIVE"
