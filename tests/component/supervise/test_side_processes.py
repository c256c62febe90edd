"""`ctx.processes` on a node: real processes beside real instances, over the daemon's life."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import msgspec
import pytest

from corral.daemon.modules.process_operations import ModuleProcesses
from corral.domain.modules.manifest import Manifest
from corral.errors import CorralError
from corral.modules.services.host_operations import OperationTable
from corral.sdk.processes import Processes
from corral.testing import workloads
from corral.testing.bench_storage import BenchScope
from corral.testing.runtime_contract import is_running

LONG = ["sleep", "3600"]


class Scope(BenchScope, frozen=True, kw_only=True):
    closed: bool = False


class Link:
    """A module's link to the operations of a node, its bodies packed as they travel."""

    def __init__(self, node: Any, module_id: str) -> None:
        self._node = node
        manifest = Manifest(manifest_version=1, id=module_id, version="1.0.0")
        self._scope: Any = Scope(module_id=module_id, manifest=manifest)

    async def call(self, method: str, body: object, answer: type, *, deadline: float = 30.0) -> Any:
        table = OperationTable(processes_on(self._node).operations())
        raw = msgspec.Raw(msgspec.msgpack.encode(body))
        said = msgspec.msgpack.encode(await table.serve(self._scope, method, raw))
        return msgspec.msgpack.decode(said, type=answer)

    def notify(self, method: str, body: object) -> None: ...


def processes_on(node: Any) -> ModuleProcesses:
    supervisor = node.supervision.supervisor
    return ModuleProcesses(find_run=supervisor.instances.find, runs=supervisor.instances.runs)


def processes_of(node: Any, module_id: str = "ours") -> Processes:
    return Processes(Link(node, module_id), here=True)


async def code_of(call) -> str:
    with pytest.raises(CorralError) as caught:
        await call
    return caught.value.code.name


@pytest.mark.trap("T19")
async def test_a_companion_outlives_the_daemon_and_not_its_instance(node):
    ours = processes_of(node)
    await node.start("one", workloads.reading_commands(code=4))
    look = ["sh", "-c", "echo $CORRAL_INSTANCE_ID $MORE; exec sleep 3600"]
    side = await ours.spawn("one", "side", look, env={"MORE": "yes"})
    assert side.running
    await node.reopen()
    (found,) = await ours.list("one")
    assert (found.name, found.pid, found.running) == ("side", side.pid, True)
    assert (await ours.spawn("one", "side", LONG)).pid == side.pid
    await node.command("one", "stop")
    run = await node.settled("one")
    assert not is_running(side.pid)
    assert (run.state, run.outcome.exit.code) == ("CRASHED", 4)  # as without it
    (last,) = await ours.list("one")
    assert (last.running, last.exit_code, last.signal) == (False, None, "SIGTERM")
    assert last.output == "one yes\n"
    assert await code_of(ours.spawn("one", "side", LONG)) == "NOT_RUNNING"


async def test_a_companion_is_its_modules_and_ends_when_that_is_uninstalled(node):
    ours, theirs = processes_of(node), processes_of(node, "theirs")
    await node.start("one", workloads.silent())
    side = await ours.spawn("one", "side", LONG)
    other = await theirs.spawn("one", "side", LONG)
    assert side.pid != other.pid
    assert [(one.name, one.pid) for one in await theirs.list("one")] == [("side", other.pid)]
    assert await theirs.stop("one", "other") is None
    ended = await theirs.stop("one", "side")
    assert ended is not None
    assert (ended.running, ended.signal) == (False, "SIGTERM")
    assert is_running(side.pid)
    await processes_on(node).keep_only(["ours"])
    assert is_running(side.pid)
    await node.reopen()
    await processes_on(node).keep_only(["theirs"])
    assert not is_running(side.pid)
    assert (await node.until("one", "RUNNING")).outcome is None


async def test_what_cannot_be_spawned_is_said_with_its_code(node):
    ours = processes_of(node)
    await node.start("one", workloads.silent())
    refused = [
        await code_of(ours.spawn("two", "side", LONG)),
        await code_of(ours.list("two")),
        await code_of(ours.stop("two", "side")),
        await code_of(ours.spawn("one", "side", ["no-such-command"])),
        await code_of(ours.spawn("one", "side", [])),
        await code_of(ours.spawn("one", "Side.1", LONG)),
        await code_of(ours.spawn("one", "x" * 33, LONG)),
        await code_of(ours.spawn("one", "side", LONG, env={"LD_PRELOAD": "x", "CORRAL_X": "y"})),
        await code_of(ours.stop("one", "side", grace=float("nan"))),
    ]
    assert refused == ["NOT_FOUND"] * 3 + ["COMMAND_NOT_FOUND"] + ["INVALID_FIELD"] * 5
    assert await ours.list("one") == []


async def test_a_companion_that_ends_is_told_with_its_code_and_its_last_words(node):
    ours = processes_of(node)
    await node.start("one", workloads.silent())
    await ours.spawn("one", "side", ["sh", "-c", "echo some words; exit 3"])
    async with asyncio.timeout(20):
        while (side := (await ours.list("one"))[0]).running:
            await asyncio.sleep(0.01)
    assert (side.exit_code, side.signal, side.output) == (3, "", "some words\n")
    run = await node.until("one", "RUNNING")
    assert pathlib.Path(f"/proc/{run.pid}").exists()
