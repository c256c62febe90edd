"""Runs of a node whose data was put back to an earlier copy: it lists runs that have ended, and no longer knows later ones."""

from __future__ import annotations

from typing import Final

import msgspec

from corral.controller.instances.report_values import exit_record
from corral.controller.instances.workspace import Workspace
from corral.domain.decisions import DecisionKind
from corral.domain.events import EventType
from corral.domain.groups.instance_records import InstanceRecord, live
from corral.domain.instance_states import InstanceState, Wanted

PUT_BACK: Final = (
    "its node was put back to an earlier state, and started it again under a number that was used before"
)
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


def with_awaited_end(record: InstanceRecord) -> InstanceRecord:
    """The record, before a later run takes it, with the end of its run as one that its node has yet to report."""
    if not record.nonce or not live(record.state) or record.started_at is None:
        return record
    awaited = {**record.ends_awaited, record.nonce: record.incarnation}
    return record if len(awaited) > _FORMER_NONCES else msgspec.structs.replace(record, ends_awaited=awaited)


def note_earlier_run(
    ws: Workspace, record: InstanceRecord, incarnation: int, nonce: str, *, ended: bool
) -> InstanceRecord:
    """The record after a report that a run was executed, or has `ended`. Where the end of another run is awaited under
    that number, its node has forgotten that one: its end is announced as unknown."""
    awaited = next((each for each, number in record.ends_awaited.items() if number == incarnation), "")
    other = nonce not in ("", awaited)
    if not awaited or not (other or ended) or (other and nonce in record.former_nonces):
        return record
    if other:
        former = msgspec.structs.replace(
            record, incarnation=incarnation, state=InstanceState.RUNNING, state_before_offline=None
        )
        end_repeated(ws, former, incarnation)
    rest = {each: number for each, number in record.ends_awaited.items() if number != incarnation}
    record = msgspec.structs.replace(record, ends_awaited=rest)
    ws.put_instance(record)
    return record


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


def end_repeated(ws: Workspace, record: InstanceRecord, incarnation: int) -> None:
    """Add the unknown end of a run that a different one follows under a number that was used before; `why` records it."""
    ws.decide(
        DecisionKind.RESTART,
        group=record.group,
        instance=record.id,
        reason=PUT_BACK,
        inputs={"node": record.node, "incarnation": incarnation, "before": record.incarnation},
        causes=(record.decision,),
    )
    announce_unknown_end(ws, record, restarted_as=incarnation)


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
