"""A line for an instance, whichever way it comes: sent, echoed to those who watch, and audited."""

from __future__ import annotations

from typing import Final

from corral.controller.http.setting import Leading
from corral.controller.ledger import Actor, audit
from corral.domain.ids import InstanceId

ACTION: Final = "instances.command"


async def send(leading: Leading, id: InstanceId, line: str, *, actor: Actor) -> None:
    """Put a line into an instance's input and show it to those who watch; the caller audits it.

    NOT_RUNNING, STALE_INCARNATION, INPUT_NOT_READ, INPUT_CLOSED, NODE_OFFLINE, TIMEOUT.
    """
    await leading.instances.send_command(id, line, actor)
    leading.consoles.echo(id, line=line, by=actor.name)


async def send_and_audit(leading: Leading, id: InstanceId, line: str, *, actor: Actor) -> None:
    await send(leading, id, line, actor=actor)
    await leading.ledger.commit(audit(actor, ACTION, id, after={"command": line}))
