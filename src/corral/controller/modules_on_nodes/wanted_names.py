"""Names of events that a node wants, each from some place of the log on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from corral.controller.events.ring import EventSelection
from corral.domain.events import Event, EventType
from corral.modules.services.event_names import EventFilter, name_of


class WantedNames:
    """Types of the log, and `MODULE/TYPE` for what modules tell. Asked for each event, changed seldom."""

    def __init__(self) -> None:
        self._since: dict[str, int] = {}
        self._coarse: EventSelection | None = None

    def __len__(self) -> int:
        return len(self._since)

    def __contains__(self, name: str) -> bool:
        return name in self._since

    def __iter__(self) -> Iterator[str]:
        return iter(self._since)

    def add(self, names: Iterable[str], *, since: int) -> None:
        """What comes after the event with that number."""
        self._since |= dict.fromkeys(names, since)
        self._coarse = None

    def drop(self, names: Iterable[str]) -> None:
        for name in names:
            self._since.pop(name, None)
        self._coarse = None

    @property
    def coarse(self) -> EventSelection:
        """What can be told from types alone, for whoever reads the log."""
        if self._coarse is None:
            types = EventFilter(types=frozenset(self._since)).log_types if self._since else frozenset()
            self._coarse = EventSelection(types=types)
        return self._coarse

    def of_none(self, types: Collection[EventType]) -> bool:
        """Whether events of these types of the log cannot be wanted."""
        return (self.coarse.types or frozenset()).isdisjoint(types)

    def accepts(self, event: Event) -> bool:
        """By its type or, if a module told it, by its own name; and only what came after that was wanted."""
        sequence = event.cursor.sequence
        if self._since.get(event.type, sequence) < sequence:
            return True
        own = event.type is EventType.MODULE_EVENT
        return own and self._since.get(name_of(event), sequence) < sequence
