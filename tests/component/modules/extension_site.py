"""A controller, a node, and modules that install files into instances."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import httpx

from corral.testing import workloads
from corral.testing.api_calls import create_group, wait_for_instance, wait_for_instances
from corral.testing.archives import zipped
from corral.testing.cluster import LocalCluster, LocalController, LocalDaemon
from corral.testing.module_house import ModuleHouse

PAPER = {"platform": "paper", "version": "1.21.4-232"}
_SOURCE = b"from corral.sdk import PlatformModule\n\nclass Module(PlatformModule):\n    pass\n"


def variant(id: str, content: bytes, *platforms: str, **fields: Any) -> dict[str, Any]:
    """As the manifest says it; the file is `files/ID.jar`."""
    return {
        "id": id,
        "platforms": list(platforms),
        "file": f"files/{id}.jar",
        "sha256": hashlib.sha256(content).hexdigest(),
        "installPath": "plugins/stats.jar",
        **fields,
    }


def extension(id: str, *variants: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": id, "variants": list(variants), **fields}


def archive(
    path: pathlib.Path,
    *extensions: dict[str, Any],
    files: Mapping[str, bytes],
    id: str = "stats",
    version: str = "1.0.0",
) -> pathlib.Path:
    """A module with a class that does nothing, and these files."""
    package = f"{id}_code"
    told = {
        "manifestVersion": 1,
        "id": id,
        "version": version,
        "backend": {"controller": {"entrypoint": f"{package}:Module"}},
        "extensions": list(extensions),
    }
    content = {"module.yaml": json.dumps(told).encode(), f"{package}.py": _SOURCE, **files}
    path.mkdir(parents=True, exist_ok=True)
    made = path / f"{id}-{version}.cmod"
    made.write_bytes(zipped(content))
    return made


class Site:
    """What an operator does, and what lies in the directories of instances."""

    def __init__(self, cluster: LocalCluster, scratch: pathlib.Path) -> None:
        self._cluster = cluster
        self._scratch = scratch
        self.controller: LocalController
        self.daemon: LocalDaemon

    async def begin(self, *, node: bool = True, **flags: Any) -> None:
        """A controller whose catalog has a program for `paper`, and unless told otherwise a node."""
        self.controller = await self._cluster.controller(**flags)
        await self.upload_program(**PAPER)
        if node:
            self.daemon = await self._cluster.daemon("n1", self.controller)

    async def upload_program(self, platform: str, version: str) -> None:
        url = f"{self.controller.url}/api/v1/catalog/{platform}/{version}/file"
        headers = {"Authorization": f"Bearer {self.controller.admin_token}"}
        async with httpx.AsyncClient(headers=headers, verify=False) as client:  # there is no TLS here
            answer = await client.put(url, params={"name": "server.jar"}, content=b"a program")
            answer.raise_for_status()

    async def install(
        self, *extensions: dict[str, Any], files: Mapping[str, bytes], **facts: Any
    ) -> dict[str, Any]:
        options = {key: facts.pop(key) for key in ("replace", "activate", "dry_run") if key in facts}
        made = archive(self._scratch / "archives", *extensions, files=files, **facts)
        return await ModuleHouse(self.controller, self._scratch, self._scratch).send_archive(made, **options)

    async def install_stats(
        self, content: bytes, *, activation: str = "always", version: str = "1.0.0"
    ) -> dict[str, Any]:
        """One extension `plugin`, for paper alone."""
        return await self.install(
            extension("plugin", variant("paper", content, "paper"), activation=activation),
            files={"files/paper.jar": content},
            version=version,
        )

    async def act(self, verb: str, id: str = "stats", **body: Any) -> Any:
        return await self.controller.call("POST", f"/api/v1/modules/{id}/{verb}", body or None)

    async def uninstall(self, id: str = "stats") -> None:
        await self.controller.call("DELETE", f"/api/v1/modules/{id}")

    async def group(self, name: str, **spec: Any) -> None:
        await create_group(self.controller, name, workloads.reading_commands(), **spec)

    async def running(self, name: str, **spec: Any) -> dict[str, Any]:
        """A group of one instance, once that runs."""
        await self.group(name, **spec)
        return (await wait_for_instances(self.controller, name, 1))[0]

    async def restarted(self, instance: dict[str, Any]) -> dict[str, Any]:
        await self.controller.call("POST", f"/api/v1/instances/{instance['id']}/restart")
        return await wait_for_instance(
            self.controller,
            instance["id"],
            lambda now: now["state"] == "RUNNING" and now["incarnation"] != instance["incarnation"],
        )

    async def plan(self, instance: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = await self.controller.call("GET", f"/api/v1/instances/{instance['id']}/plan")
        return found["plan"]

    def files(self, instance: dict[str, Any], *, kept: str = "running") -> dict[str, bytes]:
        """What lies in its directory, by path; `kept` is where the node has such directories."""
        root = self.daemon.config.data / kept / instance["id"]
        return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    def has_blob(self, content: bytes) -> bool:
        """Does the controller's own store hold it?"""
        return bool(self._blob(content))

    def lose_blob(self, content: bytes) -> None:
        (path,) = self._blob(content)
        path.unlink()

    def _blob(self, content: bytes) -> list[pathlib.Path]:
        return list(self.controller.data.rglob(hashlib.sha256(content).hexdigest()))
