"""Two daemons as processes that run servers of one group, under controllers that are killed during a deployment."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Callable
from typing import Any

from corral.cli.failure import CommandFailure
from corral.testing.api_calls import call
from corral.testing.gated_servers import GatedServers
from corral.testing.live_copies import LiveCopies
from corral.testing.processes import ProcessCluster, ServiceProcess
from corral.testing.waiting import eventually
from tests.system.estate import Estate

ENDED = ("STOPPED", "CRASHED")
FINAL = ("COMPLETED", "FAILED", "ROLLED_BACK", "CANCELLED", "SUPERSEDED")
NODES = ("n1", "n2")
SWIFT = {"CORRAL_RECONCILE_OFFLINE_AFTER_SECONDS": "1", "CORRAL_RECONCILE_OBSERVE_SECONDS": "2"}


class DeployedServers:
    """A group of servers that are ready, or break, by the files of `gates`."""

    def __init__(
        self, processes: ProcessCluster, scratch: pathlib.Path, copies: LiveCopies, store: str = "sqlite"
    ) -> None:
        self.estate = Estate(processes, scratch, store=store)
        self.gates = GatedServers(scratch / "gates")
        self.copies = copies
        self.api = f"http://{self.estate.http}"
        self.controller: ServiceProcess
        self.daemons: list[ServiceProcess] = []
        self.environment: dict[str, str] = {}

    async def begin(self, *daemon_options: str, count: int = 3, **environment: str) -> dict[str, int]:
        """The group, running by version 1: the process of each instance."""
        self.environment = {**SWIFT, **environment}
        self.controller = await self.estate.controller(**self.environment)
        for node in NODES:
            self.daemons.append(await self.estate.daemon(node, *daemon_options))
        update = {"drain_seconds": 1}  # a new leader does not know yet that nobody counts players
        await self.call("POST", "/api/v1/groups", self.gates.document(min=count, update=update))
        return {each["id"]: each["pid"] for each in await self.ready(count)}

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        return await call(self.api, self.estate.token, method, path, body)

    async def kill_controller(self) -> None:
        """Kill it in the middle, and start another one on its data."""
        await self.controller.kill()
        self.controller = await self.estate.controller(**self.environment)

    async def instances(self) -> list[dict[str, Any]]:
        page = await self.call("GET", "/api/v1/instances?group=lobby&live=true&limit=500")
        return page["items"]

    async def ready(self, count: int) -> list[dict[str, Any]]:
        """Until so many are ready, and nothing else is left."""
        return await self.until(
            self.instances, lambda seen: [each["ready"] for each in seen] == [True] * count
        )

    async def until(self, look: Callable[[], Any], accepts: Callable[[Any], bool]) -> Any:
        """What `look` returns when it is as wanted; a controller that does not answer is asked again."""
        seen: list[Any] = []

        async def there() -> bool:
            with contextlib.suppress(CommandFailure):
                seen[:] = [await look()]
                return accepts(seen[0])
            return False

        await eventually(there, deadline=100, state=lambda: seen)
        return seen[0]

    async def change(self, version: int) -> None:
        await self.call("PATCH", "/api/v1/groups/lobby", {"env": {"VERSION": str(version)}})

    async def deploy(self, **options: Any) -> str:
        return (await self.call("POST", "/api/v1/groups/lobby/deploy", {"options": options}))["id"]

    async def order(self, id: str, verb: str) -> dict[str, Any]:
        return await self.call("POST", f"/api/v1/deployments/{id}/{verb}")

    async def deployment(self, id: str, *states: str) -> dict[str, Any]:
        """The deployment when it is in one of these states."""

        async def look() -> Any:
            return await self.call("GET", f"/api/v1/deployments/{id}")

        return await self.until(look, lambda seen: seen["state"] in states)

    async def all_of(self, revision: int, count: int = 3) -> list[dict[str, Any]]:
        """Until all instances run by this revision."""
        return await self.until(
            self.instances,
            lambda seen: (
                [(each["ready"], each["deployment_revision"]) for each in seen] == [(True, revision)] * count
            ),
        )

    async def dispose(self) -> None:
        for each in (*self.daemons, self.controller):
            await each.dispose()
