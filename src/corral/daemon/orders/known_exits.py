"""How runs ended that the controller has confirmed once and asks about again: its store was put back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog

from corral.daemon.runs.run import Run
from corral.daemon.runs.run_files import Intent, Outcome, RunDirectories
from corral.daemon.runs.run_messages import cut, exit_status, wire_state
from corral.domain.ids import Incarnation, instance_id, same_start
from corral.errors import CorralError
from corral.wire.v1.instance_pb2 import RunName, RunningInstance

MOST_ASKED: Final = 100
_log = structlog.get_logger("corral.daemon.supervise")


def known_end(name: RunName, present: Run | None, runs: RunDirectories) -> RunningInstance | None:
    """The end of this run, or of the last one of the same start if that is the present one; None: nothing is kept of
    it, or it has not ended. Blocks."""
    asked = Incarnation(name.incarnation)
    if present is not None and same_start(present.order.incarnation, asked):
        if present.outcome is None:
            return None
        return _ended(present.intent, present.outcome)
    try:
        files = runs.files(instance_id(name.instance_id), asked)
        outcome, intent = files.outcome(), files.intent()
    except (CorralError, OSError) as error:
        _log.warning("instance.end_not_told", instance=name.instance_id[:80], reason=str(error))
        return None
    return _ended(intent, outcome) if intent is not None and outcome is not None else None


def _ended(intent: Intent, outcome: Outcome) -> RunningInstance:
    order = intent.order
    return RunningInstance(
        instance_id=order.instance_id,
        group=order.group,
        port=order.primary_port,
        state=wire_state(outcome.state),
        incarnation=order.incarnation,
        pid=outcome.pid,
        started_at_ms=outcome.started_at_ms,
        console_offset=outcome.console_end,
        exit=exit_status(outcome),
        plan_hash=order.plan_hash,
        reason=cut(outcome.reason),
        ticket=order.ticket,
        nonce=intent.nonce,
    )


def known_ends(names: Iterable[tuple[RunName, Run | None]], runs: RunDirectories) -> list[RunningInstance]:
    """Those whose end is known. Blocks."""
    found = (known_end(name, present, runs) for name, present in names)
    return [end for end in found if end is not None]
