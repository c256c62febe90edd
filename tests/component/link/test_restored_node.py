"""A node whose disk is put back to an earlier copy: what the controller then shows is what is there."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess

import pytest

from corral.testing.api_calls import create_group, wait_for_instances
from corral.testing.fault_proxy import FaultProxy
from corral.testing.runtime_nodes import keeper_pid
from corral.testing.waiting import eventually

SPEAKING = ["/bin/sh", "-c", "echo process $$; exec sleep 1000"]


class PutBack:
    """One instance that its node restarted once, after a copy of the node's disk was made."""

    def __init__(self, cluster, scratch, proxy) -> None:
        self._cluster = cluster
        self._data = scratch / "n1"
        self._copy = scratch / "copy"
        self._proxy = proxy

    async def begin(self) -> None:
        self.controller = await self._cluster.controller(via=self._proxy)
        daemon = await self._cluster.daemon("n1", self.controller)
        await create_group(self.controller, "lobby", SPEAKING, min=1, restart={"attempts": 5})
        await wait_for_instances(self.controller, "lobby", count=1)
        self.first = (await self.shown())["incarnation"]
        await daemon.app.stop()
        subprocess.run(["cp", "-a", str(self._data), str(self._copy)], check=True)
        self._daemon = await self._cluster.restart(daemon)
        os.kill((await self.shown())["pid"], signal.SIGKILL)
        await self._know_second()

    async def begin_with_an_intent(self) -> None:
        """The same; in the copy the restart is only an intent."""
        self.controller = await self._cluster.controller(via=self._proxy)
        daemon = await self._cluster.daemon("n1", self.controller)
        restart = {"attempts": 5, "delay_ms": 1500, "max_delay_ms": 1500}
        await create_group(self.controller, "lobby", SPEAKING, min=1, restart=restart)
        await wait_for_instances(self.controller, "lobby", count=1)
        shown = await self.shown()
        self.first = shown["incarnation"]
        os.kill(shown["pid"], signal.SIGKILL)
        intent = self._data / "runs" / "lobby-1" / str(self.first + 1) / "intent.json"
        await eventually(intent.exists)
        await daemon.app.stop()
        subprocess.run(["cp", "-a", str(self._data), str(self._copy)], check=True)
        self._daemon = await self._cluster.restart(daemon)
        await self._know_second()

    async def _know_second(self) -> None:
        await self.until_running(self.first + 1)
        self.pid = (await self.shown())["pid"]
        self.nonce = (await self.runs())[0]["nonce"]
        await self.until_heard(self.pid)

    async def put_back(self, *, kill: bool, alone: bool) -> None:
        """`kill`: nothing of it lives; `alone`: no controller is there when the node boots."""
        await self._daemon.app.stop()
        if alone:
            await self.controller.app.stop()
        if kill:
            os.kill(self.pid, signal.SIGKILL)
            await eventually(lambda: not alive(self.pid))
        os.kill(keeper_pid(self._data), signal.SIGKILL)
        self._data.rename(self._data.with_name("newer"))
        self._copy.rename(self._data)
        self._daemon = await self._cluster.restart(self._daemon)
        if alone:
            if kill:
                found = self._daemon.app.supervision.supervisor.instances
                await eventually(lambda: found.find("lobby-1").order.incarnation > self.first)
            self.controller = await self._cluster.controller(via=self._proxy)
        await eventually(lambda: self.controller.node_state("n1") == "ONLINE")

    def is_active(self, id: str) -> bool:
        """Does the node supervise a run under this id?"""
        return self._daemon.app.supervision.supervisor.is_active(id)

    async def shown(self):
        return await self.controller.call("GET", "/api/v1/instances/lobby-1")

    async def runs(self):
        return (await self.controller.call("GET", "/api/v1/instances/lobby-1/runs"))["items"]

    async def numbers(self, *types: str) -> list[tuple[int, dict]]:
        """Of the events of these types: the runs, in order, and what is told of each."""
        found = await self.controller.call("GET", "/api/v1/events?limit=500")
        return [
            (each["data"]["incarnation"], each["data"]) for each in found["items"] if each["type"] in types
        ]

    async def ends(self) -> list[tuple[int, bool]]:
        """The runs whose end was told, in order, and whether it is known how they ended."""
        told = await self.numbers("INSTANCE_CRASHED", "INSTANCE_STOPPED")
        return [(number, data["exit"]["known"]) for number, data in told]

    async def until_running(self, number: int) -> None:
        async def there() -> bool:
            found = await self.shown()
            return (found["state"], found["incarnation"]) == ("RUNNING", number) and alive(found["pid"])

        await eventually(there)

    async def until_heard(self, pid: int) -> None:
        """Its console is that of this process, and of no other run with the same number."""

        async def heard() -> bool:
            page = await self.controller.call("GET", "/api/v1/instances/lobby-1/console")
            return [line["line"] for line in page["items"]] == [f"process {pid}"]

        await eventually(heard)


