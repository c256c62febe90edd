"""Runs of a node whose data was put back to an earlier copy: it lists runs that have ended, and no longer knows later ones."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.instances.report_values import exit_record
from corral.controller.instances.workspace import Workspace
from corral.domain.events import EventType
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.instance_states import InstanceState, Wanted

_FORMER_NONCES: Final = 16


def former_nonces(record: InstanceRecord) -> tuple[str, ...]:
    """The nonces of earlier runs of its start, when another run follows."""
    if not record.nonce:
        return record.former_nonces
    return (*record.former_nonces, record.nonce)[-_FORMER_NONCES:]


def with_nonce(record: InstanceRecord, nonce: str) -> InstanceRecord:
    """The record of its run with the nonce that was reported; nodes change it before they execute a run."""
    if nonce in ("", record.nonce):
        return record
    return msgspec.structs.replace(record, nonce=nonce, former_nonces=former_nonces(record))


def is_end_stored(ws: Workspace, record: InstanceRecord, incarnation: int, nonce: str) -> bool:
    """Is the end of this very run stored? Then it is not alive, whatever its node lists."""
    crash = ws.crash(f"{record.id}.{incarnation}")
    return bool(nonce) and (
        nonce in record.former_nonces
        or (crash is not None and crash.nonce == nonce)
        or any(
            start.incarnation == incarnation and start.exit is not None and start.exit.known
            for start in record.earlier
        )
    )


def announce_unknown_end(ws: Workspace, record: InstanceRecord, *, restarted_as: int = 0) -> None:
    """Add the event of a run that its node has forgotten, and whose record another run takes. None for a run that was
    never reported, or whose end was."""
    state = record.state_before_offline or record.state
    if not live(record.state) or state is InstanceState.SCHEDULED:
        return
    crashed = record.wanted is Wanted.RUN
    exit = exit_record(None, crashed=crashed, now=ws.now)
    ws.event(
        EventType.INSTANCE_CRASHED if crashed else EventType.INSTANCE_STOPPED,
        record.id,
        group=record.group,
        node=record.node,
        incarnation=record.incarnation,
        reason=f"node '{record.node}' was put back to an earlier state: {exit.summary}",
        exit=msgspec.to_builtins(exit),
        **({"restarted_as": restarted_as} if restarted_as else {}),
    )
