"""What keeps a record of a node from being stored: what time mends, what ends the session, what waits for a
repair of the store, and what is wrong with the record itself, which is set aside so that all that follow are stored."""

from __future__ import annotations

from typing import Final

from corral.controller.state.quarantine import NotOverwritten
from corral.errors import Code, CorralError, Retryable
from corral.store.store_errors import Conflict, Fenced
from corral.system.aio.backoff import doubled
from corral.wire.frame_table import NodeFrame
from corral.wire.v1.node_pb2 import ErrorReport

QUICK_CONFLICTS: Final = 10
"""So often somebody was just faster; from then on it is tried ever more slowly."""
_SLOWEST_SECONDS: Final = 2.0
_SLOWEST_REPAIR_SECONDS: Final = 60.0
_TEXT: Final = 400


def ends_session(error: Exception) -> bool:
    """Nothing is wrong with what the node sent: this controller does not lead any more, or ends."""
    return isinstance(error, Fenced) or (isinstance(error, CorralError) and error.code is Code.SHUTTING_DOWN)


def may_pass(error: Exception) -> bool:
    """Trying again may help, without anything being changed."""
    return isinstance(error, Retryable | Conflict) and not ends_session(error)


def awaits_repair(error: Exception) -> bool:
    """Nothing is wrong with the record: it is stored as it is once a document of the store can be read again, and
    must not be confirmed before that."""
    return isinstance(error, NotOverwritten)


def repair_pause(attempts: int) -> float:
    """Seconds before the next attempt, after so many that met a document which cannot be read."""
    return doubled(1.0, attempts, longest=_SLOWEST_REPAIR_SECONDS)


def conflict_pause(conflicts: int) -> float:
    """Seconds before the next attempt, after so many conflicts one behind the other."""
    late = conflicts - QUICK_CONFLICTS
    return 0.0 if late <= 0 else doubled(0.01, late, longest=_SLOWEST_SECONDS)


def described(error: Exception) -> str:
    """As text that can be stored, whatever it says."""
    text = f"{type(error).__name__}: {error}"[:_TEXT]
    return text.replace("\0", "\\0").encode(errors="replace").decode()


def aside_report(frame: NodeFrame, error: Exception) -> ErrorReport:
    """What is told of a record that was set aside."""
    code = error.code.name if isinstance(error, CorralError) else Code.INTERNAL.name
    return ErrorReport(
        error_code=code,
        error_message=f"record {frame.sequence} ({frame.kind or 'unknown'}) was set aside: {described(error)}",
        context="intake",
    )
