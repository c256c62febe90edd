"""The worked example of daemon modules: flags for the JVMs of some groups, on every node, from one install."""

from __future__ import annotations

import json
import pathlib

import pytest

from corral.testing.api_calls import create_group, wait_for_instances
from corral.testing.ports import free_range
from corral.testing.waiting import eventually
from tests.system.site_of_servers import DAEMON, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(240)]

MODULES = pathlib.Path(__file__).parents[2] / "modules"
LOBBY = "-Xlog:gc*:file=lobby-gc.log"
BEDWARS = "-XX:+HeapDumpOnOutOfMemoryError"


def arguments_of(pid: int) -> list[str]:
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")


async def group(site: Site, name: str, **more: object) -> None:
    low, high = free_range(4)
    await create_group(
        site,
        name,
        [],
        templates=["games/base"],
        substitute=["server.properties"],
        artifact={"platform": "tiny", "version": "1.0"},
        jvm={"args": ["-XX:+UseSerialGC"], "heap_mb": 24},
        memory_mb=64,
        ports={"primary": {"range": [low, high], "protocol": "tcp"}},
        probes=[{"kind": "log", "pattern": "^Done! listening"}],
        **more,
    )


async def plan_of(site: Site, instance: str) -> object:
    return json.loads(await site.corral("instance", "plan", instance, "-o", "json"))


async def test_flags_reach_the_jvms_of_their_groups_on_every_node_and_go_with_the_module(
    site: Site, server_jar: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for node in ("n1", "n2"):
        await site.estate.daemon(node, **DAEMON)
    base = tmp_path / "base"
    base.mkdir()
    (base / "server.properties").write_text("server-port=%PORT%\n")
    await site.corral("template", "upload", "games/base", str(base))
    await site.corral("catalog", "add", "tiny", "1.0", "--file", str(server_jar))
    await site.corral("module", "build", str(MODULES / "jvm-flags"), "--out", str(tmp_path / "flags.cmod"))
    installed = await site.corral("module", "install", str(tmp_path / "flags.cmod"))
    assert "ACTIVE" in installed
    assert all(f"{node}:" in installed for node in ("n1", "n2"))
    await site.call("PUT", "/api/v1/modules/jvm-flags/flags/lobby", {"flags": [LOBBY]})
    await site.call("PUT", "/api/v1/modules/jvm-flags/flags/bedwars", {"flags": [BEDWARS]})

    await group(site, "lobby", nodes=["n1"])
    await group(site, "bedwars", nodes=["n2"])
    (lobby,) = await wait_for_instances(site, "lobby", 1)
    (bedwars,) = await wait_for_instances(site, "bedwars", 1)
    assert arguments_of(lobby["pid"]).count(LOBBY) == 1
    assert BEDWARS not in arguments_of(lobby["pid"])
    assert arguments_of(bedwars["pid"]).count(BEDWARS) == 1
    assert LOBBY not in arguments_of(bedwars["pid"])
    shown = await site.corral("instance", "info", lobby["id"])
    assert "jvm-flags" in shown
    assert LOBBY in shown
    assert LOBBY not in json.dumps(await plan_of(site, lobby["id"]))

    # a node that joins later has them from its first start on, which waits for it already
    await site.call("PUT", "/api/v1/modules/jvm-flags/flags/late", {"flags": [LOBBY, BEDWARS]})
    await group(site, "late", nodes=["n3"])
    await site.estate.daemon("n3", **DAEMON)
    (late,) = await wait_for_instances(site, "late", 1)
    assert {LOBBY, BEDWARS} <= set(arguments_of(late["pid"]))
    info = await site.corral("module", "info", "jvm-flags")
    assert {"n1", "n2", "n3"} <= set(info.split())

    await site.corral("module", "uninstall", "jvm-flags", "--yes")

    async def gone() -> bool:
        left = [await site.call("GET", f"/api/v1/nodes/{node}/modules") for node in ("n1", "n2", "n3")]
        return not any(page["items"] for page in left)

    await eventually(gone)
    await site.corral("instance", "restart", lobby["id"])

    async def clean() -> bool:
        now = await site.call("GET", f"/api/v1/instances/{lobby['id']}")
        return now["state"] == "RUNNING" and now["pid"] != lobby["pid"]

    await eventually(clean, deadline=40)
    again = await site.call("GET", f"/api/v1/instances/{lobby['id']}")
    assert LOBBY not in arguments_of(again["pid"])
    assert again["modules"]["changes"] == []
