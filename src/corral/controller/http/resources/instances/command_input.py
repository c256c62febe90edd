"""Input of a line into an instance, for every route that does so: audited, sent once, shown in open consoles."""

from __future__ import annotations

from typing import Final

from corral.controller.consoles.service import Consoles
from corral.controller.http.pipeline.attempts import Attempt, may_have_arrived
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.instances.instance_commands import CommandTarget, SentLine
from corral.controller.state.cluster_state import ClusterState
from corral.domain.ids import InstanceId
from corral.domain.records import BegunEffect
from corral.errors import Code, CorralError, Rejected

ACTION: Final = "instances.command"

_NOTHING_SENT: Final = frozenset(
    {
        Code.DISK_FULL,
        Code.INPUT_CLOSED,
        Code.INPUT_NOT_READ,
        Code.INVALID_FIELD,
        Code.NOT_FOUND,
        Code.NOT_RUNNING,
        Code.STALE_INCARNATION,
    }
)
"""Errors of a node that mean that this attempt sent nothing."""


async def send(
    state: ClusterState,
    instances: InstanceControl,
    consoles: Consoles,
    id: InstanceId,
    line: str,
    attempt: Attempt,
    *,
    line_id: str | None = None,
) -> SentLine:
    """Send a line to an instance's input and show it in open consoles; the caller commits its event and its entry.
    `line_id`: what the caller calls the line by.

    The line is for the run that was there at the first attempt, and for no other one. NOT_RUNNING,
    STALE_INCARNATION, INPUT_NOT_READ, INPUT_CLOSED, NODE_OFFLINE, TIMEOUT, MAY_HAVE_ARRIVED.
    """
    commands, begun, repeated = instances.commands, attempt.begun, attempt.in_doubt
    target = commands.target(id, line) if begun is None else _former_target(state, instances, id, begun)
    if begun is None or not repeated:
        begun = await attempt.begin(
            action=ACTION,
            subject=id,
            after={"command": line},
            node=target.node,
            incarnation=target.incarnation,
        )
    else:
        attempt.resume(action=ACTION, subject=id)
    ring = consoles.ring((id, target.incarnation))
    received = ring.end if ring is not None and not repeated else None
    try:
        offset = await commands.send(target, line, id=begun.id, repeated=repeated)
    except CorralError as error:
        if error.code in _NOTHING_SENT and not repeated:
            await attempt.undo()
        raise
    # A daemon of a former version does not tell the place: what was received before is not behind it.
    sent = SentLine(
        target=target, line=line, actor=attempt.actor, offset=received if offset is None else offset
    )
    consoles.add_input_line(sent, id=line_id)
    return sent


def _former_target(
    state: ClusterState, instances: InstanceControl, id: InstanceId, begun: BegunEffect
) -> CommandTarget:
    """The run that an earlier attempt was meant for, if its node knows whether the line arrived there."""
    found = state.instances.find(id)
    group = found.record.group if found is not None else ""
    target = CommandTarget(instance=id, incarnation=begun.incarnation, node=begun.node, group=group)
    if state.nodes.find(target.node) is None:
        raise _in_doubt(target)
    if not instances.commands.executes_once(target) and not begun.undone:
        raise _in_doubt(target)
    return target


def _in_doubt(target: CommandTarget) -> Rejected:
    return may_have_arrived(
        f"the line may have arrived at run {target.incarnation} of instance '{target.instance}'",
        hint="it is not sent again; look at the console, and send it with a new key if it did not arrive",
    )
