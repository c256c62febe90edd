"""Event bridge: forwards events of the log to nodes, by the subscriptions of each session.

Nodes may subscribe only to events that an installed module for nodes lists in its manifest, and to OPEN_TO_NODES
while one lists none: a node's certificate alone is no reason to receive what happens elsewhere in the cluster. Types in
NEVER_ON_NODES are never forwarded, whatever a manifest lists.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from typing import Final

import structlog

from corral.controller.events.hub import EventHub
from corral.controller.events.ring import EventSelection
from corral.controller.modules_on_nodes.event_forwarder import MAX_TYPES, EventForwarder
from corral.controller.modules_on_nodes.event_frames import EventFrames
from corral.controller.modules_on_nodes.outbox_room import has_room
from corral.controller.sessions.node_links import ModuleLink
from corral.controller.state.cluster_state import ClusterState
from corral.domain.events import Cursor, EventType, present_name
from corral.domain.field_classes.event_data import NEVER_ON_NODES, OPEN_TO_NODES
from corral.domain.modules.manifest import ModuleHost
from corral.errors import Code, CorralError, Rejected, short_list
from corral.modules.services.event_rules import is_event_name
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.wire.v1.module_pb2 import EventSubscribe, EventUnsubscribe

_CONTEXT: Final = "events"
_LOOKED_AT: Final = 2 * MAX_TYPES
_NAMED: Final = 5
_NAME_MAX: Final = 80
_AT_ONCE: Final = 1000
"""Most events of one commit whose types are read."""
_ANY: Final = EventSelection()
_log = structlog.get_logger("corral.controller.modules_on_nodes")


class EventBridge:
    """One forwarder per session, not per node: a session that ends late takes nothing from its successor."""

    def __init__(self, *, hub: EventHub, clock: Clock, declared: Callable[[], Container[str]]) -> None:
        """`declared`: returns the names that nodes may subscribe to at present."""
        self._hub = hub
        self._declared = declared
        self._clock = clock
        self._frames = EventFrames()
        self._forwarders: dict[ModuleLink, EventForwarder] = {}
        self._tasks = Tasks()
        self._seen = hub.head
        hub.wakeup.chain(self._published)

    def _published(self) -> None:
        """Wake the forwarders. One that fails does not hold up the others: each has to receive every
        event."""
        types, self._seen = self._types_since(self._seen), self._hub.head
        for link, forwarder in self._forwarders.items():
            try:
                forwarder.published(types, self._seen)
            except Exception:
                _log.exception("bridge_wake.failed", node=link.facts.node_id)
                forwarder.published(None, self._seen)

    def _types_since(self, seen: Cursor) -> Collection[EventType] | None:
        """Types of the events published since `seen`; None when they are not known."""
        ring = self._hub.ring
        if self._hub.closed or not ring.reaches(seen.sequence):
            return None
        events, looked = ring.events(seen.sequence, _ANY, limit=_AT_ONCE)
        return {event.type for event in events} if looked == ring.head else None

    @property
    def head(self) -> Cursor:
        return self._hub.head

    def joined(self, link: ModuleLink) -> None:
        self._forwarders[link] = EventForwarder(
            link, hub=self._hub, clock=self._clock, frames=self._frames, tasks=self._tasks
        )

    def left(self, link: ModuleLink) -> None:
        """Drop the forwarder of this session, which is over, with its subscriptions. Idempotent."""
        forwarder = self._forwarders.pop(link, None)
        if forwarder is not None:
            forwarder.end()

    def subscribed(self, link: ModuleLink, asked: EventSubscribe) -> None:
        """Subscribe from now on, or from `after` on for all names listed. Names that do not exist, or that no
        module for nodes declares, are reported to the node; the others are subscribed."""
        forwarder = self._forwarders.get(link)
        if forwarder is None:
            return
        names, declared = [*map(present_name, asked.event_types[:_LOOKED_AT])], self._declared()
        existing = [name for name in dict.fromkeys(names) if is_event_name(name)]
        known = [name for name in existing if name in declared]
        free = MAX_TYPES - len(forwarder)
        new = [name for name in known if name not in forwarder]
        after = Cursor(asked.after.epoch, asked.after.sequence) if asked.HasField("after") else None
        if known:
            forwarder.subscribe(new[:free], after=after)
        if len(new) > free or len(asked.event_types) > _LOOKED_AT:
            _complain(link, _too_many())
        unknown = [name for name in names if not is_event_name(name)]
        if unknown:
            _complain(link, _unknown(unknown))
        if len(known) < len(existing):
            _complain(link, _undeclared([name for name in existing if name not in declared]))

    def modules_changed(self) -> None:
        """End the subscriptions to names that no module for nodes declares any more."""
        declared = self._declared()
        for link, forwarder in self._forwarders.items():
            gone = [name for name in forwarder.names() if name not in declared]
            if gone:
                forwarder.unsubscribe(gone)
                _log.info("bridge_names.refused", node=link.facts.node_id, names=gone[:_NAMED])

    def unsubscribed(self, link: ModuleLink, asked: EventUnsubscribe) -> None:
        forwarder = self._forwarders.get(link)
        if forwarder is not None:
            forwarder.unsubscribe(map(present_name, asked.event_types[:_LOOKED_AT]))

    async def close(self) -> None:
        """Stop all forwarders at the end of the term: nothing is forwarded when this returns. Idempotent."""
        self._hub.wakeup.unchain(self._published)
        self._forwarders.clear()
        await self._tasks.close()


def _complain(link: ModuleLink, error: CorralError) -> None:
    if has_room(link):  # a node that sends nothing but errors must not flood its own outbox
        link.report(error, context=_CONTEXT)


def _too_many() -> CorralError:
    return Rejected(
        Code.RATE_LIMITED,
        f"a node subscribes to at most {MAX_TYPES} event types; the others are left out",
        hint="subscribe to MODULE_EVENT in place of many of one module",
        field="event_types",
    )


def _undeclared(names: Sequence[str]) -> CorralError:
    return Rejected(
        Code.FORBIDDEN,
        f"no module for nodes may subscribe to {_named(names)}",
        hint="list it in the module's manifest under events.subscribes; some types never go to nodes",
        field="event_types",
    )


def _unknown(names: Sequence[str]) -> CorralError:
    return Rejected(
        Code.UNKNOWN_EVENT_TYPE,
        f"there are no events of type {_named(names)}",
        hint="see the reference of events; what a module tells is called ID/TYPE",
        field="event_types",
    )


def _named(names: Sequence[str]) -> str:
    return short_list((repr(name[:_NAME_MAX]) for name in names), _NAMED)


class DeclaredNames(Container[str]):
    """Names that nodes may subscribe to, read from the records at each call. A manifest that lists
    MODULE_EVENT permits every event of modules, so each name of those, too."""

    def __init__(self, state: ClusterState) -> None:
        manifests = (stored.record.manifest for _, stored in state.modules.items())
        self._names = frozenset(
            present_name(name)
            for manifest in manifests
            if ModuleHost.DAEMON in manifest.hosts
            for name in manifest.events.subscribes or OPEN_TO_NODES
        ).difference(NEVER_ON_NODES)

    def __contains__(self, name: object) -> bool:
        if name in self._names:
            return True
        return "/" in str(name) and EventType.MODULE_EVENT.value in self._names
