"""A controller that is killed, or stopped, in the middle of anything a module does, and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import pathlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from small_modules import archive

from corral.testing.api_call import call
from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.waiting import eventually

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
    """One data directory, the controller that works on it, and the gates of its module."""

    def __init__(self, directory: pathlib.Path, processes: ProcessCluster) -> None:
        self._directory = directory
        self._processes = processes
        self._gates = directory / "gates"
        self._gates.mkdir()
        self.controller: ServiceProcess
        self.url = ""

    async def begin(self) -> None:
        self.controller = self._processes.start(
            *("controller", "--data", str(self._directory / "c")),
            *("--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0"),
            environment={"CORRAL_SHUTDOWN_BUDGET_SECONDS": "5"},
        )
        self.url = await self.controller.ready()

    def close_gate(self, hook: str) -> None:
        (self._gates / f"stop-at-{hook}").touch()

    def open_gates(self) -> None:
        for gate in self._gates.glob("stop-at-*"):
            gate.unlink()

    def break_hook(self, hook: str, *, broken: bool = True) -> None:
        path = self._gates / f"raise-in-{hook}"
        path.touch() if broken else path.unlink()

    async def at_gate(self, hook: str) -> int:
        """The module's process that stands there."""
        path = self._gates / f"at-{hook}"
        await eventually(path.exists)
        return int(path.read_text())

    @property
    def token(self) -> str:
        return (self._directory / "c" / "admin.token").read_text().strip()

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await call(self.url, self.token, method, f"/api/v1/modules{path}", body)

    async def install(self, version: str = "1.0.0") -> Any:
        path = archive(
            self._directory / "archives",
            "gated",
            version,
            source=GATED,
            hook_ms=30_000,
            storage={"documents": True},
            config={
                "type": "object",
                "properties": {"gates": {"type": "string", "default": str(self._gates)}},
            },
        )
        return await asyncio.to_thread(self._post, path.read_bytes())

    def _post(self, body: bytes) -> Any:
        url = urlsplit(self.url)
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/octet-stream"}
        try:
            connection.request("POST", f"/api/v1/modules?{urlencode({'rollback': 'true'})}", body, headers)
            answer = connection.getresponse()
            return json.loads(answer.read())
        finally:
            connection.close()

    async def record(self) -> Any:
        return await self.call("GET", "/gated")

    async def serving(self) -> Any:
        """The module once it runs again, and not only as it was stored."""

        async def looked() -> Any:
            found = await self.record()
            assert found["phase"] in PHASES
            return found if found["phase"] == "ACTIVE" and found["live"] else None

        return await eventually(looked)


@pytest.fixture
async def site(scratch: pathlib.Path) -> AsyncIterator[Site]:
    async with ProcessCluster(scratch) as processes:
        site = Site(scratch, processes)
        await site.begin()
        yield site


@contextlib.asynccontextmanager
async def under_way(work: Awaitable[Any]) -> AsyncIterator[None]:
    """A request that nobody will answer."""
    asked = asyncio.ensure_future(work)
    try:
        yield
    finally:
        await asyncio.gather(asked, return_exceptions=True)


Ask = Callable[[Site], Awaitable[Any]]

BROKEN_OFF: list[tuple[str, str, Ask | None]] = [
    ("install", "on_load", None),
    ("install", "on_start", None),
    ("deactivate", "on_stop", lambda site: site.call("POST", "/gated/deactivate")),
    ("pause", "on_stop", lambda site: site.call("POST", "/gated/pause", {"reason": "x"})),
    ("uninstall", "on_stop", lambda site: site.call("DELETE", "/gated")),
    ("uninstall", "on_unload", lambda site: site.call("DELETE", "/gated")),
    ("upgrade", "on_stop", lambda site: site.install("1.1.0")),
    ("upgrade", "on_upgrade", lambda site: site.install("1.1.0")),
    ("upgrade", "on_start", lambda site: site.install("1.1.0")),
]


async def _gone(pid: int) -> None:
    await eventually(lambda: not pathlib.Path(f"/proc/{pid}").exists())


STOPPED_ORDERLY = {("install", "on_start"), ("deactivate", "on_stop"), ("upgrade", "on_upgrade")}
CASES = [
    pytest.param(verb, hook, ask, end, id=f"{verb}-{hook}-{end}")
    for verb, hook, ask in BROKEN_OFF
    for end in ("kill", "terminate")
    if end == "kill" or (verb, hook) in STOPPED_ORDERLY
]


@pytest.mark.parametrize(("verb", "hook", "ask", "end"), CASES)
async def test_a_controller_that_ends_in_the_middle_of_a_hook_comes_back_to_a_state_of_the_table(
    site: Site, verb: str, hook: str, ask: Ask | None, end: str
) -> None:
    if ask is not None:
        await site.install()
        await site.serving()
    site.close_gate(hook)
    async with under_way(ask(site) if ask is not None else site.install()):
        pid = await site.at_gate(hook)
        await getattr(site.controller, end)()
    await _gone(pid)
    site.open_gates()
    await site.begin()
    found = await site.record()
    assert found["phase"] in PHASES
    if verb in ("install", "upgrade"):
        found = await site.serving()
        assert found["version"] in ("1.0.0", "1.1.0")
        again = await site.install("1.2.0")
        assert (again.get("version"), again.get("phase")) == ("1.2.0", "ACTIVE"), again
    else:

        async def resting() -> Any:
            found = await site.record()
            return found if found["phase"] == "INSTALLED" and found["live"] is None else None

        found = await eventually(resting)
        assert found["intent"] == ("paused" if verb == "pause" else "inactive")
        await site.call("POST", f"/gated/{'resume' if verb == 'pause' else 'activate'}")
        await site.serving()
    await site.call("DELETE", "/gated")
    assert (await site.call("GET", ""))["items"] == []


async def test_a_failed_module_stays_failed_over_a_restart_until_it_is_recovered(
    site: Site,
) -> None:
    site.break_hook("on_start")
    answer = await site.install()
    assert (answer["phase"], answer["reason"]) == ("FAILED", "hook_failed:on_start")
    await site.controller.kill()
    site.break_hook("on_start", broken=False)
    await site.begin()
    found = await site.record()
    assert (found["phase"], found["reason"]) == ("FAILED", "hook_failed:on_start")
    assert "as told" in json.dumps(found["failure"])
    await site.call("POST", "/gated/recover")
    found = await site.serving()
    assert found["failure"] is None


async def test_a_module_that_ran_when_its_controller_was_killed_runs_again_and_nothing_is_left_of_the_old_one(
    site: Site,
) -> None:
    await site.install()
    pid = (await site.serving())["live"]["pid"]
    await site.controller.kill()
    await _gone(pid)
    await site.begin()
    found = await site.serving()
    assert found["live"]["pid"] != pid
    assert [step["reason"] for step in found["story"]].count("host_restarted") >= 1


async def test_an_inactive_module_stays_inactive_over_a_restart(site: Site) -> None:
    await site.install()
    await site.call("POST", "/gated/deactivate")
    await site.controller.kill()
    await site.begin()
    found = await site.record()
    assert (found["phase"], found["intent"], found["live"]) == ("INSTALLED", "inactive", None)
