"""Addresses of instances that operators set."""

from __future__ import annotations

import msgspec

from corral.controller.instances.workspace import Workspace
from corral.domain.groups.instance_records import InstanceRecord
from corral.errors import Code, Rejected
from corral.system.addresses import usable_host


def set_host_address(ws: Workspace, id: str, address: str) -> InstanceRecord:
    """Set where the present run is reached, for those who are sent to it; empty: at the address of its node again.
    INVALID_FIELD."""
    record = ws.require_instance(id)
    if address and not usable_host(address):
        raise Rejected(
            Code.INVALID_FIELD,
            f"nobody can be sent to {address[:80]!r}",
            hint="use the name or the address of a host, without a port",
            field="host_address",
        )
    if record.host_address == address:
        return record
    changed = msgspec.structs.replace(record, host_address=address)
    ws.put_instance(changed)
    return changed