def alive(pid: int) -> bool:
    return pathlib.Path(f"/proc/{pid}").exists()


@pytest.mark.system
@pytest.mark.trap("T73")
async def test_a_number_that_the_node_uses_again_is_shown_as_another_run(cluster, scratch):
    async with FaultProxy() as proxy:
        case = PutBack(cluster, scratch, proxy)
        await case.begin()
        await case.put_back(kill=True, alone=True)
        await case.until_running(case.first + 1)

        async def told() -> bool:
            return (await case.runs())[0]["nonce"] not in ("", case.nonce)

        await eventually(told)
        assert (await case.shown())["pid"] != case.pid
        await case.until_heard((await case.shown())["pid"])
        decisions = await case.controller.call("GET", "/api/v1/decisions?subject=instance/lobby-1")
        assert any("put back" in each["reason"] for each in decisions["items"])
        assert await case.ends() == [(case.first, True), (case.first + 1, False)]
        # From here on it counts from the last number that the controller knows.
        os.kill((await case.shown())["pid"], signal.SIGKILL)
        await case.until_running(case.first + 2)
        await case.controller.call("POST", "/api/v1/instances/lobby-1/kill", {})


@pytest.mark.system
@pytest.mark.trap("T73")
async def test_what_ended_while_a_newer_state_was_lost_is_told_and_no_ended_run_is_shown_as_running(
    cluster, scratch
):
    async with FaultProxy() as proxy:
        case = PutBack(cluster, scratch, proxy)
        await case.begin()
        await case.put_back(kill=True, alone=False)
        await wait_for_instances(case.controller, "lobby", count=1)

        async def settled() -> bool:
            return await case.ends() == [(case.first, True), (case.first + 1, False)]

        await eventually(settled)
        # The node lists its run of the copy as alive until it knows that nothing is left of it.
        await eventually(lambda: not case.is_active("lobby-1"))
        assert await settled()
        running = [number for number, _ in await case.numbers("INSTANCE_RUNNING")]
        assert running == sorted(set(running)), "each run once, and none after a later one"


@pytest.mark.system
@pytest.mark.trap("T73")
@pytest.mark.parametrize("alone", [True, False])
async def test_what_lived_all_the_time_lives_on_and_ends_on_the_controllers_word(cluster, scratch, alone):
    async with FaultProxy() as proxy:
        case = PutBack(cluster, scratch, proxy)
        await case.begin()
        await case.put_back(kill=False, alone=alone)
        await case.until_running(case.first + 1)
        assert (await case.shown())["pid"] == case.pid, "nothing healthy is ended, and nothing runs twice"
        await case.controller.call("POST", "/api/v1/instances/lobby-1/kill", {})
        await eventually(lambda: not alive(case.pid))


@pytest.mark.system
@pytest.mark.trap("T73")
async def test_a_run_that_the_copy_has_as_an_intent_gets_an_unknown_end_when_it_is_executed_again(
    cluster, scratch
):
    async with FaultProxy() as proxy:
        case = PutBack(cluster, scratch, proxy)
        await case.begin_with_an_intent()
        await case.put_back(kill=True, alone=False)

        async def again() -> bool:
            runs = await case.runs()
            return runs[0]["nonce"] != case.nonce and runs[0]["state"] == "RUNNING"

        await eventually(again)
        assert (await case.ends()) == [(case.first, True), (case.first + 1, False)]
        await case.until_heard((await case.shown())["pid"])
        await case.controller.call("POST", "/api/v1/instances/lobby-1/kill", {})
