"""Archives of small modules for nodes, and how they stand there."""

from __future__ import annotations

import json
import pathlib
import textwrap
from typing import Any

from corral.testing.archives import zipped
from corral.testing.cluster import LocalController
from corral.testing.module_house import ModuleHouse
from corral.testing.waiting import eventually

PLAIN = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    pass
"""


def node_archive(
    directory: pathlib.Path,
    id: str = "small",
    version: str = "1.0.0",
    *,
    source: str = PLAIN,
    files: dict[str, bytes] | None = None,
    hook_ms: int = 2000,
    **manifest: Any,
) -> pathlib.Path:
    """An archive whose class is `Module` in `source`; more of the manifest by keyword."""
    package = id.replace("-", "_") + "_module"
    told = {
        "manifestVersion": 1,
        "id": id,
        "version": version,
        "api": ">=1.0",
        "hosts": ["daemon"],
        "backend": {"daemon": {"entrypoint": f"{package}:Module", "hookDeadlineMs": hook_ms}},
        **manifest,
    }
    content = {
        "module.yaml": json.dumps(told).encode(),
        f"{package}.py": textwrap.dedent(source).encode(),
        **(files or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{id}-{version}.cmod"
    path.write_bytes(zipped(content))
    return path


async def install(controller: LocalController, archive: pathlib.Path, **options: Any) -> dict[str, Any]:
    """Through the API; the module as it stands then."""
    return await ModuleHouse(controller, archive.parent, archive.parent).send_archive(archive, **options)


async def at_nodes(controller: LocalController, id: str) -> dict[str, dict[str, Any]]:
    """How a module stands, by node."""
    shown = await controller.call("GET", f"/api/v1/modules/{id}")
    return {each["node"]: each for each in shown["nodes"]}


async def wait_at_nodes(
    controller: LocalController, id: str, *, deadline: float = 30, **wanted: tuple[str, str]
) -> dict[str, dict[str, Any]]:
    """Until the module is in this phase and version on each of these nodes."""
    seen: dict[str, dict[str, Any]] = {}

    async def there() -> bool:
        seen.clear()
        seen.update(await at_nodes(controller, id))
        found = {node: (seen[node]["phase"], seen[node]["version"]) for node in wanted if node in seen}
        return found == wanted

    await eventually(there, deadline=deadline, state=lambda: seen)
    return seen
