"""`modules.run_as` where both hosts are root: what a module's process is, what it can reach, and what its host does
for it.

Modules import the standard library of the interpreter that runs their host. One in a directory of root's own is
of no use to another user, which both hosts say; then another one of the same version is looked for.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import types
from typing import Any

import pytest

import corral
from corral.errors import Rejected
from corral.modules.process.run_user import check_readable, look_up
from corral.modules.process.sdk_directory import sources
from corral.testing import workloads
from corral.testing.api_calls import create_group, wait_for_instances
from corral.testing.archives import zipped
from corral.testing.module_house import ModuleHouse
from corral.testing.processes import ProcessCluster
from corral.testing.waiting import eventually
from tests.system.estate import Estate
from tests.system.site_of_servers import DAEMON, Site

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(240),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may choose the user"),
]

NOBODY = 65534
RUN_AS = {"CORRAL_MODULES_RUN_AS": str(NOBODY)}
SOURCE = """
import json, os, pathlib
import colorsys, wave  # of the standard library, and nobody has loaded them before

from corral.sdk import DaemonModule, PlatformModule

def attempt(action):
    try:
        action()
    except OSError as error:
        return type(error).__name__
    return "done"

def facts(data, secret):
    here = pathlib.Path(__file__)
    return {
        "user": os.getresuid(), "group": os.getresgid(), "groups": os.getgroups(),
        "secret": attempt(pathlib.Path(data, secret).read_bytes),
        "list": attempt(lambda: os.listdir(data)),
        "archive": attempt(lambda: here.parents[2].joinpath(here.parent.name + ".zip").read_bytes()),
        "own": attempt(here.read_bytes),
        "change": attempt(lambda: here.write_bytes(b"")),
        "root": attempt(lambda: os.setuid(0)),
    }

class Here(PlatformModule):
    def register_routes(self, routes):
        routes.get("/facts", lambda request: facts(CONTROLLER, "admin.token"))

class Module(DaemonModule):
    async def on_load(self, ctx):
        self.ctx = ctx

    async def on_instance_starting(self, spec):
        spec.env["WHO"] = str(os.getuid())
        await self.ctx.files.write(spec.instance_id, "facts", json.dumps(facts(NODE, "identity.json")).encode())

    async def on_instance_started(self, handle):
        await self.ctx.processes.spawn(handle.instance_id, "side", ["sleep", "3600"])
        (side,) = await self.ctx.processes.list(handle.instance_id)
        await self.ctx.files.write(handle.instance_id, "side", str(side.pid).encode())
"""


def archive(directory: pathlib.Path, estate: Estate) -> pathlib.Path:
    places = {"CONTROLLER": str(estate.data), "NODE": str(directory / "n1")}
    constants = "".join(f"{name} = {place!r}\n" for name, place in places.items())
    backend = {
        "controller": {"entrypoint": "who_module:Here"},
        "daemon": {"entrypoint": "who_module:Module", "hookDeadlineMs": 10_000},
    }
    manifest = {
        "manifestVersion": 1,
        "id": "who",
        "version": "1.0.0",
        "api": ">=1.0",
        "hosts": ["controller", "daemon"],
        "backend": backend,
    }
    path = directory / "who.cmod"
    content = {"module.yaml": json.dumps(manifest).encode(), "who_module.py": (constants + SOURCE).encode()}
    path.write_bytes(zipped(content))
    return path


def is_open(*paths: pathlib.Path) -> bool:
    """Whether another user can import from there."""
    try:
        check_readable(look_up(str(NOBODY)), paths)
    except Rejected:
        return False
    return True


def readable_python() -> str | None:
    """An interpreter of this version that another user can read, for our packages too."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/python{version}", f"/usr/local/bin/python{version}"):
        if pathlib.Path(python).exists():
            asked = [python, "-I", "-c", "import os; print(os.__file__)"]
            library = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
            if is_open(pathlib.Path(library).parent, *sources()):
                return python
    return None


@pytest.fixture
def python() -> str:
    found = readable_python()
    if found is None:
        pytest.skip("no interpreter of this version, with our packages, that another user can read")
    return found


