"""A real systemd as the first process of namespaces of its own, with a bus, for as long as a test lasts.

It sees a copy-on-write view of this machine's files, its own processes, and of the control groups only
those beneath a group that was made for it: it can neither see nor manage the machine's own. What it
writes into kernel settings is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Final

import pytest

from corral.runtimes.cgroups import control_files, unified
from corral.runtimes.cgroups.control_files import mounted_hierarchies
from corral.testing.waiting import eventually

SYSTEMD: Final = "/lib/systemd/systemd"
PROJECT: Final = pathlib.Path(__file__).resolve().parents[2]
NAMESPACES: Final = ("--mount", "--uts", "--ipc")
TARGETS: Final = ("sysinit", "basic", "shutdown", "sockets", "slices", "network-online", "multi-user")

ENTER_GROUP: Final = 'echo 0 > "$1/cgroup.procs"; shift; exec unshare --cgroup sh -c "$@"'
BOOT: Final = f"""
set -eu
root=$1 units=$2; shift 2
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/all"
mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" overlay "$root/all"
cd "$root/all"
for place in dev dev/shm run tmp; do mkdir -p $place; mount -t tmpfs -o mode=755 tmpfs $place; done
chmod 1777 tmp dev/shm
for node in null zero full random urandom tty; do : > dev/$node; mount --bind /dev/$node dev/$node; done
for path in "$@"; do mkdir -p ".$path"; mount --bind "$path" ".$path"; done
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
eval "$FURNISH"
exec env -i container=corral-test PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH="$units$MORE_UNITS" \\
  chroot . {SYSTEMD} --system --unit=corral-test.target --log-target=console --show-status=no
"""
UNITS: Final = {
    "corral-test.target": "[Unit]\nDefaultDependencies=no\nRequires=dbus.socket\nWants=dbus.service\n",
    "dbus.socket": "[Unit]\nDefaultDependencies=no\n[Socket]\nListenStream=/run/dbus/system_bus_socket\n",
    "dbus.service": """\
[Unit]
DefaultDependencies=no
Requires=dbus.socket
[Service]
Type=notify
ExecStart=/usr/bin/dbus-daemon --system --address=systemd: --nofork --nopidfile --systemd-activation
""",
}


class NamespacedSystemd:
    """Commands run inside; files that both sides see lie beneath `shared`, under the same path."""

    def __init__(
        self, shared: pathlib.Path, process: subprocess.Popen[bytes], group: str, namespaces: tuple[str, ...]
    ) -> None:
        self._process = process
        self._entered = [f"-{name.removeprefix('--')[0]}" for name in namespaces]
        self._group = group
        self.shared = shared
        self.units = shared / "units"

    @property
    def log(self) -> str:
        return (self.shared / "systemd.log").read_text(errors="replace")

    def first_process(self) -> int:
        """The manager's pid, as seen from here."""
        children = pathlib.Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(children.read_text().split()[0])

    def inside(self, *command: str) -> list[str]:
        """The command line that runs this one beneath it."""
        return ["nsenter", "-t", str(self.first_process()), *self._entered, "-p", "-C", "-r", *command]

    def run(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        inside = self.inside(*command)
        return subprocess.run(inside, capture_output=True, text=True, timeout=timeout, cwd="/")

    async def checked(self, *command: str, timeout: float = 60) -> str:
        """Its output; fails with all that was said when it does."""
        done = await asyncio.to_thread(self.run, *command, timeout=timeout)
        assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}\n{self.log[-4000:]}"
        return done.stdout

    async def systemctl(self, *arguments: str) -> str:
        return await self.checked("systemctl", "--no-pager", *arguments)

    async def property_of(self, unit: str, name: str) -> str:
        return (await self.systemctl("show", "--value", "-p", name, unit)).strip()

    async def booted(self) -> bool:
        with contextlib.suppress(OSError, IndexError):
            done = await asyncio.to_thread(self.run, "systemctl", "is-active", "dbus.service")
            return done.stdout.strip() == "active"
        return False

    async def end(self) -> None:
        """Its first process takes all others of the namespace along."""
        self._process.kill()
        await asyncio.to_thread(self._process.wait)
        control_files.write_if_there(f"{self._group}/cgroup.kill", "1")
        await eventually(lambda: not unified.is_populated(self._group))
        control_files.remove_tree(self._group)


@contextlib.asynccontextmanager
async def namespaced_systemd(
    shared: pathlib.Path, *, furnish: str = "", more_units: str = "", own_network: bool = False
) -> AsyncIterator[NamespacedSystemd]:
    """Booted, and gone afterwards. Skips where the machine does not let us. `furnish` is run in its root before it boots;
    `more_units` is a directory that it reads units from, beside its own."""
    mount = _possible()
    (shared / "units").mkdir()
    (shared / "root").mkdir()
    for name in TARGETS:
        (shared / "units" / f"{name}.target").write_text("[Unit]\nDefaultDependencies=no\n")
    for name, text in UNITS.items():
        (shared / "units" / name).write_text(text)
    group = f"{mount}/corral-systemd-{os.getpid()}"
    pathlib.Path(group).mkdir()
    namespaces = (*NAMESPACES, "--net") if own_network else NAMESPACES
    settings = {"FURNISH": furnish, "MORE_UNITS": f":{more_units}" if more_units else ""}
    manager = NamespacedSystemd(shared, _boot(shared, group, namespaces, settings), group, namespaces)
    try:
        await eventually(manager.booted, deadline=40, state=lambda: manager.log[-4000:])
        yield manager
    finally:
        await manager.end()


def _boot(
    shared: pathlib.Path, group: str, namespaces: tuple[str, ...], settings: dict[str, str]
) -> subprocess.Popen[bytes]:
    """The first process enters its group before it gets a view of groups: that group is its root."""
    seen = [str(shared), str(PROJECT), sys.prefix, sys.base_prefix]
    boot = [
        "sh",
        "-c",
        ENTER_GROUP,
        "sh",
        group,
        BOOT,
        "sh",
        str(shared / "root"),
        str(shared / "units"),
        *seen,
    ]
    with (shared / "systemd.log").open("ab") as log:
        return subprocess.Popen(
            ["unshare", "--pid", "--fork", "--kill-child", *namespaces, *boot],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _possible() -> str:
    """The mount of the v2 hierarchy."""
    mount = mounted_hierarchies().unified
    if os.geteuid() != 0:
        pytest.skip("only root can give systemd namespaces of its own")
    if mount is None:
        pytest.skip("no cgroup v2 hierarchy is mounted here")
    for program in (SYSTEMD, "dbus-daemon", "unshare", "nsenter", "systemctl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed; see tools/install_test_programs.sh")
    tried = subprocess.run(
        ["unshare", "--pid", "--fork", "--cgroup", *NAMESPACES, "mount", "--make-rprivate", "/"],
        capture_output=True,
        text=True,
    )
    if tried.returncode != 0 or not os.access(mount, os.W_OK):
        pytest.skip(f"namespaces and control groups cannot be made here: {tried.stderr.strip()}")
    return mount
