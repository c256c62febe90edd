"""Templates in memory, found by name, by group and by the hash of a version."""

from __future__ import annotations

from corral.controller.state.collections import TEMPLATES
from corral.controller.state.mirrors import Mirror
from corral.domain.templates import TemplateRecord, TemplateVersion, group_of


class TemplateMirror(Mirror[TemplateRecord]):
    """All templates, indexed so that planning a start never looks at all of them."""

    def __init__(self) -> None:
        super().__init__(TEMPLATES, "template")
        self._by_group: dict[str, set[str]] = {}

    def in_group(self, group: str) -> list[TemplateRecord]:
        """The templates of a template group, sorted by name."""
        return [self._documents[name].record for name in sorted(self._by_group.get(group, ()))]

    def version_of(self, name: str, hash: str) -> TemplateVersion | None:
        found = self._documents.get(name)
        return found.record.by_hash(hash) if found else None

    def fold(self, id: str, revision: int, body: bytes | None) -> None:
        super().fold(id, revision, body)
        names = self._by_group.setdefault(group_of(id), set())
        if body is None:
            names.discard(id)
        else:
            names.add(id)
        if not names:
            del self._by_group[group_of(id)]
