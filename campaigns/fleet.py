"""Three daemons and one or two controllers that may be killed, stopped or cut off at any time, and a client that asks
until it is answered."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import random
import signal
import time
import uuid
from typing import Any, Final

from campaigns.evidence import Evidence, PostgresStore, SqliteStore, workloads
from corral.testing.fault_proxy import FaultProxy
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster, ServiceProcess

NODES: Final = ("n1", "n2", "n3")
ADDRESSES: Final = {"n1": "127.0.0.1", "n2": "127.0.0.1", "n3": "127.0.0.3"}
"""Two of them share their ports."""
CONTROLLERS: Final = ("controller", "controller-2")
_DEADLINE_SECONDS: Final = 90.0
_PASSING: Final = frozenset({"FENCED", "NOT_LEADER", "SHUTTING_DOWN", "STORE_UNAVAILABLE", "TIMEOUT"})
_BROKEN: Final = frozenset({"INTERNAL", "BUG"})


class Refused(Exception):
    """The controller said no."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Fleet:
    """The processes, on fixed ports. Use as `async with`."""

    def __init__(
        self,
        processes: ProcessCluster,
        directory: pathlib.Path,
        store: str,
        *,
        floor_seconds: float,
        controllers: int = 1,
        files: bool = True,
    ) -> None:
        """`files`: groups may come from a directory, too, where the store allows it."""
        self.side = directory / "side"
        self.side.mkdir()
        self.groups = directory / "groups" if store == "sqlite" and files else None
        self.controllers = CONTROLLERS[:controllers]
        self._processes = processes
        self._directory = directory
        self._store = store
        self._nowhere, *free = free_addresses(1 + 3 * controllers)
        self.http = dict(zip(self.controllers, free[::3], strict=True))
        self._grpc = dict(zip(self.controllers, free[1::3], strict=True))
        self._bootstrap = dict(zip(self.controllers, free[2::3], strict=True))
        self._stack = contextlib.AsyncExitStack()
        self._proxies = {node: [FaultProxy(each) for each in self._grpc.values()] for node in NODES}
        self._roles: dict[str, ServiceProcess] = {}
        self.statuses: collections.Counter[int] = collections.Counter()
        """Answers that were refusals, by their status."""
        self._healing = asyncio.Lock()
        self._environment = {
            "CORRAL_LINK_HEARTBEAT_SECONDS": "1",
            "CORRAL_RECONCILE_OBSERVE_SECONDS": "2",
            "CORRAL_RECONCILE_OFFLINE_AFTER_SECONDS": "1",
            "CORRAL_RECONCILE_FLOOR_SECONDS": f"{floor_seconds:g}",
            "CORRAL_PLACEMENT_WAIT_RECONNECT_SECONDS": "3",
            "CORRAL_INSTANCES_ENDED_PER_GROUP": "10000",  # ids are never used again: what was stopped is known
            "CORRAL_INSTANCES_DECISIONS_PER_SUBJECT": "100000",
            "CORRAL_LEASE_TTL_SECONDS": "3",
            "CORRAL_LEASE_RENEW_SECONDS": "0.5",
            "CORRAL_LEASE_MARGIN_SECONDS": "1",
            "CORRAL_PKI_CLUSTER_KEY_FILE": str(directory / "cluster.key"),
        }

    async def __aenter__(self) -> Fleet:
        for proxy in itertools.chain(*self._proxies.values()):
            await self._stack.enter_async_context(proxy)
        if self.groups is not None:
            self.groups.mkdir()
            (self.groups / ".corral-empty").touch()
        await self.heal()
        return self

    async def __aexit__(self, *_: object) -> None:
        for process in self._roles.values():
            await process.dispose()
        await self._stack.aclose()

    @property
    def evidence(self) -> Evidence:
        if self._store == "sqlite":
            return Evidence(SqliteStore(self._directory / "controller" / "corral.db"))
        return Evidence(PostgresStore(self._store))

    # processes

    async def heal(self) -> None:
        """Start what is dead, wake what is stopped, mend the lines."""
        async with self._healing:
            for proxy in itertools.chain(*self._proxies.values()):
                proxy.heal()
            for controller in self.controllers:
                await self._start_controller(controller)
            for node in NODES:
                await self._start_daemon(node)

    async def heal_one(self, role: str) -> None:
        async with self._healing:
            for proxy in self._proxies.get(role, ()):
                proxy.heal()
            if role in self.controllers:
                await self._start_controller(role)
            elif self._alive("controller"):
                await self._start_daemon(role)

    def _alive(self, role: str) -> bool:
        return role in self._roles and self._roles[role].alive

    async def _start_controller(self, role: str) -> None:
        if self._alive(role):
            self._roles[role].signal(signal.SIGCONT)
            return
        self._begin_controller(role)
        await _ready(self._roles[role])

    def _begin_controller(self, role: str) -> None:
        groups = ("--groups", str(self.groups)) if self.groups is not None else ()
        self._roles[role] = self._processes.start(
            "controller", "--data", str(self._directory / role), "--http", self.http[role],
            "--grpc", self._grpc[role], "--bootstrap", self._bootstrap[role], "--advertise", self._nowhere,
            "--store", self._store, *groups, environment=self._environment,
        )  # fmt: skip

    async def _start_daemon(self, node: str) -> None:
        if self._alive(node):
            self._roles[node].signal(signal.SIGCONT)
            return
        data = self._directory / node
        join: tuple[str, ...] = ()
        if not (data / "identity.json").exists():
            made = await self.call("POST", "/api/v1/nodes/join-tokens", {"node_id": node})
            join = ("--join", str(made["token"]))
        self._roles[node] = self._processes.start(
            "daemon", "--data", str(data), "--node-id", node, *join,
            "--controller", ",".join(proxy.address for proxy in self._proxies[node]),
            environment={"CORRAL_LINK_RECONNECT_MAX_SECONDS": "0.5", "CORRAL_NODE_ADVERTISE": ADDRESSES[node]},
        )  # fmt: skip
        if join:
            await _ready(self._roles[node])

    async def kill(self, role: str) -> None:
        async with self._healing:
            if self._alive(role):
                await self._roles[role].kill()

    async def kill_while_it_starts(self, seconds: float) -> None:
        """A controller is killed so long after its start."""
        async with self._healing:
            if not self._alive("controller"):
                self._begin_controller("controller")
                await asyncio.sleep(seconds)
                await self._roles["controller"].kill()

    def stop(self, role: str) -> None:
        if self._alive(role):
            self._roles[role].signal(signal.SIGSTOP)

    async def cut(self, node: str) -> None:
        for proxy in self._proxies[node]:
            await proxy.cut()

    def stall(self, node: str) -> None:
        for proxy in self._proxies[node]:
            proxy.stall()

    def kill_keeper(self, node: str) -> None:
        """The process that starts runs for the daemon; runs and daemon go on without it."""
        for lock in (self._directory / node / "keeper").glob("*lock*"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int(lock.read_text()), signal.SIGKILL)

    def hit_workload(self, dice: random.Random) -> None:
        """A workload crashes, or ends by itself."""
        living = sorted(workloads(self.side), key=lambda each: each.instance)
        if living:
            number = dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGUSR1, signal.SIGUSR2))
            with contextlib.suppress(ProcessLookupError):
                os.kill(dice.choice(living).pid, number)

    # the API

    async def get(self, path: str) -> Any:
        return await self.call("GET", path)

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Ask with one idempotency key until there is an answer, however often the controller dies meanwhile."""
        key, deadline = str(uuid.uuid4()), time.monotonic() + _DEADLINE_SECONDS
        for address in itertools.cycle(self.http.values()):
            try:
                return await asyncio.to_thread(self._ask, address, method, path, body, key)
            except (OSError, http.client.HTTPException) as error:
                problem: Exception = error
            except Refused as error:
                if error.code in _BROKEN:
                    raise AssertionError(f"{method} {path}: {error}") from error
                if error.code not in _PASSING:
                    raise
                problem = error
            if time.monotonic() > deadline:
                raise AssertionError(f"{method} {path}: no answer within {_DEADLINE_SECONDS:g} s: {problem}")
            await asyncio.sleep(0.2)
        raise AssertionError("endless")

    def _ask(self, address: str, method: str, path: str, body: dict[str, Any] | None, key: str) -> Any:
        token = (self._directory / "controller" / "admin.token").read_text().strip()
        host, _, port = address.rpartition(":")
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        if method != "GET":
            headers["Idempotency-Key"] = key
        connection = http.client.HTTPConnection(host, int(port), timeout=20)
        try:
            payload = json.dumps(body).encode() if body is not None else None
            connection.request(method, path, body=payload, headers=headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        found = json.loads(content) if content else None
        if answer.status >= 400:
            error = found.get("error", found) if isinstance(found, dict) else {}
            self.statuses[answer.status] += 1
            raise Refused(str(error.get("code")), str(error.get("message")))
        return found

    async def pages(self, path: str, position: str = "cursor") -> list[dict[str, Any]]:
        """All items of a list."""
        items: list[dict[str, Any]] = []
        mark, sign = "", "&" if "?" in path else "?"
        while True:
            page = await self.get(f"{path}{sign}limit=500" + (f"&{position}={mark}" if mark else ""))
            items += page["items"]
            if not page["next"] or page["next"] == mark:
                return items
            mark = page["next"]


async def _ready(process: ServiceProcess) -> None:
    """Also on a busy machine."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while True:
        try:
            await process.ready()
            return
        except AssertionError:
            if not process.alive or time.monotonic() > deadline:
                raise
