"""Modules that do the worst they can in the middle of twenty starts, and what becomes of the starts."""

from __future__ import annotations

import asyncio
import pathlib
import textwrap

import pytest
from node_archives import at_nodes, install, node_archive
from structlog.testing import capture_logs

from corral.testing import workloads
from corral.testing.api_calls import create_group, wait_for_instances
from corral.testing.module_processes import LINE
from corral.testing.waiting import eventually

INSTANCES = 20
BUDGET = 10.0
PATIENCE = 20.0
"""Beyond the budget: what a busy machine may take for everything else of a start."""
HEAD = (
    LINE
    + """
import asyncio, ctypes, mmap, os, re, socket, struct, sys, threading, time

from corral.sdk import DaemonModule


def bomb():
    left = mmap.mmap(-1, 4096)  # it ends by itself at 300, in case nobody else does
    left[0:2] = (300).to_bytes(2, "little")
    while (n := int.from_bytes(left[0:2], "little")) > 0:
        left[0:2] = (n - 1).to_bytes(2, "little")
        if os.fork() == 0: os.setsid()
    time.sleep(3600)


one_at_a_time = threading.Lock()


def huge_frames():
    body = b"\\xdd" + (4_000_000).to_bytes(4, "big") + b"\\x90" * 4_000_000
    frame = b"\\x95\\xa4call\\xce\\x00\\xff\\xff\\xff\\xaeevents.publish" + body + b"\\x01"
    sock = line()
    with one_at_a_time:  # hooks of several instances run at once
        for _ in range(30): sock.sendall(len(frame).to_bytes(4, "little") + frame)
    time.sleep(3600)


class Module(DaemonModule):
"""
)
BEASTS = {
    "async-hang": "async def on_instance_starting(self, spec):\n    spec.env['EVIL'] = '1'\n    await asyncio.Event().wait()",
    "hang": "def on_instance_starting(self, spec):\n    spec.env['EVIL'] = '1'\n    time.sleep(3600)",
    "spin": "async def on_instance_starting(self, spec):\n    spec.env['EVIL'] = '1'\n    while True: pass",
    "regex": "def on_instance_starting(self, spec):\n    re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "base-exception": "def on_instance_starting(self, spec):\n    spec.env['EVIL'] = '1'\n    raise BaseException('no')",
    "exits": "def on_instance_starting(self, spec):\n    os._exit(3)",
    "segfault": "def on_instance_starting(self, spec):\n    ctypes.string_at(0)",
    "memory": "def on_instance_starting(self, spec):\n    self.eaten = bytearray(2 << 30)",
    "forks": "def on_instance_starting(self, spec):\n    bomb()",
    "hangs-up": "def on_instance_starting(self, spec):\n    line().shutdown(socket.SHUT_RDWR)",
    "jar": "def on_instance_starting(self, spec):\n    spec.env['EVIL'] = '1'\n    spec.jvm_args.append('-jar')",
    "preload": "def on_instance_starting(self, spec):\n    spec.env['LD_PRELOAD'] = '/tmp/evil.so'",
    "flood": "def on_instance_starting(self, spec):\n    spec.env['EVIL'] = 'x' * (8 << 20)",
    "no-text": "def on_instance_starting(self, spec):\n    spec.env = {1: [2]}\n    spec.args = None",
    "huge-frames": "def on_instance_starting(self, spec):\n    huge_frames()",
    "late-evil": "def on_instance_started(self, handle):\n    os._exit(1)",
    "stop-evil": "async def on_instance_stopping(self, handle):\n    await asyncio.Event().wait()",
}
LATE = "did not answer within"
WHY = {
    "async-hang": LATE,
    "hang": LATE,
    "spin": LATE,
    "regex": LATE,
    "base-exception": "BaseException: no",
    "exits": "process_exited:3",
    "segfault": "process_died:SIGSEGV",
    "memory": "MemoryError",
    "hangs-up": "cut_off:socket_closed",
    "jar": "jvm_args",
    "preload": "LD_PRELOAD",
    "flood": "raised",
    "huge-frames": "cut_off:",  # a frame of ours in the middle of one of theirs is a bad one
    "no-text": "TypeError",
}
"""What is told of them with a start; of the bomb whatever came first, its end or the deadline."""
GOOD = "def on_instance_starting(self, spec):\n    spec.env['GOOD'] = spec.group"


def environment_of(pid: int) -> dict[bytes, bytes]:
    items = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(item.partition(b"=")[::2] for item in items if item)


def source(body: str) -> str:
    return HEAD + textwrap.indent(body, "    ")


@pytest.mark.system
@pytest.mark.trap("T4")
@pytest.mark.trap("T57")
async def test_twenty_instances_start_through_a_zoo_of_modules(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller, modules__hook_budget_seconds=BUDGET)
    zoo = {"good-one": GOOD, **BEASTS}
    for id, body in zoo.items():
        patience = 1000 if WHY.get(id) == LATE else 30_000
        await install(controller, node_archive(scratch, id, source=source(body), hook_ms=patience))

    async def active() -> bool:
        stands = await asyncio.gather(*(at_nodes(controller, id) for id in zoo))
        return all(nodes.get("n1", {}).get("phase") == "ACTIVE" for nodes in stands)

    await eventually(active, deadline=60)
    with capture_logs() as said:
        command = workloads.reading_commands()
        await create_group(controller, "lobby", command, min=INSTANCES, startup_timeout_seconds=60)
        found = await wait_for_instances(controller, "lobby", INSTANCES, deadline=90)
    told: dict[str, set[str]] = {id: set() for id in zoo}
    for instance in found:
        shown = await controller.call("GET", f"/api/v1/instances/{instance['id']}")
        changes = {each["module"]: each for each in shown["modules"]["changes"]}
        assert changes["good-one"]["env_set"] == ["GOOD"]
        assert all(each["dropped"] for id, each in changes.items() if id != "good-one")
        for id, each in changes.items():
            told[id].add(each["dropped"])
        given = environment_of(instance["pid"])
        assert given[b"GOOD"] == b"lobby"
        assert not {b"EVIL", b"LD_PRELOAD"} & set(given)
    for id, why in WHY.items():
        assert any(why in dropped for dropped in told[id]), (id, told[id])
    ended = {
        (entry["module"], entry["reason"]) for entry in said if entry["event"] == "module_process.stopped"
    }
    assert ("forks", "process_limit") in ended, ended
    asked = [entry["took_ms"] for entry in said if entry["event"] == "start_hooks.finished"]
    assert len(asked) >= INSTANCES
    assert max(asked) < (BUDGET + PATIENCE) * 1000

    async def settled() -> bool:
        stands = await asyncio.gather(*(at_nodes(controller, id) for id in zoo))
        return stands[0]["n1"]["phase"] == "ACTIVE"

    await eventually(settled)
    await daemon.app.stop()
    for instance in found:
        assert environment_of(instance["pid"])  # detached, not stopped
