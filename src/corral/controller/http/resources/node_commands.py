"""Commands on a node: what only it can tell, which it answers itself, and those of the command line, kept to the node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from corral.controller.http.messages.call import ApiCall, NoQuery
from corral.controller.http.pipeline.attempts import Attempt
from corral.controller.http.pipeline.authentication import authorise
from corral.controller.http.pipeline.route_table import Once, Route
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.instances.command_execution import (
    COST,
    NODE_ACTION,
    CommandError,
    CommandOutput,
    CommandServices,
    audited,
    execute,
    words_of,
)
from corral.controller.http.resources.instances.instances import CommandLine
from corral.controller.state.cluster_state import ClusterState
from corral.controller.state.ledger import Mutation
from corral.domain.access import ANY
from corral.domain.ids import NodeId
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

_WORDS_MAX: Final = 16
ANSWERED_BY_NODES: Final[Mapping[tuple[str, ...], Permission]] = {
    ("cache", "list"): Permission.NODES_READ,
    ("help",): Permission.NODES_READ,
    ("instance", "info"): Permission.INSTANCES_READ,
    ("instance", "list"): Permission.INSTANCES_READ,
    ("module", "list"): Permission.MODULES_READ,
    ("node", "info"): Permission.NODES_READ,
    ("node", "resources"): Permission.NODES_READ,
    ("ports",): Permission.NODES_READ,
}
"""First words of what nodes are asked, and what a caller needs to read the same by the API."""


@dataclass(frozen=True, kw_only=True)
class NodeCommandServices:
    """The parts of a term that a command on a node takes."""

    state: ClusterState
    instances: InstanceControl
    commands: CommandServices


async def run_on_node(
    services: NodeCommandServices, call: ApiCall[CommandLine, NoQuery], attempt: Attempt
) -> Mutation:
    """Have a node answer a command, or run it with what the caller may do on the node; its output is the body. NOT_FOUND,
    FORBIDDEN, INVALID_FIELD, NODE_OFFLINE, NOT_SUPPORTED, TIMEOUT, RATE_LIMITED."""
    record = services.state.nodes.require(call.path["id"]).record
    words = words_of(call.body.command)
    needed = ANSWERED_BY_NODES.get(tuple(words[:2])) or ANSWERED_BY_NODES.get(tuple(words[:1]))
    if needed is not None:
        return await _answered(services, call, record.id, words, needed, attempt)
    return await execute(
        services.commands,
        caller=call.caller,
        line=call.body.command,
        request=call.request,
        attempt=attempt,
        node=record.id,
    )


async def _answered(
    services: NodeCommandServices,
    call: ApiCall[CommandLine, NoQuery],
    node: NodeId,
    words: Sequence[str],
    needed: Permission,
    attempt: Attempt,
) -> Mutation:
    caller, line = call.caller, call.body.command
    if len(words) > _WORDS_MAX:
        raise Rejected(Code.INVALID_FIELD, f"the command has more than {_WORDS_MAX} words", field="command")
    authorise(caller, needed)
    for permission in (Permission.COMMANDS_EXECUTE, needed):
        if not caller.access.allows_on_instance(permission, ANY, node):
            raise Rejected(
                Code.FORBIDDEN,
                f"'{permission}' is granted for a part of node '{node}' only, and a node tells all of it",
                hint="use a token whose scope names the node and no groups; 'corral whoami' shows it",
            )
    await attempt.begin(action=NODE_ACTION, subject=node, after=audited(line, words))
    answer = await services.instances.node_commands.run(node, words)
    error = (
        CommandError(code=answer.code, message=answer.message, hint=answer.hint or None)
        if answer.code
        else None
    )
    body = CommandOutput(command=line, output=list(answer.lines), exit_code=1 if error else 0, error=error)
    return Mutation(action=NODE_ACTION, subject=node, steps=(), body=body, failed=answer.code)


ROUTES: Final[tuple[Route, ...]] = (
    Once(
        method="POST",
        path="/api/v1/nodes/{id}/command",
        permission=Permission.COMMANDS_EXECUTE,
        summary="Ask a node what only it can tell, or run a command of the command line kept to it",
        body=CommandLine,
        cost=COST,
        response=CommandOutput,
        handler=run_on_node,
    ),
)
