"""Universe's commands: a line in, the lines that it prints out, by request and on a WebSocket. What they may do, and what
is recorded of them, is as in our own routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery, TicketedQuery
from corral.controller.http.messages.responses import ApiResponse
from corral.controller.http.pipeline.attempts import Attempt, Attempts
from corral.controller.http.pipeline.caller_limits import RequestRates
from corral.controller.http.pipeline.route_handlers import DialogueOver, WriteText
from corral.controller.http.pipeline.route_table import Once, Route, Socket
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.resources.instances.command_execution import (
    ACTION,
    COST,
    SUBJECT,
    CommandError,
    CommandOutput,
    CommandServices,
    execute,
)
from corral.controller.http.resources.instances.instances import CommandLine
from corral.controller.http.resources.node_commands import NodeCommandServices, run_on_node
from corral.controller.state.ledger import Mutation
from corral.domain.control_characters import spelled
from corral.domain.permissions import Permission
from corral.domain.records import AuditOutcome
from corral.errors import Code, CorralError, Rejected

_LEAVING: Final = ("exit", "quit")


class UniverseOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a command printed."""

    command: str
    output: list[str]
    error: str | None = None


async def _in_universe_form(line: str, running: Awaitable[Mutation], attempt: Attempt) -> Mutation:
    """The output of a command, once it has ended. Of one that nobody knows there is an output, too, as in Universe."""
    try:
        mutation = await running
    except Rejected as error:
        if error.code is not Code.NOT_FOUND or attempt.begun is not None:
            raise
        unknown = CommandError(code=error.code.name, message=error.message, hint=error.hint)
        output = CommandOutput(command=line, output=[], exit_code=2, error=unknown)
        mutation = Mutation(action=ACTION, subject=SUBJECT, steps=(), body=output, failed=error.code.name)
    body = mutation.body
    assert isinstance(body, CommandOutput)
    shown = UniverseOutput(
        command=body.command, output=_lines(body), error=_text(body.error) if body.error else None
    )
    return msgspec.structs.replace(mutation, body=shown)


def _lines(body: CommandOutput) -> list[str]:
    """With the error, which the command line prints itself."""
    if body.error is None or any(body.error.message in line for line in body.output):
        return body.output
    return [*body.output, f"error: {_text(body.error)}"]


def _text(error: CommandError) -> str:
    """What and why, and the next step."""
    return f"{error.message}; {error.hint}" if error.hint else error.message


async def execute_command(
    services: CommandServices, call: ApiCall[CommandLine, NoQuery], attempt: Attempt
) -> Mutation:
    line = call.body.command
    running = execute(services, caller=call.caller, line=line, request=call.request, attempt=attempt)
    return await _in_universe_form(line, running, attempt)


async def execute_on_node(
    services: NodeCommandServices, call: ApiCall[CommandLine, NoQuery], attempt: Attempt
) -> Mutation:
    services.state.nodes.require(call.path["id"])
    return await _in_universe_form(call.body.command, run_on_node(services, call, attempt), attempt)


@dataclass(frozen=True, kw_only=True)
class ConsoleServices:
    """The parts of a term that a console takes."""

    commands: CommandServices
    attempts: Attempts
    rates: RequestRates


class UniverseConsole:
    """A socket on which each message is a command, run one after the other, and each line that it prints a message."""

    def __init__(self, services: ConsoleServices, call: ApiCall[None, TicketedQuery]) -> None:
        self._services = services
        self._call = call
        self._write: asyncio.Future[WriteText] = asyncio.get_running_loop().create_future()

    async def send_messages(self, write: WriteText) -> None:
        """What is sent answers a message: see `receive`."""
        self._write.set_result(write)
        await asyncio.get_running_loop().create_future()

    async def receive(self, text: str) -> bytes | None:
        write = await self._write
        line = text.rstrip("\r\n")
        if not line.strip():
            return None
        if line.strip() in _LEAVING:
            raise DialogueOver("you left the console", asked_for=True)
        try:
            for each in await self._executed(line):
                await write(each)
        except CorralError as error:
            return f"error: {spelled(error.message)}".encode()
        except msgspec.ValidationError:
            return b"error: a command is one line of at most 4,095 characters"
        return None

    async def _executed(self, line: str) -> list[str]:
        msgspec.convert({"command": line}, CommandLine)
        services, caller = self._services, self._call.caller
        services.rates.admit(caller, cost=COST)
        attempt = services.attempts.attempt(
            caller=caller, now=services.commands.setting.clock.now(), guard=None
        )
        async with attempt.concluded():
            done = await execute(
                services.commands, caller=caller, line=line, request=self._call.request, attempt=attempt
            )
            outcome = AuditOutcome.FAILED if done.failed else AuditOutcome.OK
            await attempt.finish(answer=ApiResponse(), outcome=outcome, code=done.failed)
        return _lines(done.body)


async def open_console(services: ConsoleServices, call: ApiCall[None, TicketedQuery]) -> UniverseConsole:
    return UniverseConsole(services, call)


ROUTES: Final[tuple[Route, ...]] = (
    Once(
        method="POST",
        path="/api/commands/execute",
        permission=Permission.SELF_READ,
        summary="Universe: run a command of the command line (commands.execute), or of a module (modules.use)",
        body=CommandLine,
        response=UniverseOutput,
        cost=COST,
        scope=Scoping.FILTERS,
        handler=execute_command,
    ),
    Once(
        method="POST",
        path="/api/cluster/nodes/{id}/command",
        permission=Permission.COMMANDS_EXECUTE,
        summary="Universe: run a command on a node",
        body=CommandLine,
        cost=COST,
        response=UniverseOutput,
        scope=Scoping.NODE,
        handler=execute_on_node,
    ),
    Socket(
        method="GET",
        path="/api/console",
        permission=Permission.COMMANDS_EXECUTE,
        summary="Universe: a WebSocket on which messages are commands, and lines of output messages",
        scope=Scoping.FILTERS,
        handler=open_console,
    ),
)
