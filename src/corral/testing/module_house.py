"""A real controller and a real daemon for the tests of one module, installed as an operator would."""

from __future__ import annotations

import asyncio
import http.client
import json
import pathlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit

from corral.errors import Code, Rejected
from corral.modules.archive.archive_builder import Built, build_module
from corral.testing.api_calls import create_group, wait_for_instance, wait_for_instances, wait_for_line
from corral.testing.cluster import LocalController
from corral.testing.waiting import eventually


class ModuleHouse:
    """Builds the module in `source`, installs it, calls its routes. One controller, one test."""

    def __init__(self, controller: LocalController, source: pathlib.Path, scratch: pathlib.Path) -> None:
        self.controller = controller
        self._source = source
        self._scratch = scratch
        self._id = ""

    async def build(self) -> Built:
        target = self._scratch / "module.cmod"
        return await asyncio.to_thread(build_module, self._source, target)

    async def install(self, archive: pathlib.Path | None = None, **options: Any) -> dict[str, Any]:
        """Install the module under test, or another archive beside it; the module's state as answered."""
        if archive is None:
            built = await self.build()
            archive, self._id = built.path, built.manifest.id
        return await self.send_archive(archive, **options)

    async def send_archive(
        self, archive: pathlib.Path, signature: bytes | None = None, **options: Any
    ) -> dict[str, Any]:
        """POST an archive; `Rejected` with the API's code when it is refused."""
        body = await asyncio.to_thread(archive.read_bytes)
        return await asyncio.to_thread(self._post, body, archive.name, signature, options)

    async def request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        """Call one of the module's own routes, as the administrator."""
        return await self.controller.call(method, f"/api/v1/modules/{self._id}{path}", body)

    async def info(self) -> dict[str, Any]:
        found: dict[str, Any] = await self.controller.call("GET", f"/api/v1/modules/{self._id}")
        return found

    async def wait_on_node(self, phase: str = "ACTIVE") -> dict[str, Any]:
        """The module's state on the node, once it is the installed version, in that phase and at rest."""
        seen: list[dict[str, Any]] = []

        async def there() -> bool:
            seen[:] = (await self.info())["nodes"]
            return bool(seen) and all(
                each["phase"] == phase and each["current"] and each["settled"] for each in seen
            )

        await eventually(there, state=lambda: seen)
        return seen[0]

    async def start_instance(self, group: str, command: Sequence[str], **spec: Any) -> dict[str, Any]:
        """A group of one instance on the node, once that runs; other keys as in a group's document."""
        await create_group(self.controller, group, command, **spec)
        return (await wait_for_instances(self.controller, group, 1))[0]

    async def restart_instance(self, instance: dict[str, Any]) -> dict[str, Any]:
        """The same instance, once it runs anew."""
        await self.controller.call("POST", f"/api/v1/instances/{instance['id']}/restart")
        return await wait_for_instance(
            self.controller,
            instance["id"],
            lambda now: now["state"] == "RUNNING" and now["incarnation"] != instance["incarnation"],
        )

    async def wait_for_line(self, instance: dict[str, Any], text: str) -> str:
        """The first line of its console that holds a text."""
        return await wait_for_line(self.controller, instance["id"], text)

    async def act(self, verb: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        """`deactivate`, `activate`, `pause`, `resume`, `recover`, `reload`."""
        found: dict[str, Any] = await self.controller.call("POST", f"/api/v1/modules/{self._id}/{verb}", body)
        return found

    async def configure(self, settings: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self.controller.call(
            "PUT", f"/api/v1/modules/{self._id}/config", settings
        )
        return found

    async def uninstall(self) -> None:
        await self.controller.call("DELETE", f"/api/v1/modules/{self._id}")

    def _post(self, body: bytes, name: str, signature: bytes | None, options: dict[str, Any]) -> Any:
        boundary = "corral-module-house"
        parts = [_part(boundary, "file", name, body)]
        if signature is not None:
            ending = ".cosign.bundle" if signature.startswith(b"{") else ".sig"
            parts.append(_part(boundary, "signature", name + ending, signature))
        url = urlsplit(self.controller.url)
        query = urlencode({key: str(value).lower() for key, value in options.items()})
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=60)
        headers = {
            "Authorization": f"Bearer {self.controller.admin_token}",
            "Content-Type": f"multipart/form-data; boundary={boundary}",
        }
        try:
            target = "/api/v1/modules" + (f"?{query}" if query else "")
            connection.request("POST", target, b"".join([*parts, f"--{boundary}--\r\n".encode()]), headers)
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status >= 300:
            error = answer["error"]
            raise Rejected(Code[error["code"]], error["message"], hint=error.get("hint"))
        return answer


def _part(boundary: str, field: str, name: str, content: bytes) -> bytes:
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n"
