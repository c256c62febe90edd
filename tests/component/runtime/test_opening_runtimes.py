"""Which runtimes a node has, and which one a run belongs to."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import AsyncIterator

import pytest

from corral.errors import Code, CorralError
from corral.runtimes.cgroups.none import NoCgroups
from corral.runtimes.keeper import run_files
from corral.runtimes.node_runtimes import Runtimes, open_runtimes, runtime_of
from corral.runtimes.process.provider import ProcessRuntime
from corral.runtimes.sessions.multiplexer import TmuxMultiplexer
from corral.runtimes.sessions.provider import SessionRuntime
from corral.sdk.runtime import AdoptionKind, RunSpec
from corral.testing import workloads
from corral.testing.reaper import Reaper
from corral.testing.runtime_contract import console_match
from corral.testing.runtime_nodes import keeper_pid, open_files
from corral.testing.waiting import eventually


@pytest.fixture
async def runtimes(scratch: pathlib.Path, reaper: Reaper) -> AsyncIterator[Runtimes]:
    reaper.watch(scratch)
    runtimes = await open_runtimes(scratch, NoCgroups("opening"))
    yield runtimes
    await runtimes.close()
    reaper.reap()


def spec_in(data: pathlib.Path, name: str) -> RunSpec:
    run_directory, directory = data / "runs" / name / "1", data / "running" / name
    for made in (run_directory, directory):
        made.mkdir(parents=True, mode=0o700)
    return RunSpec(
        instance_id=name,
        incarnation=1,
        command=workloads.reading_commands(code=4),
        environment={"PATH": os.defpath},
        directory=str(directory),
        run_directory=str(run_directory),
    )


async def test_a_run_is_adopted_by_the_runtime_that_started_it(
    runtimes: Runtimes, scratch: pathlib.Path
) -> None:
    assert "process" in runtimes.names()
    specs = {name: spec_in(scratch, name) for name in runtimes.names()}
    handles = {name: await runtimes.get(name).start(spec) for name, spec in specs.items()}
    await runtimes.close()
    later = await open_runtimes(scratch, NoCgroups("opening"))
    for name, spec in specs.items():
        assert runtime_of(spec.run_directory) == name
        provider = later.of(spec.run_directory)
        assert provider.name == name
        assert (await provider.adopt(spec.run_directory)).handle == handles[name]
        await provider.send_command(handles[name], "stop")
        assert (await provider.wait_empty(handles[name])).code == 4
    await later.close()
    assert await later.end_keeper()


@pytest.mark.trap("T68")
async def test_a_new_keeper_is_handed_the_runs_of_every_runtime(
    runtimes: Runtimes, scratch: pathlib.Path
) -> None:
    handles = {name: await runtimes.get(name).start(spec_in(scratch, name)) for name in runtimes.names()}
    dead = keeper_pid(scratch)
    os.kill(dead, signal.SIGKILL)

    def held() -> bool:
        consoles = open_files(keeper_pid(scratch))
        return keeper_pid(scratch) != dead and all(
            f"{h.run_directory}/out" in consoles for h in handles.values()
        )

    await eventually(held)
    await runtimes.close()
    for handle in handles.values():
        os.kill(int(handle.state["shim"]), signal.SIGKILL)
    later = await open_runtimes(scratch, NoCgroups("opening"))
    for name, handle in handles.items():
        await eventually(lambda directory=handle.run_directory: _is_rescued(directory))
        await later.get(name).send_command(handle, "stop")
        await eventually(lambda directory=handle.run_directory: run_files.is_empty(directory))
        ended = (await later.get(name).adopt(handle.run_directory)).exit
        assert ended is not None
        assert (ended.known, ended.code) == (True, 4)
    await later.close()


def _is_rescued(directory: str) -> bool:
    record = run_files.read_record(directory)
    return record is not None and record.rescued


async def test_a_runtime_that_is_not_there_is_refused_with_those_that_are(runtimes: Runtimes) -> None:
    with pytest.raises(CorralError) as caught:
        runtimes.get("docker")
    assert caught.value.code is Code.RUNTIME_UNAVAILABLE
    assert "process" in str(caught.value)


async def test_without_its_program_nothing_is_started_but_what_runs_is_minded(
    runtimes: Runtimes, scratch: pathlib.Path
) -> None:
    spec = spec_in(scratch, "lobby")
    handle = await runtimes.get("tmux").start(spec)
    await console_match(handle, b"up\n")
    await runtimes.close()
    process = ProcessRuntime(scratch, NoCgroups("opening"), name="tmux")
    tmux = SessionRuntime(process, TmuxMultiplexer(program=""))
    await tmux.open()
    bare = Runtimes(runtimes.process, {"tmux": tmux}, frozenset({"tmux"}))
    assert bare.names() == ("process",)
    with pytest.raises(CorralError) as caught:
        bare.get("tmux")
    assert "install `tmux`" in str(caught.value)
    provider = bare.of(spec.run_directory)
    assert (await provider.adopt(spec.run_directory)).kind is AdoptionKind.ALIVE
    await provider.send_command(handle, "stop")
    assert (await provider.wait_empty(handle)).code == 4
    await bare.close()


async def test_a_directory_without_a_mark_is_of_the_process_runtime(
    runtimes: Runtimes, scratch: pathlib.Path
) -> None:
    assert runtimes.of(str(scratch / "no" / "such")).name == "process"


async def test_a_run_of_a_runtime_that_is_unknown_here_is_left_alone(
    runtimes: Runtimes, scratch: pathlib.Path
) -> None:
    (scratch / "runtime").write_text(
        '{"version":1,"runtime":"docker","directory":"/","user":{"name":"x"},"more":1}'
    )
    with pytest.raises(CorralError) as caught:
        runtimes.of(str(scratch))
    assert caught.value.code is Code.RUNTIME_UNAVAILABLE
    (scratch / "runtime").write_text('{"version":9,"runtime":"x","directory":"/","user":{"name":"x"}}')
    with pytest.raises(CorralError) as caught:
        runtimes.of(str(scratch))
    assert caught.value.code is Code.FORMAT_TOO_NEW
