"""Real servers from templates: one in Java that the test compiles, and a game that Debian ships.

Each goes the whole way through the command line and the API: composed, started, ready by its probe,
commanded, adopted by a new daemon, stopped.
"""

from __future__ import annotations

import contextlib
import pathlib
import socket
import sys
import tarfile

import pytest

from corral.testing.api_calls import (
    create_group,
    send_command,
    wait_for_instance,
    wait_for_instances,
    wait_for_line,
)
from corral.testing.ports import free_range
from corral.testing.waiting import eventually
from tests.system.site_of_servers import DAEMON, Site

pytestmark = [pytest.mark.system, pytest.mark.timeout(180)]


def tree(place: pathlib.Path, files: dict[str, str]) -> str:
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(place)


async def answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
        return True
    return False


async def test_a_java_server_runs_with_its_memory_arguments_port_and_patched_properties(
    site: Site, server_jar: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    await site.estate.daemon("n1", **DAEMON)
    properties = "# kept\nmotd=a template\nserver-port=%PORT%\nonline-mode=true\n"
    base = tree(tmp_path / "base", {"server.properties": properties, "world/level.dat": "seed"})
    assert "version 1" in await site.corral("template", "upload", "games/base", base)
    added = await site.corral("catalog", "add", "tiny", "1.0", "--file", str(server_jar))
    assert "server.jar" in added
    low, high = free_range(2)
    await create_group(
        site,
        "java",
        [],
        templates=["games/base"],
        substitute=["server.properties"],
        patches=[{"file": "server.properties", "path": "motd", "value": "hello from %INSTANCE_ID%"}],
        artifact={"platform": "tiny", "version": "1.0"},
        jvm={"args": ["-Dflavour=%GROUP%", "-XX:+UseSerialGC"], "heap_mb": 48},
        args=["--nogui"],
        memory_mb=128,
        ports={"primary": {"range": [low, high], "protocol": "tcp"}},
        probes=[{"kind": "log", "pattern": "^Done! listening"}, {"kind": "tcp"}],
    )
    (instance,) = await wait_for_instances(site, "java", 1)
    id, port = instance["id"], instance["port"]

    assert await answers(port)
    for line in ("motd hello from java-1", "flavour java", "arguments --nogui", f"listening on {port}"):
        await wait_for_line(site, id, line)
    heap = int((await wait_for_line(site, id, "heap ")).split()[1])
    assert 40 <= heap <= 48
    command = pathlib.Path(f"/proc/{instance['pid']}/cmdline").read_bytes().decode().split("\0")
    assert {"-Xmx48M", "-Xms48M", "-XX:+UseSerialGC", "-jar"} <= set(command)
    directory = pathlib.Path(f"/proc/{instance['pid']}/cwd").resolve()
    assert (directory / "server.properties").read_text().startswith("# kept\n")
    assert (directory / "world" / "level.dat").read_text() == "seed"

    await send_command(site, id, "hello")
    await wait_for_line(site, id, "you said hello")
    stopped = await site.corral("instance", "stop", id, "--wait")
    assert "STOPPED" in stopped
    await wait_for_instance(site, id, lambda item: item["exit"]["code"] == 0)


async def test_a_game_of_debian_is_ready_by_its_probe_commanded_adopted_and_stopped(
    site: Site, tmp_path: pathlib.Path
) -> None:
    daemon = await site.estate.daemon("n1", **DAEMON)
    config = "[network]\nserver_name = %INSTANCE_ID%\nserver_advertise = false\n"
    place = tree(tmp_path / "openttd", {"openttd.cfg": config})
    await site.corral("template", "upload", "openttd", place)
    low, high = free_range(2)
    for runtime in ("process", "tmux", "screen"):
        group = f"trains-{runtime}"
        await create_group(
            site,
            group,
            ["/usr/games/openttd", "-D", "127.0.0.1:%PORT%", "-c", "openttd.cfg", "-x"],
            runtime=runtime,
            templates=["openttd"],
            substitute=["*.cfg"],
            env={"HOME": "/nonexistent"},
            ports={"primary": {"range": [low, high]}},
            probes=[{"kind": "tcp"}],
            stop=[{"command": "exit", "wait_seconds": 20}],
            min=0,  # nobody takes its place: a game that has just begun does not hear `exit`
        )
        await site.corral("instance", "start", group)
        (instance,) = await wait_for_instances(site, group, 1)
        id, pid = instance["id"], instance["pid"]
        assert await answers(instance["port"])

        await daemon.kill()
        daemon = await site.estate.daemon("n1", **DAEMON)
        await site.estate.wait_for_node("n1", "ONLINE")
        await send_command(site, id, "server_info")
        await wait_for_line(site, id, "Current/maximum clients")
        adopted = await wait_for_instance(site, id, lambda item: item["state"] == "RUNNING")
        assert adopted["pid"] == pid

        await site.corral("instance", "stop", id, "--wait")
        ended = await wait_for_instance(site, id, lambda item: item["state"] == "STOPPED")
        assert (ended["exit"]["code"], ended["exit"]["crashed"]) == (0, False)
        await site.corral("group", "delete", group, "--yes", "--cascade", "--wait")


async def test_a_world_is_saved_back_as_a_template_version(site: Site, tmp_path: pathlib.Path) -> None:
    await site.estate.daemon("n1", **DAEMON)
    await site.corral("template", "upload", "world", tree(tmp_path / "world", {"world/a.txt": "a"}))
    writer = "import pathlib,time; pathlib.Path('world/b.txt').write_text('built'); time.sleep(600)"
    await create_group(site, "builders", [sys.executable, "-c", writer], templates=["world"])
    (instance,) = await wait_for_instances(site, "builders", 1)
    directory = pathlib.Path(f"/proc/{instance['pid']}/cwd").resolve()
    await eventually((directory / "world" / "b.txt").exists)
    saved = await site.corral("instance", "save", instance["id"], "world", "--path", "world/**")
    assert "version 2" in saved
    target = tmp_path / "out.tar.gz"
    await site.corral("template", "export", "world", str(target))
    with tarfile.open(target) as tar:
        assert sorted(member.name for member in tar if member.isfile()) == ["world/a.txt", "world/b.txt"]
