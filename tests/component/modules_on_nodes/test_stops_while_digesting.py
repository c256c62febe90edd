"""A host that is told to stop does not read a huge archive to its end first."""

from __future__ import annotations

import asyncio
import hashlib
import os
import pathlib
from typing import Any, Final

import pytest
from node_archives import install, node_archive, wait_at_nodes

from corral.testing.cluster import LocalCluster
from corral.testing.waiting import eventually

HUGE: Final = 4 * 1024**3
"""Of zeros that take no room; to read them takes seconds."""


def blown_up(archive: pathlib.Path) -> None:
    """What the disk made of it is long, and wrong only as a whole."""
    archive.chmod(0o600)
    os.truncate(archive, HUGE)


def read_so_far(archive: pathlib.Path) -> int:
    """How far this process has come in reading a file; -1 while it does not read it."""
    for entry in pathlib.Path("/proc/self/fd").iterdir():
        try:
            if entry.readlink() == archive:
                told = pathlib.Path(f"/proc/self/fdinfo/{entry.name}").read_text()
                return int(told.split()[1])
        except OSError:
            continue  # closed meanwhile
    return -1


async def stopped_early(stop: Any, archive: pathlib.Path) -> None:
    furthest = await eventually(lambda: max(0, read_so_far(archive)))
    stopping = asyncio.create_task(stop)
    while not stopping.done():
        furthest = max(furthest, read_so_far(archive))
        await asyncio.wait([stopping], timeout=0.01)
    await stopping
    assert read_so_far(archive) == -1
    assert 0 < furthest < HUGE // 2


@pytest.fixture
def controllers_part() -> dict[str, Any]:
    return {"hosts": ["controller"], "backend": {"controller": {"entrypoint": "guard_module:Module"}}}


async def test_a_daemon(cluster: LocalCluster, scratch: pathlib.Path) -> None:
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller)
    await install(controller, node_archive(scratch / "a", "guard"))
    await wait_at_nodes(controller, "guard", n1=("ACTIVE", "1.0.0"))
    await daemon.app.stop()
    (kept,) = (daemon.config.data / "cache" / "modules" / "artifacts").glob("*.zip")
    blown_up(kept)
    again = await cluster.restart(daemon)
    await stopped_early(again.app.stop(), kept)


async def test_a_controller(cluster: LocalCluster, scratch: pathlib.Path, controllers_part: Any) -> None:
    source = "from corral.sdk import PlatformModule\n\nclass Module(PlatformModule):\n    pass\n"
    archive = node_archive(scratch / "a", "guard", source=source, **controllers_part)
    controller = await cluster.controller()
    await install(controller, archive)
    await controller.app.stop()
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    (kept,) = controller.data.rglob(f"{sha256}.zip")
    blown_up(kept)
    again = await cluster.controller(wait=False)
    await stopped_early(again.app.stop(), kept)
