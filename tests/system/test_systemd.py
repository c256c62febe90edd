"""Under a real systemd: what it restarts, and what it leaves alone."""

from __future__ import annotations

import asyncio
import json
import pathlib
import sys

import pytest
from estate import Estate
from guide_machine import FURNISH, SHELL, Shell, login
from guide_reader import GuideReader
from namespaced_systemd import PROJECT, NamespacedSystemd, namespaced_systemd

from corral.testing.waiting import eventually

pytestmark = pytest.mark.system

UNIT = "corral-daemon.service"
COUNT = 3
OTHERWISE = """\
[Service]
ExecStart=
ExecStart={command}
StandardOutput=append:{log}
StandardError=append:{log}
Environment={environment}
"""
WRITER = ["/bin/sh", "-c", "n=0; while :; do echo line $n; n=$((n+1)); sleep 0.05; done"]


BENEATH_ITSELF = """
from corral.errors import CorralError
from corral.runtimes.cgroups.selection import open_cgroups
print(open_cgroups("auto", "").name)
try:
    open_cgroups("v2", "system.slice/corral-odd.service/runs")
except CorralError as error:
    print(error)
"""


@pytest.fixture
async def systemd(scratch):
    scratch.chmod(0o711)  # instances run as another user beneath it
    async with namespaced_systemd(scratch) as manager:
        yield manager


class Service:
    """Our unit as it ships; only what it executes is another program."""

    def __init__(self, systemd: NamespacedSystemd, *command: str, **environment: str) -> None:
        self.systemd = systemd
        self.log = systemd.shared / "service.log"
        for source in (PROJECT / "packaging" / "systemd").glob("*.s*e"):
            (systemd.units / source.name).write_text(source.read_text())
        drop_ins = systemd.units / f"{UNIT}.d"
        drop_ins.mkdir()
        settings = " ".join(f"{name}={value}" for name, value in environment.items())
        text = OTHERWISE.format(command=" ".join(command), log=self.log, environment=settings)
        (drop_ins / "test.conf").write_text(text)

    async def main_pid(self) -> int:
        return int(await self.systemd.property_of(UNIT, "MainPID"))

    async def members(self) -> list[int]:
        """Everything in the unit's own group, and beneath."""
        group = await self.systemd.property_of(UNIT, "ControlGroup")
        found = await self.systemd.checked(
            "sh", "-c", f"cat $(find /sys/fs/cgroup{group} -name cgroup.procs)"
        )
        return [int(word) for word in found.split()]

    async def started_at(self, pid: int) -> str:
        """The start time of a process: with its pid it is the process."""
        return (await self.systemd.checked("cat", f"/proc/{pid}/stat")).rpartition(")")[2].split()[19]

    async def scopes(self) -> list[str]:
        lines = await self.systemd.systemctl("list-units", "--plain", "--no-legend", "corral-*.scope")
        return [line.split()[0] for line in lines.splitlines()]


class StandIn(Service):
    """The unit executes the process runtime with nothing above it."""

    def __init__(self, systemd: NamespacedSystemd) -> None:
        self.data = systemd.shared / "data"
        self.data.mkdir(mode=0o711)
        script = pathlib.Path(__file__).with_name("stand_in_daemon.py")
        super().__init__(systemd, sys.executable, str(script), str(self.data), str(COUNT), "nobody")

    async def said(self, *, after: int = 0) -> dict:
        """What the running one has, once it is there, and is not the one before."""
        file = self.data / "said.json"

        async def told():
            said = json.loads(file.read_text()) if file.exists() else {"pid": after}
            return said if said["pid"] not in (0, after) and said["pid"] == await self.main_pid() else None

        return await eventually(told, state=lambda: self.log.read_text()[-4000:] or self.systemd.log[-4000:])


class Daemon(Service):
    """The unit executes the daemon of this tree, which runs instances as `nobody`."""

    def __init__(self, systemd: NamespacedSystemd, estate: Estate, join: str) -> None:
        self._estate = estate
        super().__init__(
            systemd, sys.executable, "-m", "corral.cli", "daemon", "--data", str(systemd.shared / "n1"),
            "--node-id", "n1", "--controller", estate.grpc,
            CORRAL_SECRET_JOIN=join, CORRAL_INSTANCES_RUN_AS="nobody", CORRAL_LINK_RECONNECT_MAX_SECONDS="0.5",
        )  # fmt: skip

    async def instances(self) -> dict[str, dict]:
        page = await self._estate.call("GET", "/api/v1/instances")
        return {item["id"]: item for item in page["items"]}

    async def ready(self, times: int) -> None:
        """The daemon said so as often as it was started: the newest has adopted what it found."""
        await eventually(lambda: self.log.read_text().count("ready: ") == times, state=self._told)

    async def running(self, count: int) -> dict[str, dict]:
        seen: dict[str, dict] = {}

        async def there():
            seen.clear()
            seen.update(await self.instances())
            return len(seen) == count and all(item["state"] == "RUNNING" for item in seen.values())

        await eventually(there, deadline=40, state=lambda: (seen, self._told()))
        return seen

    def _told(self) -> str:
        return self.log.read_text()[-4000:]


