"""Execution of a command line for a caller: a command of the command line as a process, a command of a module as a call.

A command of the command line does what the API lets its caller do, and nothing else: it calls the API itself, with a
credential that stands for the caller as long as it runs. `commands.execute` is needed in addition. A command of a module
needs what it declares, and `modules.use`, both everywhere, as its routes do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from corral.controller.accounts.delegations import Delegation, Delegations
from corral.controller.commands.command_process import CommandEnd, CommandFailure, CommandRunner
from corral.controller.http.messages.call import Caller
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.attempts import Attempt, may_have_arrived
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.caller_limits import OpenStreams
from corral.controller.http.pipeline.module_answers import in_doubt, public_failure, settle_failure
from corral.controller.http.pipeline.scoping import only_in_scope
from corral.controller.modules.module_service import Modules
from corral.controller.state.ledger import Mutation
from corral.domain.command_lines import words_of_line
from corral.domain.command_secrets import without_secrets
from corral.domain.ids import NodeId
from corral.domain.permissions import Permission
from corral.errors import Code, CorralError, Rejected, unknown_choice
from corral.modules.services.command_table import CommandMatch
from corral.sdk.protocol.messages import (
    COMMAND,
    CallerBody,
    CommandAnswer,
    CommandDeclaration,
    CommandRequest,
)

ACTION: Final = "commands.execute"
NODE_ACTION: Final = "nodes.command"
SUBJECT: Final = "controller"
COST: Final = 10
"""A command counts as so many requests of its caller, for it takes a process."""
WORDS_MAX: Final = 256
_OF_CONSOLES: Final = ("exit", "quit", "stop")
DEADLINE_SECONDS: Final = 30.0


class CommandError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a command failed. The codes are those of the API, and UNREACHABLE and REFUSED of the command line itself."""

    code: str
    message: str
    hint: str | None = None
    field: str | None = None


class CommandOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a command printed, and how it ended."""

    command: str
    output: list[str]
    exit_code: int
    error: CommandError | None = None
    module: str | None = None


@dataclass(frozen=True, kw_only=True)
class CommandServices:
    """The parts of a term that running a command takes."""

    setting: ProcessContext
    modules: Modules
    running_commands: OpenStreams
    delegations: Delegations


async def execute(
    services: CommandServices,
    *,
    caller: Caller,
    line: str,
    request: str,
    attempt: Attempt,
    seconds: float = DEADLINE_SECONDS,
    node: NodeId | None = None,
) -> Mutation:
    """Run a command line; its output is the body. With a node it does what the caller may there. FORBIDDEN, NOT_FOUND, INVALID_FIELD, RATE_LIMITED before anything is done;
    errors of modules; MAY_HAVE_ARRIVED."""
    words = words_of(line)
    runner = services.setting.commands
    if runner is None or not runner.program.knows(words):
        if node is not None:  # a module knows no nodes
            raise _unknown(words, runner.program.words if runner is not None else ())
        return await _module_command(services, runner, caller, line, words, attempt)
    authorise(caller, Permission.COMMANDS_EXECUTE)
    action, subject = (ACTION, SUBJECT) if node is None else (NODE_ACTION, node)
    delegation = Delegation(caller=caller.id, address=caller.actor.address, node=node)
    with (
        services.running_commands.opened(caller) as stream,
        services.delegations.opened(delegation) as credential,
    ):
        if attempt.in_doubt:
            raise may_have_arrived(
                "the command may have been run",
                hint="it is not run again; look, and ask with a new key if it was not",
            )
        await attempt.begin(action=action, subject=subject, after=audited(line, words))
        end = await runner.run(
            words, credential=credential, request=request, seconds=seconds, closing=stream.closing
        )
        if end.ended and stream.closing.done():
            raise services.running_commands.ended(stream, end.ended)
    return Mutation(
        action=action,
        subject=subject,
        steps=(),
        body=_output(line, end),
        failed=end.error.code if end.error else "",
    )


def _output(line: str, end: CommandEnd) -> CommandOutput:
    return CommandOutput(
        command=line,
        output=list(end.output),
        exit_code=end.exit_code,
        error=_error(end.error) if end.error else None,
    )


def _error(error: CommandFailure) -> CommandError:
    return CommandError(
        code=error.code, message=error.message, hint=error.hint or None, field=error.field or None
    )


async def _module_command(
    services: CommandServices,
    runner: CommandRunner | None,
    caller: Caller,
    line: str,
    words: list[str],
    attempt: Attempt,
) -> Mutation:
    if not caller.access.allows(Permission.MODULES_USE) and caller.access.allows(Permission.COMMANDS_EXECUTE):
        raise _unknown(words, runner.program.words if runner is not None else ())
    _need_everywhere(caller, Permission.MODULES_USE)
    match = _matched(services.modules, runner, words)
    _need_everywhere(caller, _declared(match.declaration))
    module = match.scope.module_id
    asked = CommandRequest(
        command=match.declaration.number,
        arguments=tuple(match.arguments),
        caller=CallerBody(
            name=caller.actor.name, role=caller.access.role or "", address=caller.actor.address
        ),
    )
    if attempt.in_doubt:
        raise in_doubt(module, f"command '{match.declaration.name}'")
    await attempt.begin(action=ACTION, subject=module, after=audited(line, words))
    try:
        answer = await _called(match, asked)
    except CorralError as error:
        await settle_failure(attempt, error)
        raise
    body = CommandOutput(command=line, output=list(answer.lines), exit_code=0, module=module)
    return Mutation(action=ACTION, subject=module, steps=(), body=body)


def _need_everywhere(caller: Caller, permission: Permission) -> None:
    """FORBIDDEN also where it is granted within a scope only: a module knows no scopes."""
    authorise(caller, permission)
    if not caller.access.allows_everywhere(permission):
        raise only_in_scope(permission)


def _matched(modules: Modules, runner: CommandRunner | None, words: list[str]) -> CommandMatch:
    commands = modules.engine.commands
    try:
        return commands.find(words)
    except Rejected as unknown:
        if unknown.code is not Code.NOT_FOUND or runner is None:
            raise
        known = {*runner.program.words, *(declared.name for _, declared in commands.all())}
        raise _unknown(words, known) from None


def _unknown(words: list[str], known: Iterable[str]) -> Rejected:
    if words[0] in _OF_CONSOLES:
        return Rejected(
            Code.NOT_FOUND,
            f"'{words[0]}' is a word of the interactive console, and unknown here",
            hint="POST /api/v1/cluster/shutdown ends the controller",
        )
    return unknown_choice("command", words[0][:200], known, code=Code.NOT_FOUND)


async def _called(match: CommandMatch, asked: CommandRequest) -> CommandAnswer:
    module, name = match.scope.module_id, match.declaration.name
    try:
        return await match.scope.call(
            f"command:{name}", COMMAND, asked, answer=CommandAnswer, deadline=DEADLINE_SECONDS
        )
    except (CorralError, msgspec.MsgspecError) as error:
        raise public_failure(module, f"command '{name}'", error) from error


def audited(line: str, words: Sequence[str]) -> dict[str, object]:
    """What the audit has of a line: values that may be secret are left out."""
    return {"command": without_secrets(line, words)}


def words_of(line: str) -> list[str]:
    """The words of a line; INVALID_FIELD for an open quote, for nothing, and for too much."""
    try:
        words = words_of_line(line)
    except ValueError as error:
        raise Rejected(Code.INVALID_FIELD, f"the command cannot be read: {error}", field="command") from None
    if not words:
        raise Rejected(
            Code.INVALID_FIELD,
            "the command is empty",
            hint="'help' lists the commands, GET /api/v1/commands those of modules",
            field="command",
        )
    if len(words) > WORDS_MAX:
        raise Rejected(Code.INVALID_FIELD, f"the command has more than {WORDS_MAX} words", field="command")
    return words


def _declared(command: CommandDeclaration) -> Permission:
    try:
        return Permission(command.permission)
    except ValueError:
        raise Rejected(
            Code.FORBIDDEN, f"command '{command.name}' asks for a permission that does not exist"
        ) from None
