"""Keyed lines for an instance whose clients repeat them while store, controller and daemon fail: none comes twice.

The workload counts: it answers each line once for each time that it read it.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import httpx
import pytest
from estate import Estate

from corral.testing import workloads
from corral.testing.api_calls import (
    create_group,
    instances_of,
    read_console,
    send_command,
    wait_for_instances,
    wait_for_line,
)
from corral.testing.postgres_server import PostgresServer
from corral.testing.processes import ServiceProcess
from corral.testing.small_disk import small_disk
from corral.testing.waiting import eventually

pytestmark = pytest.mark.system
CLIENTS = 4
ATTEMPT_SECONDS = 2.0
GIVE_UP_SECONDS = 60.0


class Senders:
    """Clients that each send one line after the other, each with its key until it is answered for good."""

    def __init__(self, estate: Estate, id: str) -> None:
        self._estate = estate
        self._path = f"/api/v1/instances/{id}/command"
        self._ending = asyncio.Event()
        self.answers: dict[str, tuple[int, str]] = {}
        self.attempts: collections.Counter[str] = collections.Counter()

    @contextlib.asynccontextmanager
    async def at_work(self):
        async with asyncio.TaskGroup() as group:
            for number in range(CLIENTS):
                group.create_task(self._send_all(number))
            try:
                yield self
            finally:
                self._ending.set()

    async def _send_all(self, client: int) -> None:
        token = self._estate.token
        headers = {"Authorization": f"Bearer {token}"}
        number = 0
        async with httpx.AsyncClient(
            base_url=f"http://{self._estate.http}", headers=headers, timeout=ATTEMPT_SECONDS, verify=False
        ) as http:
            while not self._ending.is_set():
                number += 1
                await self._send(http, f"{client}-{number}")

    async def _send(self, http: httpx.AsyncClient, line: str) -> None:
        until = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < until:
            self.attempts[line] += 1
            with contextlib.suppress(httpx.TransportError):
                answer = await http.post(
                    self._path, json={"command": line}, headers={"Idempotency-Key": f"key-{line}"}
                )
                code = answer.json().get("error", {}).get("code", "")
                self.answers[line] = answer.status_code, code
                if answer.status_code == 200 or code == "MAY_HAVE_ARRIVED":
                    return
            await asyncio.sleep(0.02)  # between two attempts

    def check(self, console: list[str], *, doubts: int = 0) -> None:
        came = collections.Counter(line.removeprefix("got ") for line in console if line.startswith("got "))
        told = {line: (count, self.answers.get(line), self.attempts[line]) for line, count in came.items()}
        assert {line: told[line] for line, count in came.items() if count > 1} == {}
        taken = [line for line, (status, _) in self.answers.items() if status == 200]
        assert [line for line in taken if came[line] != 1] == []
        in_doubt = [line for line, (_, code) in self.answers.items() if code == "MAY_HAVE_ARRIVED"]
        assert len(in_doubt) <= doubts, in_doubt
        assert max(self.attempts.values()) > 1, "nothing was repeated"
        assert len(taken) + len(in_doubt) == len(self.answers), self.answers
        print(f"{len(taken)} lines taken, {sum(self.attempts.values())} attempts, {len(in_doubt)} in doubt")


async def daemon_of(estate: Estate) -> ServiceProcess:
    return await estate.daemon("n1", CORRAL_INSTANCES_DEVELOPMENT="true", CORRAL_INSTANCES_CGROUPS="none")


async def counting_instance(estate: Estate) -> str:
    await estate.wait_for_node("n1", "ONLINE")
    await create_group(estate, "counting", workloads.reading_commands())
    (instance,) = await wait_for_instances(estate, "counting", 1)
    await wait_for_line(estate, instance["id"], "up")
    return str(instance["id"])


async def console_of(estate: Estate, id: str) -> list[str]:
    await send_command(estate, id, "the last one")
    await wait_for_line(estate, id, "got the last one")
    return [line for line in await read_console(estate, id) if line != "got the last one"]


async def end(processes, estate: Estate) -> None:
    await estate.call("DELETE", "/api/v1/groups/counting?cascade=true&confirm=counting")

    async def gone() -> bool:
        return all(item["state"] == "STOPPED" for item in await instances_of(estate, "counting"))

    await eventually(gone, deadline=30)
    for process in processes.running():
        await process.kill()


@pytest.mark.trap("T70")
async def test_no_line_comes_twice_on_a_full_disk_or_with_a_killed_controller_or_daemon(processes, scratch):
    chance = random.Random(seed := time.time_ns())
    print(f"seed {seed}")
    with small_disk(scratch / "disk", size="8m") as disk:
        estate = Estate(processes, scratch, data=disk / "controller")
        controller = await estate.controller(CORRAL_LOG_LEVEL="ERROR")
        daemon = await daemon_of(estate)
        id = await counting_instance(estate)
        async with Senders(estate, id).at_work() as senders:
            ballast = disk / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(b"x" * 4096)
            await asyncio.sleep(1.5 + chance.random())  # the moments are the point
            ballast.unlink()
            for _ in range(3):
                await asyncio.sleep(0.3 + chance.random())
                await controller.kill()
                controller = await estate.controller(CORRAL_LOG_LEVEL="ERROR")
            await asyncio.sleep(0.5 + chance.random())
            await daemon.kill()
            await daemon_of(estate)
        senders.check(await console_of(estate, id), doubts=CLIENTS)
        await end(processes, estate)


async def test_lines_typed_while_the_controller_is_killed_and_comes_back_arrive_once(processes, scratch):
    estate = Estate(processes, scratch)
    controller = await estate.controller(CORRAL_LOG_LEVEL="ERROR")
    await daemon_of(estate)
    id = await counting_instance(estate)
    console = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "corral.cli", "instance", "console", id,
        env={**os.environ, "CORRAL_URL": f"http://{estate.http}", "CORRAL_TOKEN": estate.token, "HOME": str(scratch)},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert console.stdin is not None
    assert console.stdout is not None
    async with asyncio.timeout(60):
        console.stdin.write(b"first\n")
        while await console.stdout.readline() != b"got first\n":
            pass
        await controller.kill()
        console.stdin.write(b"second\nthird\n")  # nobody is there
        await console.stdin.drain()
        controller = await estate.controller(CORRAL_LOG_LEVEL="ERROR")
        while await console.stdout.readline() != b"got third\n":
            pass
        await controller.kill()
        await estate.controller(CORRAL_LOG_LEVEL="ERROR")
        console.stdin.write(b"fourth\n")  # on a connection that nobody knows any more
        console.stdin.write_eof()
        _, told = await console.communicate()
    assert console.returncode == 0, told
    assert b"trying again" in told
    assert b"error" not in told
    lines = [line for line in await console_of(estate, id) if line.startswith("got")]
    assert lines == ["got first", "got second", "got third", "got fourth"]
    await end(processes, estate)


@pytest.mark.trap("T70")
async def test_no_line_comes_twice_while_postgresql_is_frozen_or_crashes(processes, scratch):
    chance = random.Random(seed := time.time_ns())
    print(f"seed {seed}")
    with PostgresServer() as server:
        async with server.database() as url:
            estate = Estate(processes, scratch, store=url)
            await estate.controller(CORRAL_LOG_LEVEL="ERROR")
            await daemon_of(estate)
            id = await counting_instance(estate)
            async with Senders(estate, id).at_work() as senders:
                for _ in range(2):
                    frozen = back_ends(server.pid)
                    for pid in frozen:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGSTOP)
                    await asyncio.sleep(1 + chance.random())  # the moment is the point
                    for pid in frozen:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGCONT)
                    await asyncio.sleep(chance.random())
                await asyncio.to_thread(server.restart, immediate=True)
                await asyncio.sleep(1 + chance.random())
            senders.check(await console_of(estate, id))
            await end(processes, estate)


def back_ends(postmaster: int) -> list[int]:
    """The processes of a PostgreSQL server that serve connections, and its own."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, IndexError):
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == postmaster:
                    found.append(int(entry.name))
    return found
