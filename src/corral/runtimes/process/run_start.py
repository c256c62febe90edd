"""The start of a run: the request to the keeper, checked and with its user looked up, and the dialogue that follows.

With the keeper's answer the shim is moved into the run's control group and allowed to execute the workload.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable
from typing import Any, Final

from corral.errors import Code, CorralError, Rejected
from corral.runtimes.cgroups.port import Cgroups, drop_spare_group, remove_group_if_empty
from corral.runtimes.keeper.keeper_protocol import MAX_FRAME, pack
from corral.runtimes.keeper.proc_facts import open_process
from corral.runtimes.keeper.run_files import ExecFailure, RunRecord, parse_record
from corral.runtimes.process.descriptors import readable
from corral.runtimes.process.keeper_client import KeeperDialogue
from corral.runtimes.process.shim_pool import SpareShim
from corral.runtimes.process.start_failures import start_failure
from corral.sdk.runtime import RunSpec
from corral.system.accounts import LONGEST_NAME, RunUser, find_account, is_id, name_of, own_user

_MEBIBYTE: Final = 1 << 20


def look_up_user(run_as: str, groups: Iterable[int] = ()) -> RunUser:
    """Blocking. RUN_AS_REFUSED when there is no such user, or when the daemon may not become it. Of its
    supplementary groups it gets these alone."""
    account = find_account(run_as)
    if account is None and not is_id(run_as):
        shown = run_as[:LONGEST_NAME]
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"there is no user '{shown}' on this node",
            hint=f"make it (`useradd --system {shown}`), or name another one in `run_as`",
            field="run_as",
        )
    uid = account.uid if account is not None else int(run_as)
    gid = account.gid if account is not None else uid
    if os.geteuid() == 0:
        return RunUser(name=run_as, uid=uid, gid=gid, groups=tuple(dict.fromkeys((gid, *groups))))
    if uid != os.geteuid():
        raise Rejected(
            Code.RUN_AS_REFUSED,
            f"this daemon runs as {name_of(os.geteuid())} and cannot run a workload as '{run_as}'",
            hint="run the daemon as root, or leave `run_as` out",
            field="run_as",
        )
    return own_user()


def spawn_plan(spec: RunSpec, *, user: RunUser, marks: dict[str, str], segment_bytes: int) -> dict[str, Any]:
    """A request to the keeper. INVALID_FIELD for values that cannot be passed to a process,
    ARGUMENTS_TOO_LONG for more than any kernel takes."""
    if not spec.command or not spec.command[0]:
        raise Rejected(Code.INVALID_FIELD, f"run {spec.run_name} has no command", field="command")
    _check_texts(spec)
    plan = {
        "do": "spawn",
        "run": spec.run_name,
        "run_directory": spec.run_directory,
        "directory": spec.directory,
        "command": list(spec.command),
        "environment": {**spec.environment, **marks},
        "marks": [f"{name}={value}" for name, value in marks.items()],
        "uid": user.uid,
        "gid": user.gid,
        "groups": list(user.groups),
        "stdin": spec.stdin,
        "tty": spec.tty,
        "segment_bytes": segment_bytes,
        "quota_bytes": spec.limits.console_mb * _MEBIBYTE,
    }
    if len(pack(plan)) > MAX_FRAME:
        raise Rejected(
            Code.ARGUMENTS_TOO_LONG,
            f"the arguments and environment of run {spec.run_name} are too long for any kernel",
            hint="one argument or value may have 128 KiB, all of them about 2 MiB",
        )
    return plan


def _check_texts(spec: RunSpec) -> None:
    for text in (*spec.command, *spec.environment.values(), spec.directory, *spec.environment):
        if "\0" in text:
            raise Rejected(Code.INVALID_FIELD, f"run {spec.run_name}: {text[:40]!r} contains a zero byte")
    for name in spec.environment:
        if not name or "=" in name:
            raise Rejected(
                Code.INVALID_FIELD,
                f"run {spec.run_name}: {name[:40]!r} is no name of a variable",
                field="env",
            )


_GONE_SECONDS: Final = 10.0


async def spawn(
    spec: RunSpec,
    user: RunUser,
    *,
    dialogue: KeeperDialogue,
    hello: dict[str, Any],
    cgroups: Cgroups,
    spare: SpareShim | None = None,
) -> RunRecord | None:
    """The dialogue with the shim, which is `spare` if there is one, and what it recorded of the run. When this fails, no
    process of the run is left. None: the shim was killed after its `go`, and may have started the workload, or it is of an
    earlier version; the files show it."""
    if "error" in hello:
        raise _failure(spec, user, hello)
    shim = open_process(hello["shim"], hello["start"])
    go: dict[str, Any] | None = None
    try:
        if spare is not None and cgroups.spares is not None:
            files = cgroups.spares.bind(spare.slot, spec.run_name, limits=spec.limits)
        else:
            files = await cgroups.create(spec.run_name, shim_pid=hello["shim"], limits=spec.limits)
        go = {
            "go": True,
            "cgroup_files": files,
            "placed": spare.child if spare is not None else 0,
            "oom_file": cgroups.oom_file(spec.run_name),
        }
        answer = await _let_go(dialogue, go)
        if answer is not None and "error" in answer:
            raise _failure(spec, user, answer)
        return parse_record(os.fsencode(answer["record"])) if answer and "record" in answer else None
    except BaseException as error:
        await dialogue.close()
        if go is None or isinstance(error, CorralError):  # otherwise it may be running
            await _undo(cgroups, spec.run_name, shim, spare)
        raise
    finally:
        if shim is not None:
            os.close(shim)


async def _let_go(dialogue: KeeperDialogue, go: dict[str, Any]) -> dict[str, Any] | None:
    """Release the workload; the shim's answer, None when it is gone."""
    try:
        await dialogue.send(go)
    except ConnectionError:
        return None
    return await dialogue.receive()


def _failure(spec: RunSpec, user: RunUser, answer: dict[str, Any]) -> CorralError:
    failure = ExecFailure(answer["error"], answer["errno"], answer["path"])
    return start_failure(failure, user=user.name, directory=spec.directory, command=spec.command[0])


async def _undo(cgroups: Cgroups, run: str, shim: int | None, spare: SpareShim | None) -> None:
    """After a failed spawn: wait for the shim, which ends by itself, then remove its group."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_GONE_SECONDS):
            if shim is not None:
                await readable(shim)
    await remove_group_if_empty(cgroups, run)
    if spare is not None and cgroups.spares is not None:  # it may not have become the run's yet
        await drop_spare_group(cgroups.spares, spare.slot)
