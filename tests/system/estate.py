"""A controller process and what a test asks of it."""

from __future__ import annotations

import pathlib
import sys

from corral.testing.api_calls import call
from corral.testing.ports import free_addresses
from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.waiting import eventually


class Estate:
    """One controller on fixed ports, so that it can be killed and come back."""

    def __init__(
        self,
        processes: ProcessCluster,
        scratch: pathlib.Path,
        *,
        store: str = "sqlite",
        data: pathlib.Path | None = None,
        controller_python: str = sys.executable,
        daemon_python: str = sys.executable,
    ) -> None:
        self._processes = processes
        self._scratch = scratch
        self._store = store
        self.http, self.grpc, self.bootstrap = free_addresses(3)
        self.data = data or scratch / "controller"
        self._controller_python = controller_python
        self._daemon_python = daemon_python

    async def controller(self, **environment: str) -> ServiceProcess:
        process = self._processes.start(
            "controller", "--data", str(self.data), "--http", self.http, "--grpc", self.grpc,
            "--bootstrap", self.bootstrap, "--store", self._store,
            environment={"CORRAL_LINK_HEARTBEAT_SECONDS": "1", **environment}, python=self._controller_python,
        )  # fmt: skip
        await process.ready()
        return process

    async def daemon(self, node_id: str, *more: str, **environment: str) -> ServiceProcess:
        data = self._scratch / node_id
        join = () if (data / "identity.json").exists() else ("--join", await self.join_token(node_id))
        process = self._processes.start(
            "daemon", "--data", str(data), "--controller", self.grpc, "--node-id", node_id, *join, *more,
            environment={"CORRAL_LINK_RECONNECT_MAX_SECONDS": "0.5", **environment}, python=self._daemon_python,
        )  # fmt: skip
        await process.ready()
        return process

    @property
    def token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    async def call(self, method: str, path: str, body=None):
        return await call(f"http://{self.http}", self.token, method, path, body)

    async def join_token(self, node_id: str) -> str:
        return (await self.call("POST", "/api/v1/nodes/join-tokens", {"node_id": node_id}))["token"]

    async def wait_for_node(self, node_id: str, state: str) -> dict:
        seen: dict = {}

        async def there():
            seen.update(await self.call("GET", f"/api/v1/nodes/{node_id}"))
            # A node whose stream has just ended is ONLINE until that is stored.
            connected = state != "ONLINE" or seen["session"] is not None
            return seen if seen["state"] == state and connected else None

        logs = self._scratch / node_id / "logs" / "daemon.log"
        return await eventually(there, deadline=40, state=lambda: (seen, logs.read_text()[-3000:]))
