"""Processes beside an instance: `ctx.processes`."""

from __future__ import annotations

import builtins
import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from corral.sdk.errors import ContextMisused, Refused
from corral.sdk.protocol.instance_messages import (
    ListProcesses,
    ProcessBody,
    ProcessFound,
    ProcessList,
    SpawnProcess,
    StopProcess,
)
from corral.sdk.protocol.messages import LIST_PROCESSES, SPAWN, STOP_PROCESS
from corral.sdk.runner_port import HostLink

_INSTEAD: Final = (
    "run a part of the module on the nodes (`hosts: [controller, daemon]`) and have it spawn the process"
)
_PATIENCE: Final = 30.0


class SideProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process beside an instance, while it runs and after its end.

    ```python
    side = await ctx.processes.spawn("lobby-1", "exporter", ["/usr/bin/exporter", "--port", "9400"])
    assert side.running
    ```
    """

    name: str
    command: tuple[str, ...] = ()
    pid: int = 0
    started_at: dt.datetime | None = None
    running: bool = False
    exit_code: int | None = None
    """None while it runs, when a signal ended it, and when the exit code is not known."""
    signal: str = ""
    """The name of the signal that ended it, or empty."""
    output: str = ""
    """The end of its output, at most 4 KiB."""


class Processes:
    """`ctx.processes`, on a node. A process beside an instance runs as its user, in its directory, with its
    environment and within its limits. It outlives the daemon and this module's own process, and ends with
    the instance's main process (SIGTERM, then SIGKILL two seconds later). It is not restarted; its end does
    not affect the instance. It belongs to this module: others neither see nor stop it. Uninstalling the
    module ends it; an upgrade, a restart or a pause leaves it running.

    `Refused` with code `NOT_FOUND` for an instance that is not here, `NOT_RUNNING` when it has no process
    (not yet in `on_instance_starting`, not any more in `on_instance_stopped`), `COMMAND_NOT_FOUND` and the
    like when the command cannot be executed, `INVALID_FIELD` for a name or a value that is not allowed,
    `NOT_SUPPORTED` where its runtime has none. On the controller every call is `NOT_SUPPORTED`.

    ```python
    async def on_instance_started(self, handle: InstanceHandle) -> None:
        await self.ctx.processes.spawn(
            handle.instance_id, "exporter", ["exporter", "--pid", str(handle.pid)], env={"PORT": "9400"}
        )
    ```
    """

    def __init__(self, link: HostLink, *, here: bool) -> None:
        self._link = link
        self._here = here

    async def spawn(
        self, instance_id: str, name: str, command: Sequence[str], *, env: Mapping[str, str] | None = None
    ) -> SideProcess:
        """Start a process; `name` is `[a-z0-9][a-z0-9-]*`, 32 characters at most. If one of that name is
        running, it is returned and nothing is started; one that has ended is replaced. Eight run beside an
        instance at most, over all modules (`CONFLICT`). `env` is added to the instance's environment."""
        self._check()
        if isinstance(command, str):
            raise ContextMisused("the command of a process is a list of words, not one text")
        body = SpawnProcess(instance_id=instance_id, name=name, command=tuple(command), env=dict(env or {}))
        return _shown(await self._link.call(SPAWN, body, ProcessBody, deadline=_PATIENCE))

    async def list(self, instance_id: str) -> builtins.list[SideProcess]:
        """Processes of this module, by name: those that run, and the last of each name that ended."""
        self._check()
        body = ListProcesses(instance_id=instance_id)
        found = await self._link.call(LIST_PROCESSES, body, ProcessList)
        return [_shown(process) for process in found.processes]

    async def stop(self, instance_id: str, name: str, *, grace: float = 2.0) -> SideProcess | None:
        """SIGTERM, and SIGKILL after `grace` seconds (30 at most), to it and all its descendants; returns how
        it ended. None when there is none of that name."""
        self._check()
        body = StopProcess(instance_id=instance_id, name=name, grace=grace)
        found = await self._link.call(STOP_PROCESS, body, ProcessFound, deadline=_PATIENCE + max(grace, 0.0))
        return None if found.process is None else _shown(found.process)

    def _check(self) -> None:
        if not self._here:
            raise Refused(
                "ctx.processes is for modules on a node; this one runs on the controller",
                code="NOT_SUPPORTED",
                hint=_INSTEAD,
            )


def _shown(body: ProcessBody) -> SideProcess:
    return msgspec.convert(body, SideProcess, from_attributes=True)
