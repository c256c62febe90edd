"""Checks of this machine as a node: what the daemon and its instances need."""

from __future__ import annotations

import datetime as dt
import os
import pathlib
import stat
import subprocess
from collections.abc import Mapping
from typing import Final

from corral.cli.doctor import machine_checks as machine
from corral.cli.doctor import node_programs as programs
from corral.cli.doctor.findings import Looks, Verdict, advice, error, ok
from corral.cli.doctor.running_role import RunningRole
from corral.daemon.node.data_directory import OURS
from corral.daemon.node.identity import load_identity
from corral.daemon.probes.listening_sockets import SocketTables
from corral.daemon.workload.environment import PATH
from corral.errors import counted, short_list
from corral.runtimes.cgroups.control_files import Hierarchies, mounted_hierarchies, read_mounts, read_text
from corral.runtimes.cgroups.move_delay import OPTION, Moves, move_delay
from corral.runtimes.cgroups.systemd import systemd_is_pid_1
from corral.system.accounts import find_account, is_id, name_of
from corral.system.config import DaemonConfig
from corral.system.daemon_config import InstancesSection

UNIT: Final = "corral-daemon"
_SHOWN: Final = 4
_GUIDE: Final = "see the guide 'Run under systemd'"
_LIMITS: Final = {"memory": "memory", "cpu": "processor", "pids": "processes"}
_RENEWAL: Final = dt.timedelta(days=9)
"""The certificate of a node has 30 days, and is renewed when 10 are left."""


WHY: Final = {
    **machine.WHY,
    "process": "Nothing is started here meanwhile. If yours is in another directory, name it with --data or --config.",
    "instance-user": "Groups with 'isolate: shared' and no 'run_as' cannot start here; all others have users of their own.",
    "path": f"Instances are other users than the daemon, and look for programs in {PATH}.",
    "data-directory": "Instances run in directories below it, as users of their own, and execute what lies there.",
    "java": "Groups with 'jvm' cannot start here; others do not need it.",
    "tmux": "Groups with 'runtime: tmux' are not placed on this node; others do not need it.",
    "screen": "Groups with 'runtime: screen' are not placed on this node; others do not need it.",
    "containers": "Who may use it is as good as root, and every instance may.",
    "control-groups": "What groups say of memory, processor and processes is not enforced then.",
    "cgroup-moves": f"A start that finds no spare supervisor waits about 20 ms for the kernel. {OPTION} (Linux 6.0 and later) "
    f"avoids that, and makes every fork and exit of this machine a little slower; {_GUIDE}.",
    "disk-space": "No instance is started then, and what runs may be unable to save.",
    "ports": "Instances get the next free port of their range; a group that needs exactly such a port cannot start.",
    "identity": "The daemon renews its certificate while it is connected. With one that has expired it has to join again.",
    "unit": "Whatever systemd ends with the daemon, at a restart or a logout, takes instances with it.",
}


def node_looks(role: RunningRole[DaemonConfig], ports: tuple[int, int]) -> Looks:
    config, pid = role
    data, instances = config.data, config.instances
    place = pathlib.Path(f"/proc/{pid}") if pid else data
    uid = machine.existing(place).stat().st_uid
    shared = not uid and not instances.development
    now, logs = dt.datetime.now(dt.UTC), (data / "logs" / "daemon.log", data / "identity.json")
    own_groups = f"/proc/{pid}/cgroup" if pid else os.devnull
    return {
        "process": lambda: machine.process(pid, "daemon", data),
        "instance-user": lambda: instance_user(instances, uid=uid),
        "path": lambda: programs.path(PATH, programs.GAMES),
        "data-directory": lambda: data_directory(data, others=shared),
        "java": lambda: programs.java(config.java.path),
        "tmux": lambda: programs.multiplexer("tmux"),
        "screen": lambda: programs.multiplexer("screen"),
        "containers": lambda: programs.containers(programs.SOCKETS),
        "control-groups": lambda: control_groups(instances.cgroups, mounted_hierarchies(), uid=uid),
        "cgroup-moves": lambda: cgroup_moves(read_mounts()),
        "ports": lambda: free_ports(ports),
        "identity": lambda: identity(data, now),
        "unit": lambda: unit(unit_properties(), read_text(own_groups), name_of(uid)),
        **machine.machine_looks(data, pid, reserve_mb=config.disk.reserve_mb, unit=UNIT, written=logs),
    }


def instance_user(instances: InstancesSection, *, uid: int) -> Verdict:
    """`uid`: the user of the daemon."""
    if uid or instances.development:
        why = f"Each can read the node's key and change the files of all others. A daemon of root separates them; {_GUIDE}."
        return advice(f"all instances run as the daemon's own user, {name_of(uid)}", "", why)
    name = instances.run_as
    account = find_account(name)
    make = "useradd --system --no-create-home --shell /usr/sbin/nologin "
    if account is None and not is_id(name):
        return advice(f"the user {name} does not exist", make + name)
    if (account.uid if account else int(name)) == 0 and not instances.allow_root:
        return error("instances.run_as is root, as which nothing may run", f"{make}corral-run")
    return ok(f"each instance has a user of its own; 'isolate: shared' runs as {name}")


def data_directory(data: pathlib.Path, *, others: bool) -> Verdict:
    """`others`: instances run as other users than the daemon."""
    there = machine.existing(data)
    if not there.is_dir():
        return error(f"{there} is not a directory", f"ls -ld {there}")
    if os.statvfs(there).f_flag & os.ST_NOEXEC:
        return error(f"the disk of {there} is mounted with noexec", f"findmnt --target {there}")
    if others and (closed := programs.closed_to_others(data.parent)):
        return error(f"only its owner gets into {closed}", f"chmod o+x {closed}")
    names = {each.name for each in data.iterdir()} if data.exists() else set()
    if others and "daemon.lock" not in names and (foreign := sorted(names - OURS)):
        why = (
            "The daemon closes its directory to all others, and refuses one that is used for something else."
        )
        return error(
            f"{data} holds {short_list(foreign, _SHOWN)}, not the daemon's", "corral daemon --data DIR", why
        )
    return ok(str(data) if data.exists() else f"{data}, which the daemon makes at its first start")


