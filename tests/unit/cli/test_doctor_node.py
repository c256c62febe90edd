"""What `corral doctor node` says, each check made to fail by real users, programs, directories and sockets."""

from __future__ import annotations

import datetime as dt
import os
import pathlib
import socket
import subprocess
import sys

import pytest

from corral.cli.doctor import node_checks as node
from corral.cli.doctor import node_programs as programs
from corral.cli.doctor.findings import Severity, Verdict
from corral.daemon.node.identity import Identity, save_identity
from corral.domain.ids import ClusterId, NodeId
from corral.errors import Code, Rejected
from corral.pki.authority import Authority
from corral.pki.keys import ClusterKey, key_pem, new_key
from corral.runtimes.cgroups.control_files import Hierarchies
from corral.system.clock import SystemClock
from corral.system.daemon_config import InstancesSection
from corral.system.entropy import SystemEntropy
from corral.testing.ports import free_range
from corral.testing.small_disk import small_disk

ROOT = pathlib.Path(__file__).resolve().parents[3]
UNIT = ROOT / "packaging" / "systemd" / "corral-daemon.service"


def is_advice(found: Verdict, words: str) -> bool:
    return found.severity is Severity.ADVICE and words in found.found


def is_error(found: Verdict, words: str) -> bool:
    return found.severity is Severity.ERROR and words in found.found


