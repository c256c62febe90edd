"""Which control groups a daemon gets, and what it is told when it cannot have them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from corral.errors import Code, Rejected
from corral.runtimes.cgroups.control_files import mounted_hierarchies, own_groups
from corral.runtimes.cgroups.move_delay import MoveDelay, Moves, move_delay
from corral.runtimes.cgroups.run_groups import escaped, is_keeper_name, keeper_name, unescaped
from corral.runtimes.cgroups.selection import open_cgroups, owner_of
from corral.runtimes.cgroups.systemd import systemd_is_pid_1

UNIFIED = "42 32 0:27 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate"
SPLIT = """\
22 27 0:21 / /proc rw,relatime - proc proc rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/abc /odd\\040place/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
AS_NOBODY = """
import os, sys
from corral.errors import CorralError
from corral.runtimes.cgroups.selection import open_cgroups
os.setgroups([]); os.setgid(65534); os.setuid(65534)
for choice in ("auto", "v1", "v2"):
    try:
        print(choice, open_cgroups(choice, "corral-test-nobody").name)
    except CorralError as error:
        print(choice, "refused")
"""


def test_mount_points_come_from_mountinfo_whatever_they_are_called():
    assert mounted_hierarchies(UNIFIED).unified == "/sys/fs/cgroup"
    assert mounted_hierarchies(UNIFIED).controllers == {}
    split = mounted_hierarchies(SPLIT)
    assert split.unified == "/sys/fs/cgroup/unified"
    assert split.controllers == {
        "cpu": "/sys/fs/cgroup/cpu,cpuacct",
        "cpuacct": "/sys/fs/cgroup/cpu,cpuacct",
        "memory": "/odd place/memory",
        "name=systemd": "/sys/fs/cgroup/systemd",
    }


@pytest.mark.parametrize(
    ("mounts", "delay"),
    [
        ("22 27 0:21 / /proc rw,relatime - proc proc rw\n", MoveDelay(moves=Moves.NO_GROUPS)),
        (
            UNIFIED,
            MoveDelay(moves=Moves.SLOW, remount="mount -o remount,nsdelegate,favordynmods /sys/fs/cgroup"),
        ),
        (UNIFIED + ",favordynmods,memory_recursiveprot", MoveDelay(moves=Moves.QUICK)),
        (
            SPLIT,
            MoveDelay(moves=Moves.SLOW, remount="mount -o remount,favordynmods /sys/fs/cgroup/unified"),
        ),
        (SPLIT.rstrip() + ",favordynmods", MoveDelay(moves=Moves.QUICK)),
        (SPLIT.replace("cgroup2 cgroup2", "tmpfs tmpfs"), MoveDelay(moves=Moves.SLOW)),
    ],
    ids=["none", "v2", "v2-set", "v1-and-v2", "v1-and-v2-set", "v1"],
)
def test_the_mounts_tell_whether_moves_wait_and_what_to_do(mounts: str, delay: MoveDelay):
    assert move_delay(mounts) == delay


def test_own_groups_are_told_by_hierarchy():
    found = own_groups("4:cpu,cpuacct:/a\n1:name=systemd:/b\n0::/c:d\n")
    assert found == {"cpu": "/a", "cpuacct": "/a", "name=systemd": "/b", "": "/c:d"}


@pytest.mark.parametrize("name", ["lobby-1.1024", "a.b_c-d.1", "../../etc/x", "Ünit one", "a\\x2e"])
def test_a_name_stays_in_its_place_and_comes_back(name):
    assert "/" not in escaped(name)
    assert unescaped(escaped(name)) == name


def test_the_name_of_a_run_passes_unchanged_and_no_keeper_is_taken_for_a_run():
    assert escaped("lobby-1.1024") == "lobby-1.1024"
    assert is_keeper_name(keeper_name("node.one", 17))
    assert not is_keeper_name("keeper-1.1024")


def test_an_unknown_choice_lists_the_choices():
    with pytest.raises(Rejected) as refused:
        open_cgroups("v3", "")
    assert refused.value.code is Code.INVALID_CONFIG
    assert "auto, none, systemd, v1, v2" in str(refused.value)


@pytest.mark.parametrize("root", ["../up", "a//b", "a/../b", "-x", "a b"])
def test_a_root_that_leads_astray_is_refused(root):
    with pytest.raises(Rejected) as refused:
        open_cgroups("auto", root)
    assert refused.value.field == "instances.cgroup_root"


def test_a_forced_choice_that_does_not_work_says_why():
    if systemd_is_pid_1():
        pytest.skip("systemd is the first process here, the choice works")
    with pytest.raises(Rejected, match="systemd is not the first process here"):
        open_cgroups("systemd", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_daemon_that_may_not_make_groups_gets_none_and_a_forced_choice_is_refused():
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, timeout=30)
    assert done.stdout.splitlines() == ["auto none", "v1 refused", "v2 refused"], done.stderr


async def test_two_daemons_of_one_machine_keep_their_groups_apart(tmp_path):
    owners = [owner_of(str(tmp_path / name)) for name in ("one", "two")]
    assert owners[0] != owners[1]
    assert owner_of(str(tmp_path / "sub" / ".." / "one")) == owners[0]
    both = [open_cgroups("auto", f"corral-test-{os.getpid()}", owner=owner) for owner in owners]
    for cgroups in both:
        assert cgroups.leftovers() == []
        await cgroups.close()
