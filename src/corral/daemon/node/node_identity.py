"""Which node this is: known from its data directory, or learned with a join token."""

from __future__ import annotations

import socket

from corral.daemon.node.enrolment import enrol
from corral.daemon.node.identity import Identity, load_identity
from corral.daemon.node.known_controllers import LinkMemory
from corral.errors import Code, Rejected
from corral.system.config_schema import DaemonConfig


async def identify(
    config: DaemonConfig, memory: LinkMemory, *, machine_id: str, join: str | None
) -> Identity:
    """The identity in the data directory, after enrolling where there is a token. NOT_FOUND without either,
    INVALID_CONFIG where the configuration speaks of another node, or of no controller."""
    data = config.data
    if join:
        wanted = config.node_id(host_name=socket.gethostname())
        await enrol(data, token_text=join, node_id=wanted, machine_id=machine_id, learn=memory.remember)
    identity = load_identity(data)
    if identity is None:
        raise Rejected(
            Code.NOT_FOUND,
            f"{data} is not enrolled in a cluster",
            hint="run 'corral node join-token' at the controller and start the daemon with --join TOKEN",
        )
    if config.node.id and config.node.id != identity.node_id:
        raise Rejected(
            Code.INVALID_CONFIG,
            f"{data} belongs to node '{identity.node_id}', not '{config.node.id}'",
            hint="use another data directory, or leave node.id out",
            field="node.id",
        )
    if not memory.addresses:
        raise Rejected(
            Code.INVALID_CONFIG,
            "no controller address is known",
            hint="give one with --controller HOST:PORT",
            field="controllers",
        )
    return identity
