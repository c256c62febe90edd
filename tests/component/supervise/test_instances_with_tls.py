"""Instances and an API with TLS: whom they are told to trust, and that nobody else can change that."""

from __future__ import annotations

import json
import os
import pathlib
import stat
from collections.abc import Sequence
from typing import Any

import pytest
from certificate_files import PairFiles

from corral.pki.keys import new_key
from corral.testing import workloads
from corral.testing.api_calls import create_group, wait_for_instance, wait_for_instances, wait_for_line
from corral.testing.cluster import LocalCluster, LocalController

PYTHON = "/usr/bin/python3"
"""One that every user can run."""

as_another_user = pytest.mark.skipif(
    os.geteuid() != 0 or not pathlib.Path(PYTHON).exists(),
    reason="only root can become another user, and only with a Python for all users",
)

# Looks like an attacker would at what it was told to trust; prints what it could do.
SWAP = """
import json, os, pathlib, stat, sys
path = pathlib.Path(os.environ["CORRAL_API_CA_FILE"])
def tried(act):
    try:
        act()
    except PermissionError:
        return "refused"
    except OSError as error:
        return str(error)
    return "done"
mine = pathlib.Path("mine.pem")
mine.write_text("evil")
print(json.dumps({
    "read": path.read_text().count("BEGIN CERTIFICATE"),
    "write": tried(lambda: path.open("a")),
    "replace": tried(lambda: mine.rename(path)),
    "remove": tried(path.unlink),
    "link": tried(lambda: path.with_name("other.pem").symlink_to(mine)),
    "list": tried(lambda: os.listdir(path.parent)),
    "uid": os.getuid(),
}), flush=True)
sys.stdin.read()
"""


def as_any_user(command: Sequence[str]) -> list[str]:
    return [PYTHON, *command[1:]]


def say_players(directory: pathlib.Path, id: str, count: int) -> None:
    (directory / id).write_text(str(count))


async def players_of(api: LocalController, id: str, count: int) -> dict[str, Any]:
    return await wait_for_instance(api, id, lambda item: item["players"] == count)


@as_another_user
async def test_an_instance_with_a_user_of_its_own_reports_over_tls_that_it_can_verify(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    players = scratch / "players"
    players.mkdir(mode=0o755)
    for path in (scratch, players):
        path.chmod(0o755)
    api = await cluster.controller(http__tls__mode="cluster")
    assert api.url.startswith("https://")
    daemon = await cluster.daemon("n1", api, instances__development=False)
    command = as_any_user(workloads.reporting_players(str(players)))
    await create_group(api, "arena", command, restart={"attempts": 5, "delay_ms": 0})
    (item,) = await wait_for_instances(api, "arena", 1)
    say_players(players, item["id"], 3)
    first = await players_of(api, item["id"], 3)

    # Adopted by a new daemon, it goes on with what it was given. A daemon of an earlier version had closed the file.
    (scratch / "n1" / "authority.pem").chmod(0o600)
    await cluster.restart(daemon)
    say_players(players, item["id"], 4)
    adopted = await players_of(api, item["id"], 4)
    assert adopted["pid"] == first["pid"]
    assert stat.S_IMODE((scratch / "n1" / "authority.pem").stat().st_mode) == 0o644

    # So does the run that its node starts in its place.
    os.kill(adopted["pid"], 9)
    restarted = await wait_for_instance(
        api, item["id"], lambda found: found["state"] == "RUNNING" and found["pid"] != adopted["pid"]
    )
    say_players(players, item["id"], 5)
    await players_of(api, item["id"], 5)
    assert pathlib.Path(f"/proc/{restarted['pid']}").stat().st_uid not in (0, os.geteuid())


@as_another_user
async def test_no_workload_can_change_what_others_trust(cluster: LocalCluster, scratch: pathlib.Path) -> None:
    scratch.chmod(0o711)
    api = await cluster.controller(http__tls__mode="cluster")
    await cluster.daemon("n1", api, instances__development=False)
    await create_group(api, "attacker", [PYTHON, "-c", SWAP])
    (item,) = await wait_for_instances(api, "attacker", 1)
    found = json.loads(await wait_for_line(api, item["id"], "read"))
    assert found.pop("uid") != 0
    assert found.pop("read") == 1
    assert set(found.values()) == {"refused"}, found
    assert (scratch / "n1" / "authority.pem").read_bytes() == (api.data / "ca/authority.pem").read_bytes()


@pytest.mark.parametrize("mode", ["off", "files"])
async def test_where_the_api_has_no_certificate_of_the_cluster_none_is_named(
    cluster: LocalCluster, scratch: pathlib.Path, mode: str
) -> None:
    files = PairFiles(scratch)
    files.write(new_key(), 1)
    own = {"http__tls__certificate": str(files.certificate), "http__tls__key": str(files.key)}
    api = await cluster.controller(
        http__listen="localhost:0", http__tls__mode=mode, **(own if mode == "files" else {})
    )
    if mode == "files":
        api.app.config.authority_path.write_bytes(files.certificate.read_bytes())  # `call` looks there
    await cluster.daemon("n1", api)
    await create_group(api, "plain", workloads.describing_itself())
    (item,) = await wait_for_instances(api, "plain", 1)
    environ = json.loads(await wait_for_line(api, item["id"], "environ"))["environ"]
    assert environ["CORRAL_API_URL"] == api.url
    assert api.url.startswith("https:" if mode == "files" else "http:")
    assert "CORRAL_API_CA_FILE" not in environ