def program(path: pathlib.Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_user_of_instances_has_to_exist_and_not_to_be_root():
    settings = InstancesSection(run_as="nobody-has-this-name")
    found = node.instance_user(settings, uid=0)
    assert is_advice(found, "nobody-has-this-name does not exist")
    assert found.command.startswith("useradd --system ")
    assert is_error(node.instance_user(InstancesSection(run_as="root"), uid=0), "run_as is root")
    assert node.instance_user(InstancesSection(run_as="12345"), uid=0).severity is Severity.OK
    assert is_advice(node.instance_user(settings, uid=12345), "the daemon's own user, 12345")
    assert is_advice(node.instance_user(InstancesSection(development=True), uid=0), "own user, root")


def test_programs_beside_the_path_of_instances_are_named(scratch):
    games, bin = scratch / "games", scratch / "bin"
    for place in (games, bin):
        place.mkdir()
    scratch.chmod(0o711)
    assert programs.path(str(bin), [games]).severity is Severity.OK
    program(games / "openttd", "true")
    found = programs.path(str(bin), [games, scratch / "none"])
    assert is_advice(found, f"{games}: openttd")
    assert str(games / "openttd") in found.command
    assert programs.path(f"{bin}:{games}", [games]).severity is Severity.OK
    bin.chmod(0o700)
    assert is_error(programs.path(f"{games}:{bin}", []), f"do not get into {bin}")


def test_java_that_is_old_broken_or_missing_is_told(tmp_path):
    place = tmp_path / "java"
    assert is_error(programs.java(str(place)), f"there is no Java at {place}")
    program(place, "echo 'openjdk version \"21.0.4\" 2024-07-16' >&2")
    assert programs.java(str(place)) == (Severity.OK, f"Java 21 ({place})", "", "")
    program(place, "echo 'java version \"1.8.0_392\"' >&2")
    assert is_advice(programs.java(str(place)), "Java 8 ")
    program(place, "echo 'cannot open shared object' >&2; exit 127")
    assert is_error(programs.java(str(place)), "does not run: cannot open shared object")


def test_a_multiplexer_that_is_not_installed_is_advice():
    assert programs.multiplexer("sh").severity is Severity.OK
    assert is_advice(programs.multiplexer("tmux-of-nobody"), "tmux-of-nobody is not installed")


def test_a_socket_of_a_container_engine_that_everybody_may_use_is_an_error(tmp_path):
    place = tmp_path / "docker.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        place.chmod(0o660)
        assert programs.containers([place, tmp_path / "none"]).severity is Severity.OK
        place.chmod(0o666)
        assert is_error(programs.containers([place]), f"everybody may use {place}")


def test_a_data_directory_has_to_be_passable_executable_and_the_daemons(tmp_path):
    closed = tmp_path / "closed"
    data = closed / "data"
    data.mkdir(parents=True)
    closed.chmod(0o700)
    found = node.data_directory(data, others=True)
    assert found.severity is Severity.ERROR
    assert found.command.startswith("chmod o+x ")
    assert node.data_directory(data, others=False) == (Severity.OK, str(data), "", "")
    assert node.data_directory(data / "a" / "b", others=False).severity is Severity.OK
    (closed / "file").touch()
    assert is_error(node.data_directory(closed / "file" / "data", others=False), "is not a directory")
    assert is_error(node.data_directory(pathlib.Path("/etc"), others=True), "not the daemon's")
    with small_disk(tmp_path / "disk", size="1m") as disk:
        subprocess.run(["mount", "-o", "remount,noexec", disk], check=True)
        assert is_error(node.data_directory(disk / "data", others=False), "mounted with noexec")


def test_control_groups_that_do_not_limit_are_advice(tmp_path):
    offered = tmp_path / "cgroup.controllers"
    offered.write_text("cpuset cpu io memory pids\n")
    v2 = Hierarchies(unified=str(tmp_path), controllers={})
    assert node.control_groups("auto", v2, uid=0).found == "v2, with limits of memory, processor, processes"
    offered.write_text("cpu pids\n")
    assert is_advice(node.control_groups("auto", v2, uid=0), "no limits of memory")
    both = Hierarchies(unified=str(tmp_path), controllers={"memory": str(tmp_path)})
    assert node.control_groups("auto", both, uid=0).severity is Severity.OK
    assert is_advice(node.control_groups("auto", v2, uid=1000), "may make none")
    assert is_advice(node.control_groups("none", v2, uid=0), "none are used")
    nothing = Hierarchies(unified=None, controllers={})
    assert is_advice(node.control_groups("auto", nothing, uid=0), "none are mounted")


def test_moves_between_control_groups_that_wait_are_advice():
    line = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate{}"
    found = node.cgroup_moves(line.format(""))
    assert is_advice(found, "without favordynmods")
    assert found.command == "mount -o remount,nsdelegate,favordynmods /sys/fs/cgroup"
    assert node.cgroup_moves(line.format(",favordynmods")).severity is Severity.OK
    assert node.cgroup_moves("").severity is Severity.OK


def test_a_port_of_the_range_that_another_program_has_is_advice_and_that_of_an_instance_is_not():
    first, last = free_range(3)
    assert node.free_ports((first, last)).severity is Severity.OK
    code = f"import socket, sys; s = socket.create_server(('127.0.0.1', {first})); print('on', flush=True); sys.stdin.read()"
    for variable, severity in (("NOTHING", Severity.ADVICE), ("CORRAL_INSTANCE_ID", Severity.OK)):
        with subprocess.Popen(
            [sys.executable, "-c", code],
            env={variable: "lobby-1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as other:
            assert other.stdout is not None
            assert other.stdin is not None
            assert other.stdout.readline() == b"on\n"
            found = node.free_ports((first, last))
            assert found.severity is severity
            assert severity is Severity.OK or f"1 port of {first} to {last}: {first} (python" in found.found
            other.stdin.close()


def enrolled(data: pathlib.Path, life: dt.timedelta) -> dt.datetime:
    clock, entropy, cluster, key = SystemClock(), SystemEntropy(), ClusterId("c"), new_key()
    sealing = ClusterKey(entropy.secret(32))
    sealed = Authority.create(cluster=cluster, cluster_key=sealing, clock=clock, entropy=entropy)
    authority = Authority.open(sealed, cluster=cluster, cluster_key=sealing, clock=clock)
    issued = authority.issue_node(NodeId("n1"), key.public_key(), life=life)
    save_identity(
        data,
        Identity(
            node_id=NodeId("n1"),
            cluster=cluster,
            key_pem=key_pem(key).decode(),
            certificate_pem=issued.certificate_pem.decode(),
            trusted_ca_pem=authority.certificate_pem.decode(),
            join_token_id="jt-1",
        ),
    )
    return clock.now()


def test_the_certificate_of_a_node_is_looked_at_and_so_is_who_can_read_its_key(tmp_path):
    assert is_advice(node.identity(tmp_path, dt.datetime.now(dt.UTC)), "not joined a cluster")
    now = enrolled(tmp_path, dt.timedelta(days=30))
    assert node.identity(tmp_path, now).severity is Severity.OK
    assert is_advice(node.identity(tmp_path, now + dt.timedelta(days=22)), "node n1 is valid for 7 days")
    found = node.identity(tmp_path, now + dt.timedelta(days=35, hours=9))
    assert is_error(found, "expired 5 days ago")
    assert found.command == "corral node join-token --node-id n1 --replace"
    (tmp_path / "identity.json").chmod(0o644)
    assert is_error(node.identity(tmp_path, now), "other users can read the key")
    (tmp_path / "identity.json").write_text("{}")
    with pytest.raises(Rejected) as refused:
        node.identity(tmp_path, now)
    assert refused.value.code is Code.FORMAT_INVALID


def test_a_unit_that_takes_instances_with_it_is_an_error(tmp_path):
    lines = (line.partition("=") for line in UNIT.read_text().splitlines() if "=" in line)
    shipped = {"LoadState": "loaded", "UnitFileState": "enabled", **{key: value for key, _, value in lines}}
    assert node.unit(shipped, "", "root").severity is Severity.OK
    found = node.unit({**shipped, "KillMode": "control-group", "PrivateTmp": "yes"}, "", "root")
    assert is_error(found, "KillMode=control-group, PrivateTmp=yes")
    assert found.command.endswith("[Service] KillMode=process PrivateTmp=no")
    assert is_advice(node.unit({**shipped, "UnitFileState": "disabled"}, "", "root"), "not enabled")
    assert node.unit({}, "", "root").severity is Severity.OK
    groups = "0::/user.slice/user-1000.slice/session-2.scope\n"
    assert is_advice(node.unit({}, groups, "ada", lingering=tmp_path), "login session of ada")
    (tmp_path / "ada").touch()
    assert node.unit({}, groups, "ada", lingering=tmp_path).severity is Severity.OK
    assert isinstance(node.unit_properties(), dict)


AS_NOBODY = """
import ctypes, os, pathlib, sys
from corral.cli.doctor import findings, node_checks, running_role
from corral.system.config import load_daemon
os.setgroups([]); os.setgid(65534); os.setuid(65534)
role = running_role.running_role("daemon", load_daemon, {"data": sys.argv[1]}, file=None)
looks = node_checks.node_looks(role, (30000, 30001))
for each in findings.findings("node:n1", looks, node_checks.WHY, again="corral doctor node", seconds=60):
    print(each.id, each.severity.value, each.command, each.found, sep="|")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes somebody else")
def test_what_others_may_not_look_at_is_advice_to_ask_as_root(tmp_path):
    (tmp_path / "identity.json").touch()
    (tmp_path / "daemon.lock").touch()
    tmp_path.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, tmp_path], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.split("|") for line in done.stdout.splitlines()]
    assert {line[0] for line in lines} == set(node.WHY)
    asked = {line[0] for line in lines if line[1:3] == ["advice", "sudo corral doctor node"]}
    assert asked == {"process", "data-directory", "identity"}
