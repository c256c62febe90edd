"""Control groups under systemd: one transient scope for each run, which stays when the daemon's unit stops.

The scope is delegated: its two leaves, their limits, freezing and killing are done here. systemd removes a
scope with its last process. Each call over the system bus has a connection of its own and a deadline: a
restart of the bus costs one call, and no call waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any, Final

from jeepney import DBusAddress, MatchRule, message_bus, new_method_call
from jeepney.io.asyncio import DBusRouter, open_dbus_connection
from jeepney.io.blocking import open_dbus_connection as open_blocking_connection
from jeepney.io.common import RouterClosed
from jeepney.wrappers import DBusErrorResponse, Properties, unwrap_msg

from corral.errors import Code, CorralError, Retryable
from corral.runtimes.cgroups import control_files, unified
from corral.runtimes.cgroups.port import CgroupFacts, SpareGroups
from corral.runtimes.cgroups.proof import proven_facts
from corral.runtimes.cgroups.run_groups import escaped, is_keeper_name, keeper_name, unescaped
from corral.runtimes.cgroups.v2 import RunsInOneTree
from corral.sdk.runtime import RunLimits

SLICE: Final = "corral.slice"
_PREFIX: Final = "corral-"
_SUFFIX: Final = ".scope"


def systemd_is_pid_1() -> bool:
    """Whether systemd is the init process, as sd_booted(3) tests it; false within a container that shares
    only the directory."""
    try:
        first = pathlib.Path("/proc/1/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return False
    return first in ("systemd", "init") and pathlib.Path("/run/systemd/system").is_dir()


def open_systemd(mount: str, owner: str) -> SystemdCgroups:
    """Open the adapter. Requests the place of its groups from systemd over the system bus (blocking, with a
    deadline)."""
    group = manager_group().rstrip("/")
    path = f"{mount}{group}"
    if not pathlib.Path(path, "cgroup.procs").exists():
        raise Retryable(Code.NOT_SUPPORTED, f"the manager's groups are not in the v2 hierarchy ({path})")
    return SystemdCgroups(f"{path}/{SLICE}", owner)


class SystemdCgroups(RunsInOneTree):
    """Scopes `corral-<run>[:<owner>].scope` in `corral.slice`."""

    name = "systemd"
    spares: SpareGroups | None = None
    """A scope is started with its name, which is that of its run."""

    def __init__(self, directory: str, owner: str) -> None:
        """`directory`: the group of the slice."""
        self._directory = directory
        self._ending = f":{owner}{_SUFFIX}" if owner else _SUFFIX

    async def prove(self) -> CgroupFacts:
        return await proven_facts(self)

    async def create(self, run: str, *, shim_pid: int, limits: RunLimits) -> tuple[str, ...]:
        unit = self._unit(run)
        await start_scope(unit, slice=SLICE, pid=shim_pid, description=f"Corral run {run}")
        try:
            work = unified.make_leaves(self._group(run), shim_pid=shim_pid)
        except OSError as error:
            with contextlib.suppress(CorralError):
                await stop_unit(unit)
            raise Retryable(
                Code.SPAWN_FAILED, f"cannot divide the control group of run '{run}' ({unit}): {error}"
            ) from error
        unified.set_limits(work, limits)
        return (f"{work}/cgroup.procs",)

    async def remove(self, run: str) -> None:
        """Remove a run's scope. An empty scope goes by itself; stopping it only makes sure. systemd kills the
        content of a scope that it stops: a scope that is not empty is refused."""
        group = self._group(run)
        if unified.is_populated(group):
            raise Retryable(
                Code.CONFLICT,
                f"cannot remove {self._unit(run)}: processes {control_files.member_pids(group)} are left",
                hint="wait until the run is empty, or kill it",
            )
        await stop_unit(self._unit(run))

    def leftovers(self) -> list[str]:
        names = unified.groups_below(self._directory, _PREFIX)
        found = [name.removesuffix(self._ending) for name in names if name.endswith(self._ending)]
        return [unescaped(name) for name in found if ":" not in name and not is_keeper_name(name)]

    async def place_keeper(self, pid: int, name: str) -> None:
        unit = f"{_PREFIX}{keeper_name(name, pid)}{self._ending}"
        if pid in control_files.member_pids(f"{self._directory}/{unit}"):
            return
        await start_scope(unit, slice=SLICE, pid=pid, description=f"Corral keeper {name}")

    async def close(self) -> None:
        """No-op: scopes outlive the daemon."""

    def _unit(self, run: str) -> str:
        return f"{_PREFIX}{escaped(run)}{self._ending}"

    def _group(self, run: str) -> str:
        return f"{self._directory}/{self._unit(run)}"


DEADLINE: Final = 15.0
_BUS: Final = "SYSTEM"
_NAME: Final = "org.freedesktop.systemd1"
_PATH: Final = "/org/freedesktop/systemd1"
_MANAGER: Final = DBusAddress(_PATH, bus_name=_NAME, interface=f"{_NAME}.Manager")
_NO_LIMIT: Final = 2**64 - 1
_NOT_LOADED: Final = (f"{_NAME}.NoSuchUnit", "org.freedesktop.DBus.Error.UnknownObject")


def manager_group() -> str:
    """systemd's own group, below which all its units lie. Blocks; for the start of the daemon."""
    try:
        with open_blocking_connection(_BUS) as connection:
            asked = Properties(_MANAGER).get("ControlGroup")
            reply = connection.send_and_get_reply(asked, timeout=DEADLINE)
            return str(unwrap_msg(reply)[0][1])
    except (OSError, EOFError, DBusErrorResponse) as error:
        raise _unreachable(error) from error