@pytest.fixture
async def estate(systemd, processes, scratch):
    """A controller outside: the namespaces share the loopback. It goes before the daemon does."""
    return Estate(processes, scratch)


@pytest.mark.trap("T45")
async def test_a_restart_of_the_daemons_unit_leaves_its_instances_running(systemd, estate):
    await estate.controller()
    daemon = Daemon(systemd, estate, await estate.join_token("n1"))
    await systemd.systemctl("start", UNIT)
    await daemon.ready(1)
    body = {"name": "lobby", "command": WRITER, "min": COUNT, "restart": {"attempts": 0}}
    await estate.call("POST", "/api/v1/groups", body)
    first = await daemon.running(COUNT)
    pids = {id: item["pid"] for id, item in first.items()}
    started = [await daemon.started_at(pid) for pid in pids.values()]
    assert len(await daemon.scopes()) == COUNT + 1

    for round in (1, 2):
        before = await daemon.main_pid()
        await systemd.systemctl("restart", UNIT)
        await daemon.ready(1 + round)
        await estate.wait_for_node("n1", "ONLINE")
        again = await daemon.running(COUNT)
        assert await daemon.main_pid() not in (0, before)
        assert {id: item["pid"] for id, item in again.items()} == pids
        assert [item["incarnation"] for item in again.values()] == [i["incarnation"] for i in first.values()]
        assert [await daemon.started_at(pid) for pid in pids.values()] == started
        assert await daemon.members() == [await daemon.main_pid()]

    stopped = sorted(pids)[0]
    await estate.call("POST", f"/api/v1/instances/{stopped}/kill?wait=stopped&timeout=30", {})
    await eventually(lambda: _no_scope(daemon, stopped))


async def test_a_daemon_that_is_shut_down_stays_down_until_its_unit_is_started(systemd, estate):
    """It ends with 0; one that a signal kills, and be it SIGHUP, is started again."""
    await estate.controller()
    daemon = Daemon(systemd, estate, await estate.join_token("n1"))
    await systemd.systemctl("start", UNIT)
    await daemon.ready(1)
    await estate.call("POST", "/api/v1/groups", {"name": "lobby", "command": WRITER, "min": 1})
    await daemon.running(1)
    await systemd.systemctl("kill", "--signal=SIGHUP", UNIT)
    await daemon.ready(2)
    await estate.wait_for_node("n1", "ONLINE")
    await daemon.running(1)
    await estate.call("POST", "/api/v1/nodes/n1/shutdown?confirm=n1", {"force": True})
    await eventually(lambda: _has(daemon, ActiveState="inactive", Result="success", ExecMainStatus="0"))
    assert await daemon.scopes() == [], "nothing of it is left"
    await systemd.systemctl("start", UNIT)
    await daemon.ready(3)
    await estate.wait_for_node("n1", "ONLINE")
    await estate.call("POST", "/api/v1/nodes/n1/undrain", {})
    await eventually(lambda: _runs(daemon))
    assert await systemd.property_of(UNIT, "ActiveState") == "active"


async def _has(service: Service, **properties: str) -> bool:
    return all([await service.systemd.property_of(UNIT, name) == value for name, value in properties.items()])


async def _runs(daemon: Daemon) -> bool:
    return [each["state"] for each in (await daemon.instances()).values()].count("RUNNING") == 1


async def _no_scope(service: Service, instance: str) -> bool:
    return not any(f"-{instance}." in scope for scope in await service.scopes())


@pytest.mark.timeout(300)
async def test_runs_in_scopes_of_systemd_keep_every_promise_of_control_groups(systemd):
    """The suite of `tests/component/cgroups`, run where systemd is the first process."""
    output = await systemd.checked(
        "env", f"--chdir={PROJECT}", sys.executable, "-m", "pytest", "-q", "-n0", "-k", "systemd",
        "tests/component/cgroups/test_cgroups.py", timeout=250,
    )  # fmt: skip
    assert " passed" in output
    assert " failed" not in output


