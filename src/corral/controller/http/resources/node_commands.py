"""Commands that a node answers from what it knows itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from corral.controller.http.messages.call import ApiCall, Caller, NoQuery
from corral.controller.http.pipeline.attempts import Attempt
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.route_table import Once, Route
from corral.controller.http.pipeline.scoping import ANY
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.instances.command_execution import (
    CommandError,
    CommandOutput,
    audited,
    words_of,
)
from corral.controller.http.resources.instances.instances import CommandLine
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected, unknown_choice

ACTION: Final = "nodes.command"
_WORDS_MAX: Final = 16
NEEDED: Final[Mapping[str, Permission]] = {
    "cache": Permission.NODES_READ,
    "help": Permission.NODES_READ,
    "instance": Permission.INSTANCES_READ,
    "module": Permission.MODULES_READ,
    "node": Permission.NODES_READ,
    "ports": Permission.NODES_READ,
}
"""First words that nodes are asked, and what a caller needs to read the same by the API."""


@dataclass(frozen=True, kw_only=True)
class NodeCommandServices:
    """The parts of a term that a command on a node takes."""

    state: ClusterState
    instances: InstanceControl


async def run_on_node(
    services: NodeCommandServices, *, caller: Caller, node: str, line: str, attempt: Attempt
) -> Mutation:
    """Have a node answer a command; its output is the body. NOT_FOUND, FORBIDDEN, INVALID_FIELD, NODE_OFFLINE, NOT_SUPPORTED,
    TIMEOUT, RATE_LIMITED."""
    record = services.state.nodes.require(node).record
    words = words_of(line)
    if len(words) > _WORDS_MAX:
        raise Rejected(Code.INVALID_FIELD, f"the command has more than {_WORDS_MAX} words", field="command")
    needed = NEEDED.get(words[0])
    if needed is None:
        raise unknown_choice(
            "command of a node", words[0][:200], NEEDED, code=Code.NOT_FOUND, field="command"
        )
    authorise(caller, needed)
    for permission in (Permission.COMMANDS_EXECUTE, needed):
        if not caller.access.allows_on_instance(permission, ANY, node):
            raise Rejected(
                Code.FORBIDDEN,
                f"'{permission}' is granted for a part of node '{node}' only, and a node tells all of it",
                hint="use a token whose scope names the node and no groups; 'corral whoami' shows it",
            )
    await attempt.begin(action=ACTION, subject=node, after=audited(line, words))
    answer = await services.instances.node_commands.run(record.id, words)
    error = (
        CommandError(code=answer.code, message=answer.message, hint=answer.hint or None)
        if answer.code
        else None
    )
    body = CommandOutput(command=line, output=list(answer.lines), exit_code=1 if error else 0, error=error)
    return Mutation(action=ACTION, subject=node, steps=(), body=body, failed=answer.code)


async def run_command(
    services: NodeCommandServices, call: ApiCall[CommandLine, NoQuery], attempt: Attempt
) -> Mutation:
    return await run_on_node(
        services, caller=call.caller, node=call.path["id"], line=call.body.command, attempt=attempt
    )


ROUTES: Final[tuple[Route, ...]] = (
    Once(
        method="POST",
        path="/api/v1/nodes/{id}/command",
        permission=Permission.COMMANDS_EXECUTE,
        summary="Ask a node what only it can tell: runs and pids, modules, cache, ports",
        body=CommandLine,
        response=CommandOutput,
        handler=run_command,
    ),
)
