"""The fork that becomes a workload: it gets its plan and its release, however they arrive."""

from __future__ import annotations

import os
import signal
import socket

import pytest

from corral.runtimes.keeper import keeper_protocol
from corral.testing.runtime_contract import console_match
from corral.testing.runtime_nodes import ProcessHarness
from corral.testing.workloads import shell

BIG = 100_000


def test_what_follows_a_message_stays_for_its_reader() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    try:
        ours.setblocking(False)
        assert keeper_protocol.send(ours, {"plan": "x" * BIG}, reader)
        ours.send(b"1")
        message, descriptors = keeper_protocol.receive_with_descriptors(theirs)
        assert message == {"plan": "x" * BIG}
        assert len(descriptors) == 1
        assert theirs.recv(10) == b"1"
        os.close(descriptors[0])
    finally:
        for descriptor in (reader, writer):
            os.close(descriptor)
        ours.close()
        theirs.close()


@pytest.mark.parametrize("cgroups", ["none", "v2"])
async def test_a_large_environment_and_a_quick_release_start_the_program(
    scratch, reaper, cgroups: str
) -> None:
    spares = 2 if cgroups == "v2" else 0
    async with ProcessHarness(scratch / "node", cgroups=cgroups, spare_shims=spares) as node:
        for _ in range(5):
            environment = {"PATH": os.defpath} | {f"V{number}": "x" * BIG for number in range(10)}
            spec = node.spec(*shell("echo up; exec sleep 3600"), environment=environment)
            handle = await node.provider.start(spec)
            await console_match(handle, b"up\n")
            await node.provider.kill(handle)
            assert (await node.provider.wait_empty(handle)).signal == signal.SIGKILL
