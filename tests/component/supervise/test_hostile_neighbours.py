"""Two workloads of one user on a node whose daemon is root: one swaps the directories of the other for links."""

from __future__ import annotations

import os
import pathlib

import pytest
from supervised_node import FIRST, SupervisedNode, with_settings

from corral.testing import workloads

PYTHON = "/usr/bin/python3"
"""One that every user can run."""
ROUNDS = 3
ATTACK = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
target, outside = sys.argv[1], sys.argv[2]
here = os.open(target, os.O_RDONLY)

def deep(name):
    above = os.dup(here)
    for _ in range(1200):
        os.mkdir(name, dir_fd=above)
        below = os.open(name, os.O_RDONLY, dir_fd=above)
        os.close(above)
        above = below

deep("first")
for number in range(100):
    os.makedirs(f"{target}/d{number}/sub")
    os.symlink(outside, f"{target}/s{number}")
deep("last")
print("swapping", flush=True)
while True:
    for number in range(100):
        libc.renameat2(here, b"d%d" % number, here, b"s%d" % number, 2)
"""


@pytest.mark.trap("T62")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.skipif(not pathlib.Path(PYTHON).exists(), reason="no Python for other users")
async def test_the_removal_of_a_stopped_instance_touches_nothing_outside(scratch):
    """Its neighbour has the directory open, and goes on swapping when it is renamed, closed and removed."""
    outside = scratch / "outside"
    (outside / "sub").mkdir(parents=True)
    (outside / "precious").write_bytes(b"years of work")
    (outside / "sub" / "precious").write_bytes(b"years of work")
    outside.chmod(0o755)
    before = (outside.stat().st_mode, outside.stat().st_uid, sorted(outside.rglob("*")))
    scratch.chmod(0o711)
    node = SupervisedNode(scratch / "node", settings=with_settings(development=False, run_as="27101"))
    await node.open()
    try:
        for number in range(ROUNDS):
            victim, attacker, incarnation = "victim", f"attacker-{number}", FIRST + 1024 * number
            ack = await node.start(victim, workloads.silent(), isolate="shared", incarnation=incarnation)
            assert ack.accepted, ack.error_message
            place = node.data / "running" / victim
            await node.start(attacker, (PYTHON, "-c", ATTACK, str(place), str(outside)), isolate="shared")
            await node.says(attacker, "swapping")
            await node.stop(victim, force=True)
            await node.settled(victim)
            await node.supervision.housekeeping.tidy()
            assert (outside.stat().st_mode, outside.stat().st_uid, sorted(outside.rglob("*"))) == before
            assert list((node.data / ".discarded").iterdir()) == [], "and all of it is gone"
            await node.stop(attacker, force=True)
            await node.settled(attacker)
    finally:
        await node.clear()