async def start_scope(unit: str, *, slice: str, pid: int, description: str) -> None:
    """Start a transient scope that holds this process, delegated to us; running when this returns. systemd
    forgets it with its last process, however that ended."""
    properties = [
        ("Description", ("s", description)),
        ("Slice", ("s", slice)),
        ("PIDs", ("au", [pid])),
        ("Delegate", ("b", True)),
        ("CollectMode", ("s", "inactive-or-failed")),
        ("TasksMax", ("t", _NO_LIMIT)),
    ]
    call = new_method_call(_MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))", (unit, "fail", properties, []))
    result = await _job(call, unit)
    if result != "done":
        raise Retryable(Code.SPAWN_FAILED, f"systemd did not start {unit}: the job ended as '{result}'")


async def stop_unit(unit: str) -> None:
    """Stop a unit. Idempotent: a unit that is not loaded counts as stopped."""
    await _job(new_method_call(_MANAGER, "StopUnit", "ss", (unit, "replace")), unit)


async def _job(call: Any, unit: str) -> str:
    """Make a call that returns a job, and wait for the end of that job; returns its result."""
    rule = MatchRule(type="signal", interface=_MANAGER.interface, member="JobRemoved", path=_PATH)
    async with _router(unit) as router:
        ended: asyncio.Queue[Any] = asyncio.Queue()
        with router.filter(rule, queue=ended):
            await _reply(router, message_bus.AddMatch(rule))
            await _reply(router, new_method_call(_MANAGER, "Subscribe"))
            try:
                (job,) = await _reply(router, call)
            except DBusErrorResponse as error:
                if error.name in _NOT_LOADED:
                    return "done"
                raise
            while True:
                _, path, _, result = (await ended.get()).body
                if path == job:
                    return str(result)


@contextlib.asynccontextmanager
async def _router(unit: str) -> AsyncIterator[DBusRouter]:
    try:
        async with asyncio.timeout(DEADLINE):
            connection = await open_dbus_connection(_BUS)
            try:
                async with DBusRouter(connection) as router:
                    yield router
            finally:
                await connection.close()
    except TimeoutError as error:
        raise Retryable(
            Code.TIMEOUT,
            f"systemd did not answer about {unit} within {DEADLINE:g} s",
            hint="see `systemctl list-jobs`; the call is made again with the next order",
        ) from error
    except (OSError, EOFError, RouterClosed) as error:
        raise _unreachable(error) from error
    except DBusErrorResponse as error:
        raise Retryable(Code.SPAWN_FAILED, f"systemd refused {unit}: {_error_text(error)}") from error


async def _reply(router: DBusRouter, call: Any) -> tuple[Any, ...]:
    body: tuple[Any, ...] = unwrap_msg(await router.send_and_get_reply(call))
    return body


def _unreachable(error: Exception) -> Retryable:
    text = _error_text(error) if isinstance(error, DBusErrorResponse) else str(error) or type(error).__name__
    return Retryable(
        Code.UNREACHABLE,
        f"systemd cannot be reached over the system bus: {text}",
        hint="is dbus running (`systemctl status dbus`)?",
    )


def _error_text(error: DBusErrorResponse) -> str:
    return f"{error.name}: {error.data[0]}" if error.data else str(error.name)
