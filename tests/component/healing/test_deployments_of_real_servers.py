"""Deployments with real daemons and real servers: how many serve meanwhile, whom they wait for, and what they undo."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from typing import Any

import httpx
import pytest
from cut_nodes import CutNodes

from corral.domain.groups.instance_records import is_ready
from corral.testing import workloads
from corral.testing.gated_servers import GatedServers
from corral.testing.waiting import eventually

FINAL = ("COMPLETED", "FAILED", "ROLLED_BACK", "CANCELLED", "SUPERSEDED")
PROGRAM = [sys.executable, "-m", "corral.cli"]


class Rollout:
    """A group on three real nodes, and its deployments."""

    def __init__(self, site: CutNodes) -> None:
        self.site = site
        self.servers = GatedServers(site.scratch / "gates")
        self.most = 0
        self.fewest_ready = 10**6

    async def begin(self, **fields: Any) -> dict[str, int]:
        """The group, running by version 1: the process of each instance."""
        await self.site.begin()
        await self.call("POST", "/api/v1/groups", self.servers.document(**fields))
        return {each.id: each.pid for each in await self.ready(fields.get("min", 3))}

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await self.site.controller.call(method, path, body)

    async def ready(self, count: int) -> list[Any]:
        await self.site.until(lambda: [is_ready(each) for each in self.site.records()] == [True] * count)
        return self.site.records()

    async def change(self, version: int = 2, **fields: Any) -> None:
        await self.call("PATCH", "/api/v1/groups/lobby", {"env": {"VERSION": str(version)}, **fields})

    async def deploy(self, **options: Any) -> dict[str, Any]:
        return await self.call("POST", "/api/v1/groups/lobby/deploy", {"options": options})

    async def order(self, id: str, verb: str) -> dict[str, Any]:
        return await self.call("POST", f"/api/v1/deployments/{id}/{verb}")

    def look(self) -> None:
        """How many live and are ready at this moment."""
        records = self.site.records()
        serving = [each for each in records if each.wanted.value == "run"]
        self.most = max(self.most, len(serving))
        self.fewest_ready = min(self.fewest_ready, sum(map(is_ready, serving)))

    async def until(self, id: str, *states: str) -> dict[str, Any]:
        seen: dict[str, Any] = {}

        async def there() -> bool:
            self.look()
            seen.update(await self.call("GET", f"/api/v1/deployments/{id}"))
            return seen["state"] in states

        await eventually(there, deadline=60, state=lambda: (seen, self.site.shown()))
        return seen

    def versions(self) -> list[str]:
        """What each instance was started by."""
        return sorted({str(each.revision) for each in self.site.records()})


@pytest.fixture
async def rollout(site):
    return Rollout(site)


async def test_with_surge_nothing_is_missing_and_one_is_above_the_wanted_number(rollout):
    before = await rollout.begin(min=3)
    rollout.servers.open(2)
    await rollout.change()
    begun = await rollout.deploy()
    done = await rollout.until(begun["id"], *FINAL)
    assert (done["state"], done["stable"], done["target"]) == ("COMPLETED", 1, 2), done
    after = await rollout.site.running(3)
    assert not {each.pid for each in after} & set(before.values())
    assert {each.revision for each in after} == {2}
    assert rollout.most <= 4
    assert rollout.fewest_ready >= 3
    again = await rollout.deploy()
    assert (await rollout.until(again["id"], *FINAL))["state"] == "COMPLETED"
    assert [each.pid for each in rollout.site.records()] == [each.pid for each in after], (
        "nothing was outdated"
    )


async def test_stop_first_never_has_more_than_are_wanted(rollout):
    before = await rollout.begin(min=3)
    rollout.servers.open(2)
    await rollout.change()
    begun = await rollout.deploy(max_surge=0, max_unavailable=1)
    done = await rollout.until(begun["id"], *FINAL)
    assert done["state"] == "COMPLETED", done
    after = await rollout.site.running(3)
    assert not {each.pid for each in after} & set(before.values())
    assert rollout.most <= 3
    assert rollout.fewest_ready >= 2


@pytest.mark.system
async def test_players_are_waited_for_and_hold_up_nobody_else(rollout, site):
    await site.begin()
    await site.group(min=3, max_players=20, update={"min_healthy_seconds": 0})
    first, *_ = await site.running(3)
    site.play(first.id, 5)
    await site.players_are({first.id: 5})
    await rollout.call("PATCH", "/api/v1/groups/lobby", {"env": {"VERSION": "2"}})
    begun = await rollout.deploy()

    async def only_players() -> bool:
        found = await rollout.call("GET", f"/api/v1/deployments/{begun['id']}")
        waits = found["progress"] and found["progress"]["waiting_players"]
        return waits == [{"id": first.id, "players": 5}] and found["progress"]["updated"] == 3

    await eventually(only_players, deadline=60, state=site.shown)
    assert site.record(first.id).wanted.value == "drain"
    assert site.record(first.id).pid == first.pid, "its players go on"
    site.play(first.id, 0)
    done = await rollout.until(begun["id"], *FINAL)
    assert done["state"] == "COMPLETED"
    await site.running(3)


@pytest.mark.system
async def test_a_failing_canary_is_taken_back_by_itself_and_the_command_names_it(rollout):
    before = await rollout.begin(min=3)
    rollout.servers.break_(2)
    await rollout.change()
    controller = rollout.site.controller
    failed = await asyncio.to_thread(
        subprocess.run,
        [*PROGRAM, "deploy", "lobby", "--strategy", "canary", "--wait", "--timeout", "60s"],
        env={**os.environ, "CORRAL_URL": controller.url, "CORRAL_TOKEN": controller.admin_token},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert failed.returncode == 1, failed.stdout + failed.stderr
    (found,) = (await rollout.call("GET", "/api/v1/deployments?group=lobby"))["items"]
    (failure,) = found["failures"]
    assert (found["state"], failure["lines"][-1]) == ("ROLLED_BACK", "no such map: winter")
    for text in (
        failure["instance"],
        f"node '{failure['node']}'",
        "| no such map: winter",
        "undone: ",
        "code 3",
    ):
        assert text in failed.stderr, failed.stderr
    after = await rollout.site.running(3)
    assert {each.id: each.pid for each in after} == before, "those that served were never touched"
    group = await rollout.call("GET", "/api/v1/groups/lobby")
    assert group["status"]["pinned_revision"] == 1
    # What is started now is started by the revision that works, and the next deployment ends that.
    await rollout.call("POST", "/api/v1/groups/lobby/scale", {"count": 4})
    assert {each.revision for each in await rollout.ready(4)} == {1}
    rollout.servers.open(3)
    await rollout.change(3)
    begun = await rollout.deploy()
    assert (await rollout.until(begun["id"], *FINAL))["state"] == "COMPLETED"
    assert (await rollout.call("GET", "/api/v1/groups/lobby"))["status"]["pinned_revision"] == 0


async def test_canaries_wait_for_a_word_and_a_pause_keeps_everything_as_it_is(rollout):
    await rollout.begin(min=3)
    await rollout.change()
    begun = await rollout.deploy(strategy="canary", promote="manual", canary_seconds=0)
    await rollout.until(begun["id"], "CANARY")
    rollout.servers.open(2)
    await rollout.until(begun["id"], "GATE")
    there = await rollout.site.running(3)
    assert sorted(each.revision for each in there) == [1, 1, 2]
    paused = await rollout.order(begun["id"], "pause")
    assert (paused["state"], paused["resumes"]) == ("PAUSED", "GATE")
    assert (await rollout.order(begun["id"], "pause"))["revision"] == paused["revision"], "twice is once"
    old = next(each for each in there if each.revision == 1)
    os.kill(old.pid, 9)
    await rollout.site.until(lambda: old.pid not in {each.pid for each in rollout.site.records()})
    healed = await rollout.ready(3)
    assert sorted(each.revision for each in healed) == [1, 1, 2], "by what it had"
    assert (await rollout.order(begun["id"], "resume"))["state"] == "GATE"
    await rollout.order(begun["id"], "promote")
    assert (await rollout.until(begun["id"], *FINAL))["state"] == "COMPLETED"
    assert {each.revision for each in await rollout.site.running(3)} == {2}


async def test_a_rollback_leads_to_the_template_as_it_was(rollout, site):
    await site.begin()
    await upload(site, "one")
    command = workloads.shell("read word < word.txt; echo $word; exec sleep 86400")
    fields = {"templates": ["words"], "command": command, "min": 2, "update": {"min_healthy_seconds": 0}}
    await site.group(**fields)
    await site.running(2)
    await upload(site, "two")
    begun = await rollout.deploy()
    assert (await rollout.until(begun["id"], *FINAL))["state"] == "COMPLETED"
    assert await words(site) == {"two"}
    back = await rollout.order(begun["id"], "rollback")
    assert (await rollout.until(back["id"], *FINAL))["state"] in ("ROLLED_BACK", "COMPLETED")
    assert await words(site) == {"one"}
    listed = (await rollout.call("GET", "/api/v1/groups/lobby/revisions"))["items"]
    assert listed[0]["number"] > listed[-1]["number"]
    document = await rollout.call("GET", f"/api/v1/groups/lobby/revisions/{listed[0]['number']}")
    assert document["templates"][0]["name"] == "words"


async def test_a_world_that_is_deployed_keeps_its_files_and_its_node(rollout, site):
    await site.begin()
    command = workloads.shell('echo "$VERSION" >> log.txt; exec sleep 86400')
    env = {"VERSION": "1"}
    await site.group(min=2, static=True, command=command, env=env, update={"min_healthy_seconds": 0})
    before = {each.id: each for each in await site.running(2)}

    def written() -> list[list[str]]:
        logs = (site.scratch / each.node / "static" / id / "log.txt" for id, each in before.items())
        return [log.read_text().split() if log.exists() else [] for log in logs]

    await eventually(lambda: written() == [["1"], ["1"]], state=written)  # a process runs before it writes
    await rollout.change()
    begun = await rollout.deploy()
    assert (await rollout.until(begun["id"], *FINAL))["state"] == "COMPLETED"
    after = {each.id: each for each in await site.running(2)}
    assert {id: each.node for id, each in after.items()} == {id: each.node for id, each in before.items()}
    for id, each in after.items():
        assert each.pid != before[id].pid
    await eventually(lambda: written() == [["1", "2"], ["1", "2"]], state=written)
    assert rollout.most <= 2


async def upload(site: CutNodes, word: str) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        entry = tarfile.TarInfo("word.txt")
        entry.size = len(word)
        tar.addfile(entry, io.BytesIO(word.encode()))
    headers = {"Authorization": f"Bearer {site.controller.admin_token}", "Content-Type": "application/gzip"}
    async with httpx.AsyncClient(base_url=site.controller.url, headers=headers) as client:
        answer = await client.put("/api/v1/templates/words", content=buffer.getvalue())
        assert answer.is_success, answer.text


async def words(site: CutNodes) -> set[str]:
    """What the working directories of the instances hold."""
    records = await site.running(2)
    return {(site.scratch / each.node / "running" / each.id / "word.txt").read_text() for each in records}
