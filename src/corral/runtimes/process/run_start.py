"""The dialogue of a start: with the keeper's answer in hand, the shim is housed and let go."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any, Final

from corral.errors import CorralError
from corral.runtimes.cgroups.port import Cgroups, remove_group_if_empty
from corral.runtimes.keeper.proc_facts import open_process
from corral.runtimes.keeper.run_files import Failure
from corral.runtimes.process.descriptors import readable
from corral.runtimes.process.keeper_client import Dialogue
from corral.runtimes.process.start_failures import start_failure
from corral.sdk.runtime import RunSpec
from corral.system.accounts import RunUser

_GONE_SECONDS: Final = 10.0


async def spawn(
    spec: RunSpec, user: RunUser, *, dialogue: Dialogue, hello: dict[str, Any], cgroups: Cgroups
) -> None:
    """The dialogue with the shim. When it fails, nothing of the run is left. When the shim is killed
    after its `go`, it may have started the workload: the files tell."""
    if "error" in hello:
        raise _failure(spec, user, hello)
    shim = open_process(hello["shim"], hello["start"])
    go: dict[str, Any] | None = None
    try:
        files = await cgroups.create(spec.run_name, shim_pid=hello["shim"], limits=spec.limits)
        go = {"go": True, "cgroup_files": files, "oom_file": cgroups.oom_file(spec.run_name)}
        answer = await _let_go(dialogue, go)
        if answer is not None and "error" in answer:
            raise _failure(spec, user, answer)
    except BaseException as error:
        await dialogue.close()
        if go is None or isinstance(error, CorralError):  # else it may be running
            await _undo(cgroups, spec.run_name, shim)
        raise
    finally:
        if shim is not None:
            os.close(shim)


async def _let_go(dialogue: Dialogue, go: dict[str, Any]) -> dict[str, Any] | None:
    """The shim's answer; None when it is gone."""
    try:
        await dialogue.send(go)
    except ConnectionError:
        return None
    return await dialogue.receive()


def _failure(spec: RunSpec, user: RunUser, answer: dict[str, Any]) -> CorralError:
    failure = Failure(answer["error"], answer["errno"], answer["path"])
    return start_failure(failure, user=user.name, directory=spec.directory, command=spec.command[0])


async def _undo(cgroups: Cgroups, run: str, shim: int | None) -> None:
    """After a failed spawn: the shim ends by itself, then its group goes."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GONE_SECONDS):
            if shim is not None:
                await readable(shim)
    await remove_group_if_empty(cgroups, run)
