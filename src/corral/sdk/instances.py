"""Instances, as daemon modules receive them."""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

_MUTABLE: Final = frozenset({"jvm_args", "args", "env"})


class InstanceSpec(msgspec.Struct, kw_only=True):
    """An instance that is about to start. A module may change `jvm_args`, `args` and `env`, and nothing
    else; each module has a copy of its own. `jvm_args` may not name what is run (`-jar`, `-cp`, a main
    class, `@file`); changes that are not allowed are dropped, all of that module's.

    ```python
    async def on_instance_starting(self, spec: InstanceSpec) -> None:
        if spec.group == "lobby":
            spec.jvm_args.append("-Xlog:gc*")
            spec.env["PROFILE"] = "lobby"
    ```
    """

    instance_id: str
    group: str
    node_id: str = ""
    port: int = 0
    ports: dict[str, int] = {}
    memory_mb: int = 0
    platform: str = ""
    platform_version: str = ""
    static: bool = False
    plan_hash: str = ""
    work_dir: str = ""
    is_java: bool = True
    """Whether `jvm_args` may be changed: changes for other programs are ignored."""
    jvm_args: list[str] = []
    args: list[str] = []
    env: dict[str, str] = {}

    def __setattr__(self, name: str, value: object) -> None:
        if name not in _MUTABLE:
            raise AttributeError(
                f"{name} of an instance cannot be changed by a module; jvm_args, args and env can"
            )
        super().__setattr__(name, value)


class InstanceHandle(msgspec.Struct, frozen=True, kw_only=True):
    """An instance that is running, or was.

    ```python
    async def on_instance_started(self, handle: InstanceHandle) -> None:
        self.pids[handle.instance_id] = handle.pid
    ```
    """

    instance_id: str
    group: str
    port: int = 0
    pid: int = 0
    started_at: dt.datetime | None = None
    state: str = ""
    work_dir: str = ""
    adopted: bool = False
    """In `on_instance_started`: the instance was running before this module was started."""


class ExitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How an instance ended; also when that happened while the daemon was down. `signal` is the signal's
    name, empty when the process exited by itself with `exit_code`.

    ```python
    async def on_instance_stopped(self, handle: InstanceHandle, exit: ExitInfo) -> None:
        if exit.crashed:
            ctx.logger.warning("%s: %s", handle.instance_id, exit.crash_summary)
    ```
    """

    exit_code: int | None = None
    signal: str = ""
    duration_ms: int = 0
    crashed: bool = False
    crash_summary: str = ""
