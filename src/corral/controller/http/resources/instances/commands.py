"""Console commands that modules add."""

from __future__ import annotations

import shlex
from typing import Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.messages.paging import Page, PageQuery, page_of_sorted
from corral.controller.http.pipeline.attempts import Attempt
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.module_answers import in_doubt, public_failure, settle_failure
from corral.controller.http.pipeline.route_table import Once, Read, Route
from corral.controller.http.resources.instances.instances import CommandLine
from corral.controller.modules.module_service import Modules
from corral.controller.state.ledger import Mutation
from corral.domain.permissions import Permission
from corral.errors import Code, CorralError, Rejected
from corral.modules.services.command_table import CommandMatch
from corral.sdk.protocol.messages import (
    COMMAND,
    CallerBody,
    CommandAnswer,
    CommandDeclaration,
    CommandRequest,
)

ACTION: Final = "commands.execute"
DEADLINE_SECONDS: Final = 30.0


class ParameterShape(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    required: bool
    help: str


class CommandShape(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    module: str
    help: str
    permission: str
    usage: str
    parameters: list[ParameterShape]


class CommandOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The output of the command."""

    module: str
    lines: list[str]


def _shape(entry: tuple[str, CommandDeclaration]) -> CommandShape:
    module, command = entry
    return CommandShape(
        name=command.name,
        module=module,
        help=command.help,
        permission=command.permission,
        usage=_usage(command),
        parameters=[
            ParameterShape(name=each.name, required=each.required, help=each.help)
            for each in command.parameters
        ],
    )


def _usage(command: CommandDeclaration) -> str:
    named = [f"<{each.name}>" if each.required else f"[{each.name}]" for each in command.parameters]
    return " ".join([command.name, *named])


async def list_commands(modules: Modules, call: ApiCall[None, PageQuery]) -> Page[CommandShape]:
    return page_of_sorted(
        sorted(modules.engine.commands.all(), key=lambda entry: entry[1].name),
        call.query,
        kind="commands",
        key=lambda entry: entry[1].name,
        shape=_shape,
    )


async def execute_command(
    modules: Modules, call: ApiCall[CommandLine, NoQuery], attempt: Attempt
) -> Mutation:
    match = modules.engine.commands.find(words_of(call.body.command))
    authorise(call.caller, _declared(match.declaration))
    caller, module = call.caller, match.scope.module_id
    asked = CommandRequest(
        command=match.declaration.number,
        arguments=tuple(match.arguments),
        caller=CallerBody(
            name=caller.actor.name, role=caller.access.role or "", address=caller.actor.address
        ),
    )
    named = f"command '{match.declaration.name}'"
    if attempt.in_doubt:
        raise in_doubt(module, named)
    await attempt.begin(action=ACTION, subject=module, after={"command": call.body.command})
    try:
        answer = await _executed(match, asked)
    except CorralError as error:
        await settle_failure(attempt, error)
        raise
    return Mutation(
        action=ACTION,
        subject=module,
        steps=(),
        body=CommandOutput(module=module, lines=list(answer.lines)),
    )


async def _executed(match: CommandMatch, asked: CommandRequest) -> CommandAnswer:
    module, name = match.scope.module_id, match.declaration.name
    try:
        return await match.scope.call(
            f"command:{name}", COMMAND, asked, answer=CommandAnswer, deadline=DEADLINE_SECONDS
        )
    except (CorralError, msgspec.MsgspecError) as error:
        raise public_failure(module, f"command '{name}'", error) from error


def words_of(line: str) -> list[str]:
    """A line as a shell would split it; BAD_REQUEST for an open quote, and for nothing."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise Rejected(Code.INVALID_FIELD, f"the command cannot be read: {error}", field="command") from None
    if not words:
        raise Rejected(
            Code.INVALID_FIELD,
            "the command is empty",
            hint="GET /api/v1/commands lists them",
            field="command",
        )
    return words


def _declared(command: CommandDeclaration) -> Permission:
    try:
        return Permission(command.permission)
    except ValueError:
        raise Rejected(
            Code.FORBIDDEN, f"command '{command.name}' asks for a permission that does not exist"
        ) from None


ROUTES: Final[tuple[Route, ...]] = (
    Read(
        method="GET",
        path="/api/v1/commands",
        permission=Permission.MODULES_READ,
        summary="List console commands of modules",
        query=PageQuery,
        response=Page[CommandShape],
        handler=list_commands,
    ),
    Once(
        method="POST",
        path="/api/v1/commands/execute",
        permission=Permission.MODULES_USE,
        summary="Run a console command of a module",
        body=CommandLine,
        response=CommandOutput,
        handler=execute_command,
    ),
)
