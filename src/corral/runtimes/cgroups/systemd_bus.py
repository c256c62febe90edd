"""The few calls to systemd that we make, over the system bus. Each has a connection of its own and a
deadline: a bus that restarts costs one call, and none of ours waits for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any, Final

from jeepney import DBusAddress, MatchRule, message_bus, new_method_call
from jeepney.io.asyncio import DBusRouter, open_dbus_connection
from jeepney.io.blocking import open_dbus_connection as open_blocking_connection
from jeepney.io.common import RouterClosed
from jeepney.wrappers import DBusErrorResponse, Properties, unwrap_msg

from corral.errors import Code, Retryable

DEADLINE: Final = 15.0
_BUS: Final = "SYSTEM"
_NAME: Final = "org.freedesktop.systemd1"
_PATH: Final = "/org/freedesktop/systemd1"
_MANAGER: Final = DBusAddress(_PATH, bus_name=_NAME, interface=f"{_NAME}.Manager")
_NO_LIMIT: Final = 2**64 - 1
_NOT_LOADED: Final = (f"{_NAME}.NoSuchUnit", "org.freedesktop.DBus.Error.UnknownObject")


def manager_group() -> str:
    """The manager's own group, beneath which all its units lie. Blocks; for the start of the daemon."""
    try:
        with open_blocking_connection(_BUS) as connection:
            asked = Properties(_MANAGER).get("ControlGroup")
            reply = connection.send_and_get_reply(asked, timeout=DEADLINE)
            return str(unwrap_msg(reply)[0][1])
    except (OSError, EOFError, DBusErrorResponse) as error:
        raise _unreachable(error) from error


async def start_scope(unit: str, *, slice: str, pid: int, description: str) -> None:
    """A transient scope that holds this process, delegated to us; running when this returns. The
    manager forgets it with its last process, however that ended."""
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
    """Idempotent: one that is not loaded is stopped."""
    await _job(new_method_call(_MANAGER, "StopUnit", "ss", (unit, "replace")), unit)


async def _job(call: Any, unit: str) -> str:
    """Makes a call that answers with a job, and waits for the end of that job; returns its result."""
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
        raise Retryable(Code.SPAWN_FAILED, f"systemd refused {unit}: {_said(error)}") from error


async def _reply(router: DBusRouter, call: Any) -> tuple[Any, ...]:
    body: tuple[Any, ...] = unwrap_msg(await router.send_and_get_reply(call))
    return body


def _unreachable(error: Exception) -> Retryable:
    said = _said(error) if isinstance(error, DBusErrorResponse) else str(error) or type(error).__name__
    return Retryable(
        Code.UNREACHABLE,
        f"systemd cannot be reached over the system bus: {said}",
        hint="is dbus running (`systemctl status dbus`)?",
    )


def _said(error: DBusErrorResponse) -> str:
    return f"{error.name}: {error.data[0]}" if error.data else str(error.name)
