"""Stops of runs whose node has been without a controller for too long, as their group asks for it
(`disconnect.stop_after_seconds`): the controller may have replaced them by then, and the group needs at most one copy.

Such a run is stopped by its stop ladder and stays stopped; its end is reported when the controller returns. Once the
time is over the run is stopped, whatever arrives afterwards.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from corral.daemon.link.controller_contact import ControllerContact
from corral.daemon.runs.run_files import RunIntent, StopOrder
from corral.daemon.supervise.instance import Instance
from corral.daemon.supervise.node_runs import InstanceTable

_PINGS_PER_LIMIT: Final = 4
_LOOKS_PER_LIMIT: Final = 8
_LONGEST_PAUSE: Final = 1.0
_LONGEST_PING_PAUSE: Final = 10.0
_log = structlog.get_logger("corral.daemon.supervise")


class IsolationWatch:
    """`overdue` for what an earlier daemon left, `run` for all others."""

    def __init__(self, contact: ControllerContact, instances: InstanceTable) -> None:
        self._contact = contact
        self._instances = instances

    def overdue(self, intent: RunIntent) -> StopOrder | None:
        """The order to stop a run, if its node has been without a controller for as long as it may. After a reboot
        of the host nobody knows how long that was: the controller decides whether it runs again."""
        limit = intent.order.stop_after_seconds
        same_boot = intent.boot_id == self._contact.boot_id
        if not limit or (same_boot and self._contact.seconds_without() < limit):
            return None
        return StopOrder(
            reason=f"its node had no controller for {limit:g} s (disconnect.stop_after_seconds)",
            isolated=True,
        )

    async def run(self) -> None:
        """Until cancelled. A fault of ours must not end it: nothing else stops these runs."""
        while True:
            try:
                pause = await self.look()
            except Exception:
                _log.exception("isolation_check.failed")
                pause = _LONGEST_PAUSE
            await asyncio.sleep(pause)

    async def look(self) -> float:
        """Stop what is overdue, and ask whether there is a controller; returns the seconds until the next look."""
        watched = [instance for instance in self._instances.all() if _is_limited(instance)]
        due = [(instance, order) for instance in watched if (order := self.overdue(instance.current.intent))]
        for instance, order in due:
            _log.warning("isolated_instance.stopped", run=instance.current.name, reason=order.reason)
        await asyncio.gather(*(instance.ask_stop(order) for instance, order in due))
        if not watched:
            return _LONGEST_PAUSE
        shortest = min(instance.current.order.stop_after_seconds for instance in watched)
        pause = min(shortest / _LOOKS_PER_LIMIT, _LONGEST_PAUSE)
        self._contact.ping(every=min(shortest / _PINGS_PER_LIMIT, _LONGEST_PING_PAUSE))
        await self._contact.save()
        return pause


def _is_limited(instance: Instance) -> bool:
    """It is to be stopped without a controller, and is not being stopped already."""
    run = instance.current
    return bool(run.order.stop_after_seconds) and instance.active and not run.stop.stays_stopped