@pytest.mark.trap("T45")
async def test_a_restart_of_the_unit_touches_no_run_and_not_the_keeper(systemd):
    service = StandIn(systemd)
    await systemd.systemctl("start", UNIT)
    first = await service.said()
    assert first["cgroups"] == "systemd"
    assert {"cgroup-kill", "cgroup-freeze", "run-as"} <= set(first["capabilities"])
    pids = [first["keeper"], *first["runs"].values()]
    started = [await service.started_at(pid) for pid in pids]
    assert len(await service.scopes()) == COUNT + 1

    mains = {await service.main_pid()}
    for verb in ("restart", "restart", "kill --signal=SIGKILL"):
        before = await service.main_pid()
        await systemd.systemctl(*verb.split(), UNIT)
        again = await service.said(after=before)
        mains.add(again["pid"])
        assert (again["keeper"], again["runs"]) == (first["keeper"], first["runs"])
        assert [await service.started_at(pid) for pid in pids] == started
        assert await service.members() == [again["pid"]]
    assert len(mains) == 4


async def test_a_stopped_unit_leaves_its_runs_and_the_scope_of_a_run_goes_with_its_last_process(systemd):
    service = StandIn(systemd)
    await systemd.systemctl("start", UNIT)
    said = await service.said()
    await systemd.systemctl("stop", UNIT)
    for pid in said["runs"].values():
        await service.started_at(pid)
    await systemd.checked("kill", "-KILL", str(said["runs"]["lobby-1"]))
    await eventually(lambda: _no_scope(service, "lobby-1"))
    assert len(await service.scopes()) == COUNT


async def test_groups_beneath_the_daemons_own_unit_are_refused(systemd):
    """A unit with live groups beneath it cannot be started again."""
    said = await systemd.checked(
        "systemd-run", "--wait", "--pipe", "--unit=corral-odd", sys.executable, "-c", BENEATH_ITSELF
    )
    name, refusal = said.splitlines()
    assert name == "systemd"
    assert "lies beneath the daemon's own unit" in refusal


async def test_without_its_bus_systemd_is_an_error_that_says_so(systemd):
    await systemd.systemctl("stop", "dbus.service", "dbus.socket")
    code = "from corral.runtimes.cgroups.selection import open_cgroups; open_cgroups('systemd', '')"
    done = systemd.run(sys.executable, "-c", code)
    assert "systemd cannot be reached over the system bus" in done.stderr


GUIDE = PROJECT / "docs" / "guides" / "systemd.md"
ROLES = ("corral-controller.service", "corral-daemon.service")
OWN_UNITS = "/etc/systemd/system"
COPY_ON_WRITE = f"""
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 tmpfs .{OWN_UNITS}
mkdir "$root/guide" "$root/guide-work"
mount -t overlay -o "lowerdir={PROJECT},upperdir=$root/guide,workdir=$root/guide-work" overlay ".{PROJECT}"
"""


@pytest.mark.trap("T96")
async def test_the_guide_for_systemd_makes_services_that_run_and_come_back_after_a_boot(scratch):
    """The page, typed as it is printed, by a systemd that reads the directory that the page installs to."""
    scratch.chmod(0o711)
    furnish = FURNISH + COPY_ON_WRITE
    async with namespaced_systemd(
        scratch, furnish=furnish, more_units=OWN_UNITS, own_network=True
    ) as systemd:
        shell = Shell(systemd.inside(*login(), *SHELL))
        try:
            await asyncio.to_thread(GuideReader(shell, GUIDE).read)
        except AssertionError as error:
            told = systemd.run("systemctl", "--no-pager", "status", *ROLES).stdout
            raise AssertionError(f"{error}\n{told}\n{systemd.log[-4000:]}") from None
        finally:
            shell.join()
        await systemd.checked("systemd-analyze", "verify", *(f"{OWN_UNITS}/{unit}" for unit in ROLES))
        for unit in ROLES:
            assert (await systemd.systemctl("is-enabled", unit)).strip() == "enabled"
            assert await systemd.property_of(unit, "ActiveState") == "active"
            assert await systemd.property_of(unit, "NRestarts") == "0"
            await _refused_settings_end_a_unit_for_good(systemd, unit)


async def _refused_settings_end_a_unit_for_good(systemd: NamespacedSystemd, unit: str) -> None:
    settings = f"/etc/corral/{unit.removeprefix('corral-').removesuffix('.service')}.yaml"
    await systemd.checked("sh", "-c", f"echo 'nonsense: 1' >> {settings}")
    await systemd.systemctl("restart", unit)

    async def failed() -> bool:
        return await systemd.property_of(unit, "ActiveState") == "failed"

    await eventually(failed, deadline=30, state=lambda: systemd.log[-4000:])
    assert await systemd.property_of(unit, "ExecMainStatus") == "78"
    assert await systemd.property_of(unit, "NRestarts") == "0"
