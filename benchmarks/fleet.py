"""A controller and a daemon as processes of their own, for benchmarks about instances.

Everything lies in a directory of its own. Its processes are gone afterwards, the instances' included.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Self

from benchmarks.trees import fresh_directory
from corral.testing.cgroup_cleanup import drop_groups
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.reaper import reap

DEADLINE = 90.0


def event_of(type: str, subject: str) -> Callable[[dict[str, Any]], bool]:
    """Whether an event is of this type and about this subject."""
    return lambda event: (event["type"], event["subject"]) == (type, subject)


class Events:
    """The event stream, each event with the moment it was read."""

    def __init__(self, host: str, token: str) -> None:
        self._host = host
        self._token = token
        self.seen: list[tuple[float, dict[str, Any]]] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._open = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._read(), name="bench/events")
        await asyncio.wait_for(self._open.wait(), DEADLINE)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self) -> None:
        host, port = self._host.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port), limit=2**22)
        try:
            writer.write(request("GET", "/api/v1/events/stream", self._token))
            while True:
                frame = await reader.readuntil(b"\n\n")
                now = time.time()
                if b": following" in frame:
                    self._open.set()
                for line in frame.split(b"\n"):
                    if line.startswith(b"data: "):
                        self.seen.append((now, json.loads(line[6:])))
                self._wake.set()
        finally:
            writer.close()

    async def first(
        self, wanted: Callable[[dict[str, Any]], bool], *, after: int = 0
    ) -> tuple[float, dict[str, Any]]:
        """The first event from position `after` that is wanted, waited for."""
        position = after
        async with asyncio.timeout(DEADLINE):
            while True:
                while position < len(self.seen):
                    moment, event = self.seen[position]
                    position += 1
                    if wanted(event):
                        return moment, event
                self._wake.clear()
                await self._wake.wait()


def request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    return (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )


class Api:
    """One kept connection with as little as possible between us and the socket."""

    def __init__(self, host: str, token: str) -> None:
        self._host = host
        self._token = token
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def __call__(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        if self._streams is None:
            host, port = self._host.rsplit(":", 1)
            self._streams = await asyncio.open_connection(host, int(port), limit=2**24)
        reader, writer = self._streams
        writer.write(request(method, path, self._token, b"" if body is None else json.dumps(body).encode()))
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        content = await reader.readexactly(int(length or 0))
        if head.split(b" ", 2)[1][:1] != b"2":
            raise RuntimeError(f"{method} {path}: {content.decode()}")
        return json.loads(content) if content else None

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


class Fleet:
    """One controller, one node."""

    def __init__(self, processes: ProcessCluster, directory: pathlib.Path) -> None:
        self._processes = processes
        self.directory = directory
        self.http, self._grpc, self._bootstrap = free_addresses(3)
        self.controller: ServiceProcess
        self.daemon: ServiceProcess

    async def start(self) -> None:
        self.controller = self._processes.start(
            "controller", "--data", str(self.directory / "controller"), "--http", self.http, "--grpc", self._grpc,
            "--bootstrap", self._bootstrap,
            environment={"CORRAL_RECONCILE_OBSERVE_SECONDS": "1"},
        )  # fmt: skip
        await self.controller.ready()
        self.token = (self.directory / "controller" / "admin.token").read_text().strip()
        self.api = Api(self.http, self.token)
        made = await self.api("POST", "/api/v1/nodes/join-tokens", {"node_id": "bench"})
        await self.start_daemon("--join", made["token"])

    async def start_daemon(self, *more: str) -> None:
        self.daemon = self._processes.start(
            "daemon", "--data", str(self.directory / "daemon"), "--controller", self._grpc, "--node-id", "bench",
            *more,
            environment={
                "CORRAL_INSTANCES_CGROUPS": "auto",
                "CORRAL_INSTANCES_DEVELOPMENT": "true",
                "CORRAL_LINK_RECONNECT_MAX_SECONDS": "1",
                "CORRAL_LINK_STATUS_SECONDS": "1",
            },
        )  # fmt: skip
        await self.daemon.ready()

    async def group(self, name: str, command: list[str], **more: Any) -> None:
        body = {"name": name, "command": command, "crash_loop": {"failures": 1000}, **more}
        await self.api("POST", "/api/v1/groups", body)

    async def instances(self, **wanted: Any) -> list[dict[str, Any]]:
        page = await self.api("GET", "/api/v1/instances?limit=500")
        return [item for item in page["items"] if all(item[key] == value for key, value in wanted.items())]

    async def running(self, count: int, group: str) -> list[dict[str, Any]]:
        """Wait until so many run."""
        async with asyncio.timeout(DEADLINE):
            while True:
                found = await self.instances(group=group, state="RUNNING")
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.05)

    def events(self) -> Events:
        return Events(self.http, self.token)


@contextlib.asynccontextmanager
async def fleet(*, memory: bool = False) -> AsyncIterator[Fleet]:
    """A running fleet. `memory`: on a memory disk, where the disk is not what is measured."""
    with _place(memory=memory) as directory:
        try:
            async with ProcessCluster(directory) as processes:
                made = Fleet(processes, directory)
                await made.start()
                try:
                    yield made
                finally:
                    made.api.close()
        finally:
            reap(directory)
            drop_groups(directory)


@contextlib.contextmanager
def _place(*, memory: bool) -> Iterator[pathlib.Path]:
    if not memory:
        yield fresh_directory()
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as scratch:
        yield pathlib.Path(scratch)


def cpu_seconds(*pids: int) -> float:
    """User and system time that these processes have used."""
    ticks = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
