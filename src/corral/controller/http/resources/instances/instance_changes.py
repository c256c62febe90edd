"""Changes of instances: what their routes share, and waiting until an instance runs, is ready or has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec

from corral.controller.http.messages.call import ApiCall, Query
from corral.controller.http.pipeline.term_ports import InstanceControl
from corral.controller.http.resources.instances.instance_schemas import (
    InstanceShape,
    InstanceView,
    instance_shape,
)
from corral.controller.instances.workspace import Workspace
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.domain.groups.instance_records import InstanceRecord, is_ready, live
from corral.domain.ids import Incarnation, same_start
from corral.domain.instance_states import InstanceState, Wanted
from corral.errors import Code, Rejected, Retryable, counted

WaitSeconds = Annotated[int, msgspec.Meta(ge=1, le=600, description="How long to wait.")]


def workspace(instances: InstanceControl, call: ApiCall[Any, Any], what: str) -> Workspace:
    """A place for the changes of this call; decisions name the caller as their cause."""
    cause = f"{call.caller.actor.name} {what}"
    return instances.workspace(cause=cause, now=call.now, request=call.request, by=caller_name(call))


def caller_name(call: ApiCall[Any, Any]) -> str:
    """The name of the caller's token, for people."""
    actor = call.caller.actor
    return f"'{actor.label}'" if actor.label else actor.name


def placing(instances: InstanceControl, call: ApiCall[Any, Any]) -> asyncio.Lock:
    """The lock of placements."""
    del call
    return instances.placing


class AwaitRunning(Query, frozen=True, kw_only=True):
    wait: (
        Annotated[
            Literal["running", "ready"],
            msgspec.Meta(
                description="Answer when it is RUNNING, or when it is ready; a run that dies before it is ready "
                "is no longer waited for, also if its node restarts it."
            ),
        ]
        | None
    ) = None
    timeout: WaitSeconds = 30


class AwaitStopped(Query, frozen=True, kw_only=True):
    wait: Annotated[Literal["stopped"], msgspec.Meta(description="Answer when it ended.")] | None = None
    timeout: WaitSeconds = 60


async def until_running(
    view: InstanceView, instances: InstanceControl, call: ApiCall[Any, AwaitRunning], shape: InstanceShape
) -> InstanceShape:
    if call.query.wait is None:
        return shape

    what = call.query.wait

    def runs(record: InstanceRecord) -> bool:
        there = is_ready(record) if what == "ready" else record.state is InstanceState.RUNNING
        return there and record.wanted is Wanted.RUN

    stored = await _until(
        view.state, instances, shape, runs, timeout=call.query.timeout, what=what, once=what == "ready"
    )
    if not runs(stored.record):
        raise _start_failed(stored.record, what)
    return instance_shape(view, stored)


async def until_stopped(
    view: InstanceView, instances: InstanceControl, call: ApiCall[Any, AwaitStopped], shape: InstanceShape
) -> InstanceShape:
    if call.query.wait is None:
        return shape

    def over(record: InstanceRecord) -> bool:
        return not live(record.state)

    stored = await _until(view.state, instances, shape, over, timeout=call.query.timeout, what="stopped")
    return instance_shape(view, stored)


async def _until(
    state: ClusterState,
    instances: InstanceControl,
    shape: InstanceShape,
    accepts: Callable[[InstanceRecord], bool],
    *,
    timeout: int,
    what: str,
    once: bool = False,
) -> StoredRecord[InstanceRecord]:
    """The record when it is as wanted, or can no longer become so. A start that took the place of
    the one we wait for (its port was taken, its node refused) is waited for in its turn; with `once` not
    the run that follows one which died."""
    incarnation = shape.incarnation

    def settled(record: InstanceRecord) -> bool:
        return accepts(record) or (once and _follows(record, incarnation))

    try:
        async with asyncio.timeout(timeout):
            while True:
                stored = await instances.settled(shape.id, incarnation, settled, timeout)
                record = stored.record
                if settled(record) or record.incarnation == incarnation or not live(record.state):
                    return stored
                incarnation = record.incarnation
    except (TimeoutError, Retryable) as error:
        if isinstance(error, Retryable) and error.code is not Code.TIMEOUT:
            raise
        found = state.instances.find(shape.id)
        seen = _seen(found.record) if found else "it is gone"
        raise Retryable(
            Code.TIMEOUT,
            f"instance '{shape.id}' was not {what} within {counted(timeout, 'second')}: {seen}",
            hint="it may still become so; look again",
        ) from None


def _follows(record: InstanceRecord, incarnation: int) -> bool:
    """Is it the run that its node made of the same start, after this one had died?"""
    return record.incarnation > incarnation and same_start(record.incarnation, Incarnation(incarnation))


def _seen(record: InstanceRecord) -> str:
    seen = f"it is {record.state}"
    if record.state is InstanceState.RUNNING and not is_ready(record):
        seen += ", but not ready" + (f": {record.reason}" if record.reason else "")
    failure = record.start_failure
    if failure is None or record.started_at is not None:
        return seen
    return f"{seen}, and its last start failed: {failure.code} at {failure.stage}: {failure.message}"[:800]


def _start_failed(record: InstanceRecord, what: str) -> Rejected:
    failure = record.start_failure
    if failure is not None and record.started_at is None:  # else it is of an attempt before this run
        why = f"{failure.code} at {failure.stage}: {failure.message}"
    else:
        why = record.exit.summary if record.exit else record.reason or f"it is {record.state}"
    return Rejected(
        Code.START_FAILED,
        f"instance '{record.id}' did not {'become ready' if what == 'ready' else 'run'}: {why}"[:1000],
        hint=f"see 'corral why {record.id}' and its console",
    )
