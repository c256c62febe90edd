"""Faults that keep a record of a node from being stored, by their treatment: retried, ending the session,
waiting for a repair of the store, or a fault of the record itself, which is set aside so that the following
ones are stored."""

from __future__ import annotations

from typing import Final

from corral.controller.state.quarantine import NotOverwritten
from corral.errors import Code, CorralError, Retryable
from corral.store.store_errors import Conflict, Fenced
from corral.system.aio.backoff import doubled
from corral.wire.frame_table import NodeFrame
from corral.wire.v1.node_pb2 import ErrorReport

QUICK_CONFLICTS: Final = 10
"""The number of conflicts that are retried at once; further ones are retried with growing pauses."""
_SLOWEST_SECONDS: Final = 2.0
_SLOWEST_REPAIR_SECONDS: Final = 60.0
_TEXT: Final = 400


def ends_session(error: Exception) -> bool:
    """Does the fault end the session? The record is valid: this controller no longer leads, or is stopping."""
    return isinstance(error, Fenced) or (isinstance(error, CorralError) and error.code is Code.SHUTTING_DOWN)


def may_pass(error: Exception) -> bool:
    """Can a retry succeed without any other change?"""
    return isinstance(error, Retryable | Conflict) and not ends_session(error)


def awaits_repair(error: Exception) -> bool:
    """Does the record wait for a repair? It is valid, and can be stored once a document of the store is
    readable again; it must not be confirmed before that."""
    return isinstance(error, NotOverwritten)


def repair_pause(attempts: int) -> float:
    """Seconds before the next attempt, after this many that met an unreadable document."""
    return doubled(1.0, attempts, longest=_SLOWEST_REPAIR_SECONDS)


def conflict_pause(conflicts: int) -> float:
    """Seconds before the next attempt, after this many conflicts in a row."""
    late = conflicts - QUICK_CONFLICTS
    return 0.0 if late <= 0 else doubled(0.01, late, longest=_SLOWEST_SECONDS)


def described(error: Exception) -> str:
    """The error as text that can be stored."""
    text = f"{type(error).__name__}: {error}"[:_TEXT]
    return text.replace("\0", "\\0").encode(errors="replace").decode()


def aside_report(frame: NodeFrame, error: Exception) -> ErrorReport:
    """The error report about a record that was set aside."""
    code = error.code.name if isinstance(error, CorralError) else Code.INTERNAL.name
    return ErrorReport(
        error_code=code,
        error_message=f"record {frame.sequence} ({frame.kind or 'unknown'}) was set aside: {described(error)}",
        context="intake",
    )
