"""A real controller beside hostile modules: whether it goes on working, and what they leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
from module_steps import modules_of

from corral.sdk.runner.proc_table import tree
from corral.testing.cluster import LocalCluster, LocalController
from corral.testing.module_processes import measured_lag
from corral.testing.waiting import eventually

CALM: Final = 30.0
"""Seconds in which the controller answers and its loop gets round, also on a machine that is busy with
other tests. A host that a module can hold up stands still for ever, or for the module's own time."""
MODULES: Final = "/api/v1/modules"
_PATIENCE: Final = 60.0


class Pen:
    """One controller, and the modules that are let loose on it through its API. The client is on the loop:
    calls that wait for modules must not fill the threads that the controller in this process needs."""

    def __init__(self, controller: LocalController, client: httpx.AsyncClient, scratch: pathlib.Path) -> None:
        self.controller = controller
        self.scratch = scratch / "archives"
        self._client = client

    async def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """One request below `/api/v1/modules`."""
        return await self._client.request(method, MODULES + path, json=body)

    async def put_bytes(self, path: str, content: bytes, **headers: str) -> httpx.Response:
        return await self._client.put(MODULES + path, content=content, headers=headers)

    async def send(
        self, archive: pathlib.Path | bytes, signature: tuple[str, bytes] | None = None, **options: Any
    ) -> httpx.Response:
        """An upload, as it is answered."""
        content = archive if isinstance(archive, bytes) else archive.read_bytes()
        files = {"file": ("module.cmod", content)}
        if signature is not None:
            files["signature"] = signature
        query = {key: str(value).lower() for key, value in options.items()}
        return await self._client.post(MODULES, params=query, files=files)

    async def install(self, archive: pathlib.Path, **options: Any) -> dict[str, Any]:
        answer = await self.send(archive, **options)
        assert answer.is_success, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def act(self, id: str, verb: str) -> tuple[str, str]:
        """A verb, and where the module stands then; the error's code when the verb failed."""
        answer = await self.ask("POST", f"/{id}/{verb}")
        return await self.standing(id) if answer.is_success else ("", code_of(answer))

    async def info(self, id: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.ask("GET", f"/{id}")).json()
        return found

    async def standing(self, id: str) -> tuple[str, str]:
        found = await self.info(id)
        return found["phase"], found["reason"]

    async def stands(self, id: str, phase: str, reason: str) -> None:
        """In the end."""
        seen: list[tuple[str, str]] = []

        async def there() -> bool:
            seen[:] = [await self.standing(id)]
            return seen[0] == (phase, reason)

        await eventually(there, state=lambda: seen)

    async def uninstall(self, *ids: str) -> None:
        """And nothing is left of any of them."""
        answers = await asyncio.gather(*(self.ask("DELETE", f"/{id}") for id in ids))
        assert all(answer.is_success for answer in answers), [answer.text for answer in answers]
        await self.nothing_left(*ids)

    async def nothing_left(self, *ids: str) -> None:
        """No record, no archive that nobody else names, no process, nothing registered."""
        listed = (await self.ask("GET", "")).json()["items"]
        known = {module["id"]: module["sha256"] for module in listed}
        assert not set(ids) & set(known)
        for id in ids:
            assert await self.held(id) == []
        await modules_of(self.controller)._parts.upkeep()
        assert self.shelf() == sorted(known.values())
        await eventually(lambda: not self.strays(), state=self.strays)

    def shelf(self) -> list[str]:
        """Archives, packed or unpacked, by digest."""
        directory = self.controller.data / "artifacts"
        held = {path.name.split(".")[0] for path in directory.glob("*") if path.is_file()}
        return sorted(held | {path.name for path in (directory / "unpacked").glob("*")})

    async def held(self, id: str, *, patience: float = CALM) -> list[str]:
        """What the host holds for a module, or runs of it: processes, tasks, registrations. It is waited for
        a while that there is nothing."""
        modules = modules_of(self.controller)
        found: list[str] = []

        async def look() -> bool:
            live = modules.engine.live(id)
            found[:] = [f"live {live}"] if live is not None else []
            house = modules._parts.pool.processes.values()
            found.extend(f"process {process.pid}" for process in house if process.module_id == id)
            found.extend(await self._registered(id))
            return not found

        with contextlib.suppress(AssertionError):
            await eventually(look, deadline=patience)
        return found

    async def _registered(self, id: str) -> list[str]:
        found = []
        for kind, key in (("capabilities", "provider"), ("commands", "module")):
            items = (await self._client.get(f"/api/v1/{kind}")).json()["items"]
            found += [f"{kind} {each}" for each in items if each[key] == id]
        ping = await self.ask("GET", f"/{id}/ping")
        if ping.is_success:
            found.append(f"route {ping.text}")
        ours = tuple(f"modules/{kind}/{id}" for kind in ("deliver", "task", "serve", "finish"))
        names = [task.get_name() for task in asyncio.all_tasks()]
        return found + sorted(
            name for name in names if f"{name}/".startswith(tuple(f"{one}/" for one in ours))
        )

    def strays(self) -> list[str]:
        """Processes below the zygote that are no module's own."""
        house = modules_of(self.controller)._parts.pool
        below = tree(house.zygote_pid, most=10_000) if house.zygote_pid else []
        return [str(one) for one in below if one.pid not in {house.zygote_pid, *house.processes}]


def code_of(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


@contextlib.asynccontextmanager
async def pen(cluster: LocalCluster, scratch: pathlib.Path, **flags: Any) -> AsyncIterator[Pen]:
    """As long as it lasts the API is asked, and the loop looked at; both have to go on."""
    controller = await cluster.controller(**flags)
    headers = {"Authorization": f"Bearer {controller.admin_token}"}
    async with (
        httpx.AsyncClient(
            base_url=controller.url, headers=headers, timeout=_PATIENCE, verify=False
        ) as client,  # no TLS: else it would read the authorities of the system
        calm(client),
    ):
        yield Pen(controller, client, scratch)


@contextlib.asynccontextmanager
async def calm(client: httpx.AsyncClient) -> AsyncIterator[None]:
    """Other work goes on meanwhile, without a pause that anybody would notice."""
    slowest = 0.0
    answered = 0

    async def ask() -> None:
        nonlocal slowest, answered
        while True:
            began = time.monotonic()
            answer = await client.get("/api/v1/groups")
            assert answer.status_code == 200, answer.text
            slowest = max(slowest, time.monotonic() - began)
            answered += 1
            await asyncio.sleep(0.05)

    async with measured_lag() as lag:
        asking = asyncio.create_task(ask(), name="testing/ask")
        try:
            yield
            assert not asking.done(), asking
        finally:
            asking.cancel()
            await asyncio.wait([asking])
    assert answered > 0
    assert max(slowest, lag.worst) < CALM
