"""Files of instances that are large, that are cut off in the middle, and that find no room."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pathlib
from collections.abc import AsyncIterator

import httpx
import pytest
from estate import Estate

from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.small_disk import small_disk
from corral.testing.waiting import eventually

pytestmark = pytest.mark.system

MEBI = 1 << 20
GROUP = {
    "name": "lobby",
    "command": ["sh", "-c", "echo begun > begun.txt; exec sleep 1000"],
    "stop": [{"signal": "SIGTERM", "wait_seconds": 5}],
}
FILES = "/api/v1/instances/lobby-1/files"
FLAT_KB = 48 * 1024
"""More than this no process may need at its peak beyond what it had before."""


def blocks(count: int) -> list[bytes]:
    """A MiB each, all different; made one by one from one that is random."""
    start = os.urandom(MEBI - 8)
    return [start, *(number.to_bytes(8, "big") for number in range(count))]


async def content(parts: list[bytes]) -> AsyncIterator[bytes]:
    for number in parts[1:]:
        yield number + parts[0]


def digest(parts: list[bytes]) -> str:
    hasher = hashlib.sha256()
    for number in parts[1:]:
        hasher.update(number + parts[0])
    return hasher.hexdigest()


def memory_kb(process: ServiceProcess, field: str) -> int:
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))


def forget_peak(process: ServiceProcess) -> None:
    pathlib.Path(f"/proc/{process.pid}/clear_refs").write_text("5")


class Running:
    """A controller, a node and an instance on it."""

    def __init__(self, processes: ProcessCluster, directory: pathlib.Path) -> None:
        self.estate = Estate(processes, directory)
        self.directory = directory / "n1" / "running" / "lobby-1"
        self.staging = directory / "n1" / "running" / ".staging"

    async def begin(self, **environment: str) -> None:
        self.controller = await self.estate.controller()
        self.daemon = await self.estate.daemon("n1", **environment)
        await self.estate.wait_for_node("n1", "ONLINE")
        await self.estate.call("POST", "/api/v1/groups", GROUP)
        await self.estate.call("POST", "/api/v1/instances?wait=running&timeout=60", {"group": "lobby"})
        headers = {"Authorization": f"Bearer {self.estate.token}"}
        self.client = httpx.AsyncClient(
            base_url=f"http://{self.estate.http}", headers=headers, timeout=httpx.Timeout(600)
        )

    async def put(self, path: str, parts: list[bytes], **headers: str) -> httpx.Response:
        return await self.client.put(
            f"{FILES}/content", params={"path": path}, content=content(parts), headers=headers
        )

    def staged_bytes(self) -> int:
        if not self.staging.exists():
            return 0
        return sum(entry.stat().st_size for entry in self.staging.iterdir() if entry.is_file())


@pytest.fixture
async def running(tmp_path: pathlib.Path) -> AsyncIterator[Running]:
    """On a disk, not in memory."""
    async with ProcessCluster(tmp_path) as processes:
        found = Running(processes, tmp_path)
        await found.begin()
        yield found
        await found.client.aclose()


@pytest.mark.timeout(600)
async def test_two_gigabytes_go_up_and_down_in_flat_memory(running: Running) -> None:
    parts = blocks(2048)
    expected = digest(parts)
    both = {"controller": running.controller, "daemon": running.daemon}
    warm = await running.put("small", blocks(2))
    assert warm.status_code == 200, warm.text
    before = {name: memory_kb(process, "VmRSS:") for name, process in both.items()}

    def grown() -> dict[str, int]:
        return {name: memory_kb(process, "VmHWM:") - before[name] for name, process in both.items()}

    for process in both.values():
        forget_peak(process)
    written = await running.put("world/large.bin", parts)
    assert (written.status_code, written.json()["digest"]) == (200, expected), written.text
    assert max(grown().values()) < FLAT_KB, grown()
    hasher = hashlib.sha256()
    async with running.client.stream("GET", f"{FILES}/content", params={"path": "world/large.bin"}) as answer:
        assert answer.headers["content-length"] == str(2048 * MEBI)
        assert answer.headers["etag"] == f'"{expected}"'
        async for block in answer.aiter_bytes():
            hasher.update(block)
    assert hasher.hexdigest() == expected
    assert max(grown().values()) < FLAT_KB, grown()
    print({name: f"{amount / 1024:.1f} MiB more at its peak" for name, amount in grown().items()})
    removed = await running.client.post(f"{FILES}/delete", json={"path": "world", "recursive": True})
    assert removed.status_code == 200, removed.text
    await running.put("world/region", blocks(200))
    received = 0
    async with running.client.stream("GET", f"{FILES}/archive", params={"path": "world"}) as answer:
        async for block in answer.aiter_bytes():
            received += len(block)
    assert received == int(answer.headers["content-length"])
    assert max(grown().values()) < FLAT_KB, grown()
    await eventually(lambda: running.staged_bytes() == 0)


@pytest.mark.timeout(300)
async def test_a_daemon_that_is_killed_while_a_file_comes_leaves_the_old_one_and_nothing_else(
    running: Running,
) -> None:
    file = running.directory / "begun.txt"
    old = file.read_bytes()
    uploading = asyncio.create_task(running.put("begun.txt", blocks(600)))
    await eventually(lambda: running.staged_bytes() > 8 * MEBI, deadline=60)
    await running.daemon.kill()
    answer = await uploading
    assert answer.json()["error"]["code"] in ("NODE_OFFLINE", "TIMEOUT"), answer.text
    assert file.read_bytes() == old
    assert sorted(entry.name for entry in running.directory.iterdir()) == ["begun.txt"]
    running.daemon = await running.estate.daemon("n1")
    await running.estate.wait_for_node("n1", "ONLINE")
    bins = running.directory.parent.parent / ".discarded"
    await eventually(lambda: running.staged_bytes() == 0 and not list(bins.iterdir()), deadline=60)
    instance = await running.estate.call("GET", "/api/v1/instances/lobby-1")
    assert instance["state"] == "RUNNING"
    tag = f'"{hashlib.sha256(old).hexdigest()}"'
    again = await running.put("begun.txt", blocks(2), **{"If-Match": tag})
    assert again.status_code == 200, again.text
    spooled = [path for path in running.estate.data.rglob("*.part") if path.stat().st_size]
    assert spooled == [], "nothing stays on the controller either"


async def test_a_file_that_finds_no_room_is_refused_before_the_disk_is_full(
    processes: ProcessCluster, scratch: pathlib.Path
) -> None:
    with small_disk(scratch / "n1", size="96m") as disk:
        found = Running(processes, scratch)
        await found.begin(CORRAL_DISK_RESERVE_MB="32")
        written = await found.put("world", blocks(20))
        assert written.status_code == 200, written.text
        digest = written.json()["digest"]
        answer = await found.put("world", blocks(60), **{"If-Match": f'"{digest}"'})
        assert (answer.status_code, answer.json()["error"]["code"]) == (507, "DISK_FULL")
        status = os.statvfs(disk)
        assert status.f_bavail * status.f_frsize > 32 * MEBI
        stat = await found.client.get(f"{FILES}/stat", params={"path": "world"})
        assert stat.json()["digest"] == digest
        assert found.staged_bytes() == 0
        refused = await found.client.post(f"{FILES}/mkdir", json={"path": "still/works"})
        assert refused.status_code == 200, refused.text
        await found.client.aclose()
        for process in processes.running():
            await process.kill()
