"""Commands: those of modules as a list, and the execution of any."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.messages.paging import Page, PageQuery, page_of_sorted
from corral.controller.http.pipeline.attempts import Attempt
from corral.controller.http.pipeline.route_table import Once, Read, Route
from corral.controller.http.pipeline.scoping import Scoping
from corral.controller.http.resources.instances.command_execution import (
    COST,
    DEADLINE_SECONDS,
    CommandOutput,
    CommandServices,
    execute,
)
from corral.controller.http.resources.instances.instances import CommandLine
from corral.controller.modules.module_service import Modules
from corral.controller.state.ledger import Mutation
from corral.domain.permissions import Permission
from corral.sdk.protocol.messages import CommandDeclaration


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


class CommandExecution(CommandLine, frozen=True, kw_only=True):
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=120)] = int(DEADLINE_SECONDS)


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
    services: CommandServices, call: ApiCall[CommandExecution, NoQuery], attempt: Attempt
) -> Mutation:
    """The permissions depend on the command: see `execute`."""
    return await execute(
        services,
        caller=call.caller,
        line=call.body.command,
        request=call.request,
        attempt=attempt,
        seconds=call.body.timeout_seconds,
    )


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
        permission=Permission.SELF_READ,
        summary="Run a command of the command line (commands.execute), or of a module (modules.use)",
        body=CommandExecution,
        cost=COST,
        scope=Scoping.FILTERS,
        response=CommandOutput,
        handler=execute_command,
    ),
)
