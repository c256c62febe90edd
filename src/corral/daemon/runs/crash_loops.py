"""The crash-loop rule of the node: whether it restarts an exited run by itself, and after which delay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from corral.daemon.runs.run_files import RunOutcome, StopOrder
from corral.daemon.workload.start_order import RestartRule, StartOrder
from corral.domain.ids import Incarnation, restart_incarnation
from corral.domain.instance_states import ENDED, place_seconds
from corral.system.aio.backoff import doubled, spread

_SECOND_DELAY: Final = 1.0


def recent_crashes(crashes: Sequence[float], *, now: float, rule: RestartRule) -> tuple[float, ...]:
    """The crashes that still count, `now` being a crash itself. Times are of one clock that never steps."""
    return (*(time for time in crashes if now - time < rule.interval_seconds), now)


def restart_delay(crashes: Sequence[float], *, rule: RestartRule, fraction: float) -> float | None:
    """Seconds until the restart after the last of these crashes; None: the controller decides.

    The first restart waits `delay_seconds`, each further one twice as long as the one before, spread by a quarter so
    that many do not come at once (`fraction` in [0, 1) decides). Without a delay the first comes at once and the
    second after a second.
    """
    attempt = len(crashes)
    delay: float
    if attempt == 0 or attempt > rule.attempts:
        return None
    if rule.delay_seconds:
        delay = doubled(rule.delay_seconds, attempt - 1)
    else:
        delay = doubled(_SECOND_DELAY, attempt - 2) if attempt > 1 else 0.0
    return spread(min(delay, rule.max_delay_seconds or delay), fraction)


def with_restart(
    outcome: RunOutcome,
    *,
    order: StartOrder,
    stop: StopOrder | None,
    crashes: Sequence[float],
    now: float,
    age: float,
    fraction: float,
    last: Incarnation | None = None,
) -> RunOutcome:
    """The outcome with the restart that follows on this node, if any. A run with a stop order stays stopped. `age`:
    seconds since the run was started. `last`: the highest incarnation that this start may have used, if not its
    own."""
    following = restart_incarnation(last or order.incarnation)
    again = stop is not None and stop.then_restart
    if following is None or (stop is not None and not again):
        return outcome
    too_old = again and stop is not None and stop.too_old
    if too_old or outcome.outcome == ENDED:
        if not too_old and order.restart.on != "always":
            return outcome
        # Neither an attempt nor a strike is used; only not faster than a place takes starts.
        delay = max(0.0, place_seconds(fraction) - age)
        return msgspec.structs.replace(
            outcome, restarted_as=following, restart_delay_seconds=delay, crashes=tuple(crashes)
        )
    if again or outcome.outcome == "host_rebooted":
        return msgspec.structs.replace(outcome, restarted_as=following, crashes=tuple(crashes))
    if order.restart.on == "never":
        return outcome
    recent = recent_crashes(crashes, now=now, rule=order.restart)
    wait = restart_delay(recent, rule=order.restart, fraction=fraction)
    if wait is None:
        return outcome
    return msgspec.structs.replace(
        outcome, restarted_as=following, restart_delay_seconds=wait, crashes=recent
    )