def control_groups(choice: str, mounted: Hierarchies, *, uid: int) -> Verdict:
    """Only looked at: what really holds is tried by the daemon when it starts, and shown by 'corral node info'."""
    if choice == "none":
        return advice("none are used: instances.cgroups is none")
    if mounted.unified is None and not mounted.controllers:
        return advice("none are mounted", "mount -t cgroup2 none /sys/fs/cgroup")
    if uid:
        return advice(f"a daemon of {name_of(uid)} may make none", "sudo corral daemon --config FILE")
    place = mounted.unified or next(iter(mounted.controllers.values()))
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        return advice(f"they are mounted read-only at {place}", f"mount -o remount,rw {place}")
    on_v2 = read_text(f"{mounted.unified}/cgroup.controllers").split() if mounted.unified else []
    if missing := [word for name, word in _LIMITS.items() if name not in {*on_v2, *mounted.controllers}]:
        why = "Some systems need 'cgroup_enable=memory' on the kernel's command line. What groups ask for is not enforced."
        return advice(f"the kernel offers no limits of {' and '.join(missing)}", "cat /proc/cmdline", why)
    version = "v2" if any(name in on_v2 for name in _LIMITS) else "v1"
    return ok(f"{version}, with limits of {', '.join(_LIMITS.values())}")


def cgroup_moves(mounts: str) -> Verdict:
    """Whether the kernel makes moves between control groups wait. `mounts`: the content of /proc/self/mountinfo."""
    delay = move_delay(mounts)
    if delay.moves is Moves.QUICK:
        return ok(f"control groups are mounted with {OPTION}")
    if delay.moves is Moves.NO_GROUPS:
        return ok("no control groups are mounted, none are used")
    v1 = (
        ""
        if delay.remount
        else " Version 1 does not take it in a remount: mount a tree of version 2 with it."
    )
    return advice(f"control groups are mounted without {OPTION}", delay.remount, WHY["cgroup-moves"] + v1)


def free_ports(ports: tuple[int, int]) -> Verdict:
    first, last = ports
    table = SocketTables().seen_by(os.getpid())
    heard = {key: ids for key, ids in (table.by_port if table else {}).items() if first <= key[0] <= last}
    owners = programs.socket_owners({inode for ids in heard.values() for inode in ids}) if heard else {}
    others = {
        port: names[0]
        for (port, _), ids in sorted(heard.items())
        if (names := [name for inode in ids if (name := owners.get(inode, "an unknown program"))])
    }
    if not others:
        return ok(f"nothing but instances listens on {first} to {last}")
    named = short_list((f"{port} ({name})" for port, name in others.items()), _SHOWN)
    found = f"other programs listen on {counted(len(others), 'port')} of {first} to {last}: {named}"
    return advice(found, f"ss -lntup 'sport >= {first} and sport <= {last}'")


def identity(data: pathlib.Path, now: dt.datetime) -> Verdict:
    found = load_identity(data)
    if found is None:
        why = "A daemon joins once, with a token of 'corral node join-token'."
        return advice(
            "this machine has not joined a cluster", "corral daemon --controller HOST:PORT --join TOKEN", why
        )
    file = data / "identity.json"
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        return error(f"other users can read the key of the node, in {file}", f"chmod 600 {file}")
    whose = f"the certificate of node {found.node_id}"
    again = f"corral node join-token --node-id {found.node_id} --replace"
    return machine.expiry(found.certificate_pem, now=now, soon=_RENEWAL, whose=whose, command=again)


def unit_properties() -> dict[str, str]:
    """What systemd knows of the daemon's unit; empty: there is no systemd here."""
    if not systemd_is_pid_1():
        return {}
    command = ["systemctl", "show", UNIT, "-p", "LoadState,UnitFileState,KillMode,PrivateTmp,ProtectSystem"]
    seconds = machine.PROGRAM_SECONDS
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=True)
    return dict(line.partition("=")[::2] for line in done.stdout.splitlines())


def unit(
    properties: Mapping[str, str],
    groups: str,
    user: str,
    *,
    lingering: pathlib.Path = pathlib.Path("/var/lib/systemd/linger"),
) -> Verdict:
    """`groups`: the content of /proc/PID/cgroup of the daemon, which `user` started."""
    if "/user.slice/" in groups and not (lingering / user).exists():
        return advice(f"the daemon is part of a login session of {user}", f"loginctl enable-linger {user}")
    if properties.get("LoadState") != "loaded":
        return ok(f"no unit {UNIT} of systemd is used")
    right = {"KillMode": "process", "PrivateTmp": "no", "ProtectSystem": "no"}
    wrong = [
        f"{key}={properties[key]}" for key, value in right.items() if properties.get(key, value) != value
    ]
    if wrong:
        asked = " ".join(f"{key}={right[key]}" for key in (each.partition("=")[0] for each in wrong))
        return error(f"{UNIT} has {', '.join(wrong)}", f"systemctl edit {UNIT}  # [Service] {asked}")
    if properties.get("UnitFileState") == "disabled":
        why = "The node does not come back by itself when the machine is restarted."
        return advice(f"{UNIT} is not enabled", f"systemctl enable {UNIT}", why)
    return ok(f"{UNIT} is enabled, and leaves instances alone")
