"""Local socket: orders from this machine, without a controller; one JSON object a line, one answer each.

The socket is for the daemon's own user: access to it is access to every order.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import structlog

from corral.daemon.runs.orphan_runs import OrphanRun
from corral.daemon.runs.run import Run
from corral.daemon.runs.run_files import StopOrder
from corral.daemon.supervise.supervisor import InstanceSupervisor
from corral.domain.instance_states import InstanceState
from corral.errors import Code, CorralError, Rejected, unknown_choice
from corral.system.aio.tasks import Tasks
from corral.system.unix_sockets import listen_privately

NAME: Final = "daemon.sock"
_MAX_LINE: Final = 64 * 1024
_MAX_CLIENTS: Final = 64
_BACKLOG: Final = 16
_log = structlog.get_logger("corral.daemon.orders")
Answer = dict[str, Any]


class LocalSocket:
    """Use as `async with`."""

    def __init__(self, data: pathlib.Path, supervisor: InstanceSupervisor) -> None:
        self._data = data
        self._supervisor = supervisor
        self._serving = Tasks()
        self._open = contextlib.AsyncExitStack()
        self._verbs: dict[str, Callable[[Answer], Awaitable[Answer]]] = {
            "list": self._list,
            "stop": self._stop,
            "kill": self._stop,
            "restart": self._restart,
            "command": self._command,
            "stop-all": self._stop_all,
        }

    async def __aenter__(self) -> LocalSocket:
        listener = listen_privately(self._data / NAME, backlog=_BACKLOG)
        server = await asyncio.start_unix_server(self._accept, sock=listener, limit=_MAX_LINE)
        self._open.push_async_callback(self._close, server)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def _close(self, server: asyncio.Server) -> None:
        server.close()
        await self._serving.close()
        await server.wait_closed()
        with contextlib.suppress(OSError):
            (self._data / NAME).unlink()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= _MAX_CLIENTS:
            _log.warning("local_client.refused", most=_MAX_CLIENTS)
            writer.close()
            return
        self._serving.spawn(self._serve(reader, writer), name="local/serve")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, ValueError, asyncio.IncompleteReadError):
                while line := await reader.readline():
                    answer = await self._answer(line)
                    writer.write(json.dumps(answer).encode() + b"\n")
                    await writer.drain()
        finally:
            writer.close()

    async def _answer(self, line: bytes) -> Answer:
        try:
            request = json.loads(line)
            verb = str(request.get("verb"))
            if verb not in self._verbs:
                raise unknown_choice("verb", verb[:80], self._verbs, code=Code.BAD_REQUEST)
            return {"ok": True, **await self._verbs[verb](request)}
        except CorralError as error:
            return {"ok": False, "code": error.code.name, "message": error.message, "hint": error.hint}
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            return {"ok": False, "code": Code.INVALID_JSON.name, "message": f"not understood: {error}"}
        except OSError as error:
            return {"ok": False, "code": Code.INTERNAL.name, "message": f"it failed: {error}"}

    async def _list(self, _: Answer) -> Answer:
        runs = [as_item(run) for run in self._supervisor.instances.runs()]
        return {"items": [*runs, *map(lost_item, self._supervisor.lost())]}

    async def _stop(self, request: Answer) -> Answer:
        kill = request["verb"] == "kill"
        for lost in self._supervisor.lost():
            if lost.instance_id == _id(request):
                await self._supervisor.end_lost(lost.instance_id, lost.incarnation)
                return {"item": lost_item(lost)}
        order = StopOrder(reason=f"a local order to {request['verb']} it", force=kill)
        run = await self._supervisor.stop(_id(request), incarnation=0, order=order)
        if request.get("wait", True):
            await self._supervisor.settled(run.order.instance_id)
        return {"item": as_item(self._supervisor.instances.find(run.order.instance_id) or run)}

    async def _restart(self, request: Answer) -> Answer:
        order = StopOrder(reason="a local order to restart it", then_restart=True)
        run = await self._supervisor.stop(_id(request), incarnation=0, order=order)
        if run.ended:
            raise Rejected(
                Code.NOT_RUNNING,
                f"instance '{run.order.instance_id}' is {run.state}: there is nothing to restart",
                hint="start it at the controller",
            )
        return {"item": as_item(run)}

    async def _command(self, request: Answer) -> Answer:
        run = await self._supervisor.send_command(
            _id(request), incarnation=0, line=str(request.get("command", ""))
        )
        return {"item": as_item(run)}

    async def _stop_all(self, request: Answer) -> Answer:
        force = bool(request.get("force"))
        await self._supervisor.stop_all(StopOrder(reason="a local order to stop everything", force=force))
        return {"items": [as_item(run) for run in self._supervisor.instances.runs()]}


def _id(request: Answer) -> str:
    found = request.get("id")
    if not isinstance(found, str) or not found:
        raise Rejected(Code.MISSING_FIELD, "'id' is missing", field="id")
    return found


def as_item(run: Run) -> Answer:
    """A run as the command line shows it."""
    outcome = run.outcome
    return {
        "id": run.order.instance_id,
        "group": run.order.group,
        "incarnation": run.order.incarnation,
        "state": run.state.value,
        "pid": run.pid or None,
        "port": run.order.primary_port or None,
        "uptime_ms": run.uptime_ms,
        "reason": run.reason,
        "outcome": outcome.outcome if outcome else None,
        "exit_code": outcome.exit.code if outcome and outcome.exit and not outcome.exit.signal else None,
        "signal": outcome.exit.signal or None if outcome and outcome.exit else None,
        "summary": outcome.summary if outcome else None,
    }


def lost_item(run: OrphanRun) -> Answer:
    """An orphan run: nothing else is known of it."""
    return {
        "id": run.instance_id,
        "group": run.group,
        "incarnation": run.incarnation,
        "state": InstanceState.RUNNING.value,
        "pid": run.pid,
        "port": None,
        "uptime_ms": 0,
        "reason": run.reason,
        "outcome": None,
        "exit_code": None,
        "signal": None,
        "summary": None,
    }
