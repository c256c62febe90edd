"""What an operator asks for beyond what holds, a reload or another try: each node does it once, also one that was
away. Real controllers and daemons; what modules did stands in a file a node."""

from __future__ import annotations

import asyncio
import collections
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest
from node_archives import at_nodes, install, node_archive, wait_at_nodes

from corral.cli.failure import CommandRefused
from corral.domain.ids import NodeId
from corral.errors import Code, Retryable
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.waiting import eventually

NOTING = """
import pathlib
from corral.sdk import DaemonModule

HOME = pathlib.Path({home!r})

def note(ctx, word):
    with open(HOME / ctx.node_id, "a") as file:
        file.write(word + "\\n")

class Module(DaemonModule):
    async def on_start(self, ctx):
        note(ctx, "start")
        if (HOME / ("bad-" + ctx.node_id)).exists() and {choosy}:
            raise RuntimeError("not today")

    async def on_reload(self, ctx):
        note(ctx, "reload")
        if (HOME / ("bad-" + ctx.node_id)).exists():
            raise ValueError("not these")
"""


class Wishes:
    """A controller, its nodes, and what the module `small` did on each."""

    def __init__(self, cluster: LocalCluster, scratch: pathlib.Path) -> None:
        self._cluster = cluster
        self._scratch = scratch
        self._daemons: dict[str, LocalDaemon] = {}
        self._home = scratch / "noted"
        self._home.mkdir()
        self.controller: LocalController

    async def open(self, *nodes: str) -> Wishes:
        self.controller = await self._cluster.controller()
        for node in nodes:
            await self.join(node)
        return self

    async def join(self, node: str) -> None:
        self._daemons[node] = await self._cluster.daemon(
            node, self.controller, link__reconnect_max_seconds=0.05
        )

    async def leave(self, node: str) -> None:
        await self._daemons[node].app.stop()
        await eventually(lambda: self._session(node) is None)

    async def come_back(self, node: str) -> None:
        self._daemons[node] = await self._cluster.restart(self._daemons[node])

    def _session(self, node: str) -> Any:
        return self.controller.app.role.term.sessions.find(NodeId(node))

    async def reconnect(self, node: str, times: int) -> None:
        for _ in range(times):
            await eventually(lambda: self._session(node) is not None)
            before = self._session(node)
            before.close(Retryable(Code.TIMEOUT, "the test says so"))
            await eventually(lambda before=before: self._session(node) not in (None, before))

    async def install(self, version: str = "1.0.0", *, choosy: bool = True) -> None:
        source = NOTING.format(home=str(self._home), choosy=choosy)
        await install(self.controller, node_archive(self._scratch / version, "small", version, source=source))

    def be_bad(self, *nodes: str, bad: bool = True) -> None:
        for node in nodes:
            path = self._home / f"bad-{node}"
            path.touch() if bad else path.unlink()

    async def act(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = await self.controller.call("POST", f"/api/v1/modules/small/{verb}", body)
        return found

    async def phases(self, version: str = "1.0.0", **nodes: str) -> None:
        await wait_at_nodes(self.controller, "small", **{node: (nodes[node], version) for node in nodes})

    async def at(self, node: str) -> dict[str, Any]:
        return (await at_nodes(self.controller, "small"))[node]

    async def nothing_owed(self, node: str) -> dict[str, Any]:
        """Until the node has settled, and owes nothing; how it stands."""
        seen: dict[str, Any] = {}
        await eventually(lambda: self._session(node) is not None)
        await self._daemons[node].app.modules.booted()
        await self._daemons[node].app.modules.settled()

        async def settled() -> bool:
            seen.update(await self.at(node))
            return bool(seen["settled"] and seen["connected"]) and not seen["pending"]

        await eventually(settled, state=lambda: seen)
        return seen

    def did(self, node: str) -> dict[str, int]:
        path = self._home / node
        return dict(collections.Counter(path.read_text().split())) if path.exists() else {}


@pytest.fixture
def wishes(cluster, scratch):
    return Wishes(cluster, scratch)


async def test_a_reload_that_a_node_missed_reaches_it_once(wishes):
    await wishes.open("n1", "n2")
    await wishes.install()
    await wishes.phases(n1="ACTIVE", n2="ACTIVE")
    await wishes.leave("n1")
    shown = await wishes.act("reload")
    assert {each["node"]: each["pending"] for each in shown["nodes"]}["n1"] == ["reload"]
    await wishes.nothing_owed("n2")
    assert wishes.did("n2") == {"start": 1, "reload": 1}
    assert wishes.did("n1") == {"start": 1}
    await wishes.come_back("n1")
    await wishes.nothing_owed("n1")
    assert wishes.did("n1") == {"start": 2, "reload": 1}
    await wishes.reconnect("n1", 20)
    await wishes.leave("n1")
    await wishes.come_back("n1")
    await wishes.nothing_owed("n1")
    assert wishes.did("n1") == {"start": 3, "reload": 1}
    assert wishes.did("n2") == {"start": 1, "reload": 1}


async def test_whoever_starts_anyway_needs_no_reload(wishes):
    """A late joiner, a new version, and what was paused: a fresh start has read the settings."""
    await wishes.open("n1", "n2")
    await wishes.install()
    await wishes.phases(n1="ACTIVE", n2="ACTIVE")
    await wishes.act("pause", {"reason": "later"})
    await wishes.phases(n1="INSTALLED", n2="INSTALLED")
    await wishes.leave("n2")
    await wishes.act("reload")
    await wishes.nothing_owed("n1")
    await wishes.act("resume")
    await wishes.come_back("n2")
    await wishes.join("n3")
    await wishes.phases(n1="ACTIVE", n2="ACTIVE", n3="ACTIVE")
    for node in ("n1", "n2", "n3"):
        await wishes.nothing_owed(node)
    await wishes.leave("n1")
    await wishes.act("reload")
    await wishes.install("2.0.0")
    await wishes.come_back("n1")
    await wishes.phases("2.0.0", n1="ACTIVE", n2="ACTIVE", n3="ACTIVE")
    for node, did in (
        ("n1", {"start": 4}),  # installed, resumed, booted, upgraded
        ("n2", {"start": 3, "reload": 1}),
        ("n3", {"start": 2, "reload": 1}),
    ):
        await wishes.nothing_owed(node)
        assert wishes.did(node) == did, node


async def test_settings_that_a_module_declines_on_reload_are_seen_and_not_offered_again(wishes):
    await wishes.open("n1")
    await wishes.install(choosy=False)
    await wishes.phases(n1="ACTIVE")
    wishes.be_bad("n1")
    await wishes.leave("n1")
    await wishes.act("reload")
    await wishes.come_back("n1")
    stands = await wishes.nothing_owed("n1")
    assert (stands["phase"], stands["declined"]) == ("ACTIVE", True)
    (listed,) = (await wishes.controller.call("GET", "/api/v1/modules"))["items"]
    assert listed["on_nodes"] == {"wanted": 1, "active": 1, "degraded": 1, "waiting": 0, "disconnected": 0}
    await wishes.reconnect("n1", 5)
    await wishes.nothing_owed("n1")
    assert wishes.did("n1") == {"start": 2, "reload": 1}
    wishes.be_bad("n1", bad=False)
    await wishes.act("recover")
    assert not (await wishes.nothing_owed("n1"))["declined"]


async def test_a_module_that_failed_on_an_absent_node_is_tried_again_once_when_it_is_back(wishes):
    wishes.be_bad("n1", "n2")
    await wishes.open("n1", "n2")
    await wishes.install()
    await wishes.phases(n1="FAILED", n2="FAILED")
    await wishes.leave("n1")
    wishes.be_bad("n2", bad=False)
    shown = await wishes.act("recover")
    assert {each["node"]: each["pending"] for each in shown["nodes"]} == {
        "n1": ["recover"],
        "n2": ["recover"],
    }
    await wishes.phases(n2="ACTIVE")
    await wishes.come_back("n1")
    assert (await wishes.nothing_owed("n1"))["phase"] == "FAILED"
    await wishes.reconnect("n1", 20)
    await wishes.leave("n1")
    await wishes.come_back("n1")
    assert (await wishes.nothing_owed("n1"))["phase"] == "FAILED"
    assert wishes.did("n1") == {"start": 2}
    assert wishes.did("n2") == {"start": 2}


async def test_another_try_may_be_for_one_node_that_is_away(wishes):
    wishes.be_bad("n1", "n2")
    await wishes.open("n1", "n2")
    await wishes.install()
    await wishes.phases(n1="FAILED", n2="FAILED")
    await wishes.leave("n1")
    wishes.be_bad("n1", "n2", bad=False)
    await wishes.act("recover?node=n1")
    await wishes.come_back("n1")
    await wishes.phases(n1="ACTIVE", n2="FAILED")
    assert wishes.did("n2") == {"start": 1}
    await wishes.controller.join_token("n3")
    with pytest.raises(CommandRefused) as caught:
        await wishes.act("recover?node=n3")
    assert caught.value.code == "NOT_FOUND"


async def test_a_version_that_an_absent_node_refused_is_tried_again_once_when_it_is_back(wishes):
    await wishes.open("n1")
    await wishes.install(choosy=False)
    await wishes.phases(n1="ACTIVE")
    wishes.be_bad("n1")
    await wishes.install("2.0.0")

    async def refused() -> bool:
        return bool((await wishes.at("n1"))["refused"])

    await eventually(refused)
    await wishes.leave("n1")
    await wishes.act("recover")
    await wishes.come_back("n1")
    stands = await wishes.nothing_owed("n1")
    assert (stands["phase"], stands["version"], stands["refused"]) == ("ACTIVE", "1.0.0", True)
    before = wishes.did("n1")
    await wishes.reconnect("n1", 20)
    await wishes.nothing_owed("n1")
    assert wishes.did("n1") == before
    wishes.be_bad("n1", bad=False)
    await wishes.act("recover?node=n1")
    await wishes.phases("2.0.0", n1="ACTIVE")


async def corral(controller: LocalController, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "corral.cli", "module", *arguments),
        env={**os.environ, "CORRAL_URL": controller.url, "CORRAL_TOKEN": controller.admin_token},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    return subprocess.CompletedProcess(arguments, process.returncode or 0, out.decode(), err.decode())


@pytest.mark.system
async def test_the_command_line_waits_for_who_is_there_and_says_what_the_others_will_do(wishes):
    await wishes.open("n1", "n2")
    await wishes.install()
    await wishes.phases(n1="ACTIVE", n2="ACTIVE")
    await wishes.leave("n2")
    said = await corral(wishes.controller, "reload", "small")
    assert said.stdout.splitlines() == [
        "'small' 1.0.0 is ACTIVE",
        "  n1: ACTIVE 1.0.0",
        "  n2: ACTIVE 1.0.0 (away; reloads when it is back)",
    ]
    assert (said.returncode, wishes.did("n1")) == (0, {"start": 1, "reload": 1})
    said = await corral(wishes.controller, "deactivate", "small")
    assert said.stdout.splitlines()[1:] == [
        "  n1: INSTALLED 1.0.0 (deactivated)",
        "  n2: ACTIVE 1.0.0 (away; reloads when it is back)",
    ]
    wishes.be_bad("n1")
    said = await corral(wishes.controller, "activate", "small")
    assert (said.returncode, "did not come up on n1" in said.stderr) == (1, True)
    said = await corral(wishes.controller, "recover", "small", "--node", "n1")
    assert (said.returncode, "did not come up on n1" in said.stderr) == (1, True)
    wishes.be_bad("n1", bad=False)
    said = await corral(wishes.controller, "recover", "small")
    assert said.stdout.splitlines()[:2] == [
        "'small' 1.0.0 is ACTIVE; recovery requested: n1; when back: n2",
        "  n1: ACTIVE 1.0.0",
    ]
    assert said.returncode == 0, said.stderr
    await wishes.come_back("n2")
    await wishes.nothing_owed("n2")
    assert wishes.did("n2") == {"start": 2, "reload": 1}
    said = await corral(wishes.controller, "recover", "small")
    assert (said.returncode, wishes.did("n1")["start"]) == (1, 4)