@pytest.fixture
async def estate(scratch, python):
    """Both hosts as root, under an interpreter that others can read."""
    ours = os.pathsep.join([str(pathlib.Path(corral.__file__).parents[1]), sysconfig.get_paths()["platlib"]])
    async with ProcessCluster(scratch, environment={"PYTHONPATH": ours, **RUN_AS}) as processes:
        yield Estate(processes, scratch, controller_python=python, daemon_python=python)


def check_rights(found: dict[str, Any]) -> None:
    assert found == {
        "user": [NOBODY] * 3,
        "group": [NOBODY] * 3,
        "groups": [NOBODY],
        "secret": "PermissionError",
        "list": "PermissionError",
        "archive": "PermissionError",
        "own": "done",
        "change": "PermissionError",
        "root": "PermissionError",
    }


async def install(estate: Estate, path: pathlib.Path) -> None:
    """As the command line does, which would not like what becomes of it."""
    api: Any = types.SimpleNamespace(url=f"http://{estate.http}", admin_token=estate.token)
    await ModuleHouse(api, path.parent, path.parent).send_archive(path)


async def phases(site: Site, phase: str) -> list[str]:
    """Until it is in this phase on both hosts; what they say about it."""
    seen: list[dict[str, Any]] = []

    async def there() -> bool:
        shown: Any = await site.call("GET", "/api/v1/modules/who")
        seen[:] = [shown, *shown["nodes"]]
        return [each["phase"] for each in seen] == [phase, phase]

    await eventually(there, state=lambda: seen)
    here, node = seen
    return [(here["failure"] or {}).get("message", ""), node["error"]]


def follow_hint(told: str, scratch: pathlib.Path) -> None:
    """Do what the host says, in the test's own directory: its data were closed."""
    found = re.search(r"`(chmod o\+x [^`&]+)`", told)
    assert found, told
    command = found[1].split()
    assert all(pathlib.Path(path).is_relative_to(scratch) for path in command[2:]), told
    subprocess.run(command, check=True)


def user_of(pid: int) -> int:
    return pathlib.Path(f"/proc/{pid}").stat().st_uid


async def test_modules_of_both_hosts_run_as_that_user_and_their_hosts_act_for_them(estate, scratch, python):
    await estate.controller()
    await estate.daemon("n1", **DAEMON)
    site = Site(estate)
    await install(estate, archive(scratch, estate))
    for told in await phases(site, "FAILED"):
        follow_hint(told, scratch)
    await site.call("POST", "/api/v1/modules/who/recover")
    await phases(site, "ACTIVE")
    check_rights(await site.call("GET", "/api/v1/modules/who/facts"))
    await create_group(site, "lobby", workloads.reading_commands())
    (instance,) = await wait_for_instances(site, "lobby", 1)
    directory = pathlib.Path(f"/proc/{instance['pid']}/cwd").readlink()
    check_rights(json.loads((directory / "facts").read_text()))
    assert b"WHO=65534" in pathlib.Path(f"/proc/{instance['pid']}/environ").read_bytes().split(b"\0")
    side = int(await eventually(lambda: (directory / "side").exists() and (directory / "side").read_text()))
    # The instance's user, not the module's: here the one that development has, the daemon's own.
    assert user_of(side) == user_of(instance["pid"]) == os.geteuid()
    assert (directory / "facts").stat().st_uid == os.geteuid()
    assert readable(estate.data, python=python) == []
    # For the workloads of all users, and no secret.
    assert readable(scratch / "n1", python=python) == [str(scratch / "n1/authority.pem")]


def readable(data: pathlib.Path, *, python: str) -> list[str]:
    """The files of a host, what it shows to modules left out, that the other user can open by their names."""
    shown = {"unpacked", "view"}
    files = [path for path in data.rglob("*") if path.is_file() and not shown & set(path.parts)]
    assert files
    reading = "import sys\nfor name in sys.stdin.read().split():\n try: open(name); print(name)\n except PermissionError: pass"
    done = subprocess.run(
        [python, "-I", "-c", reading], input="\n".join(map(str, files)), capture_output=True, text=True,
        check=True, user=NOBODY, group=NOBODY, extra_groups=[],
    )  # fmt: skip
    return done.stdout.split()
