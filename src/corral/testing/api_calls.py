"""Calls of the API for tests: make a group, wait for instances, read a console."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote

from corral.cli.api.client import Client
from corral.cli.failure import CommandRefused
from corral.testing.waiting import eventually

_CALLERS: Final = concurrent.futures.ThreadPoolExecutor(max_workers=64)
"""Apart from the loop's own threads: the controller in this process may need those to answer, and has few of them."""


async def call(
    url: str,
    token: str,
    method: str,
    path: str,
    body: dict[str, Any] | None = None,
    *,
    ca_file: str | None = None,
) -> Any:
    """One request, the way the CLI makes it."""
    client = Client(url=url, token=token, ca_file=ca_file)
    methods: dict[str, Callable[[], Any]] = {
        "GET": lambda: client.get(path),
        "POST": lambda: client.post(path, body),
        "PUT": lambda: client.put(path, body or {}),
        "PATCH": lambda: client.patch(path, body or {}),
        "DELETE": lambda: client.delete(path),
    }
    if method not in methods:
        raise ValueError(f"the API has no method {method}")
    try:
        return await asyncio.get_running_loop().run_in_executor(_CALLERS, methods[method])
    finally:
        client.close()


DEADLINE: Final = 60.0
_PAGE: Final = 1000

Item = dict[str, Any]


class ApiCalls(Protocol):
    """A caller of the API as an administrator: `LocalController`, `ApiCaller`."""

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any: ...


class ApiCaller:
    """The API of a controller in another process."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._token = token

    async def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        return await call(self._url, self._token, method, path, body)


async def create_group(api: ApiCalls, name: str, command: Sequence[str], **spec: Any) -> Item:
    """A group of `min` instances (default 1), ready as soon as they run; other keys as in its document."""
    document = {"name": name, "command": list(command), "min": 1, "min_alive_ms": 0, **spec}
    made: Item = await api.call("POST", "/api/v1/groups", document)
    return made


async def instances_of(api: ApiCalls, group: str) -> list[Item]:
    """All that are known of a group, ended ones included."""
    page = await api.call("GET", f"/api/v1/instances?group={quote(group)}&limit=500")
    return [item for item in page["items"] if item["group"] == group]


async def wait_for_instances(
    api: ApiCalls, group: str, count: int, *, state: str = "RUNNING", deadline: float = DEADLINE
) -> list[Item]:
    """Exactly so many instances of a group in a state; the failure shows their states."""
    seen: list[Item] = []

    async def there() -> bool:
        seen[:] = await instances_of(api, group)
        return len(matching()) == count

    def matching() -> list[Item]:
        return [item for item in seen if item["state"] == state]

    await eventually(there, deadline=deadline, state=lambda: [_summary(item) for item in seen])
    return matching()


async def wait_for_instance(
    api: ApiCalls, id: str, condition: Callable[[Item], bool], *, deadline: float = DEADLINE
) -> Item:
    """One instance, once it is there and matches."""
    seen: list[Item] = []

    async def there() -> bool:
        try:
            seen[:] = [await api.call("GET", f"/api/v1/instances/{quote(id)}")]
        except CommandRefused as refused:
            if refused.code != "NOT_FOUND":
                raise
            return False
        return condition(seen[0])

    await eventually(there, deadline=deadline, state=lambda: [_summary(item) for item in seen])
    return seen[0]


def _summary(item: Item) -> tuple[Any, ...]:
    return tuple(item.get(key) for key in ("id", "state", "reason", "exit"))


async def read_console(api: ApiCalls, id: str) -> list[str]:
    """Every line that is kept, the oldest first."""
    lines: list[str] = []
    after = 0
    while True:
        page = await api.call("GET", f"/api/v1/instances/{quote(id)}/console?after={after}&limit={_PAGE}")
        lines += [item["line"] for item in page["items"]]
        if page["next_offset"] == after or not page["items"]:
            return lines
        after = page["next_offset"]


async def wait_for_line(api: ApiCalls, id: str, text: str, *, deadline: float = DEADLINE) -> str:
    """The first line of a console that holds a text."""
    seen: list[str] = []

    async def there() -> bool:
        seen[:] = await read_console(api, id)
        return any(text in line for line in seen)

    await eventually(there, deadline=deadline, state=lambda: seen[-10:])
    return next(line for line in seen if text in line)


async def send_command(api: ApiCalls, id: str, line: str) -> Any:
    return await api.call("POST", f"/api/v1/instances/{quote(id)}/command", {"command": line})
