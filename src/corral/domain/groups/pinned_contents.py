"""The contents of a revision, looked up again: template versions that are kept, and modules that may still be used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from corral.domain.groups.extensions import ExtensionPackage
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.plans import PlanTemplate
from corral.domain.groups.revisions import RevisionRecord
from corral.domain.groups.template_selection import TemplateSources
from corral.domain.templates import TemplateRecord, group_of
from corral.errors import Code, Rejected


class PinnedTemplates:
    """Templates with the versions of a revision as their current ones. What the revision did not choose among is answered
    as it is now."""

    def __init__(self, revision: RevisionRecord, sources: TemplateSources) -> None:
        self._revision = revision
        self._sources = sources
        self._pins = {pin.name: pin for pin in revision.pins.templates}

    def template(self, name: str, /) -> TemplateRecord | None:
        """TEMPLATE_NOT_FOUND when the version is not kept any more."""
        found, pin = self._sources.template(name), self._pins.get(name)
        return found if pin is None else self._pinned(found, pin)

    def templates_in(self, group: str, /) -> Sequence[TemplateRecord]:
        pinned = sorted(name for name in self._pins if group_of(name) == group)
        if not pinned:  # none of them can be chosen
            return self._sources.templates_in(group)
        return [self._pinned(self._sources.template(name), self._pins[name]) for name in pinned]

    def _pinned(self, record: TemplateRecord | None, pin: PlanTemplate) -> TemplateRecord:
        versions = record.versions if record is not None else ()
        kept = any((each.number, each.hash) == (pin.version, pin.hash) for each in versions)
        if record is None or not kept:
            raise _gone(
                Code.TEMPLATE_NOT_FOUND,
                self._revision,
                f"needs version {pin.version} of template '{pin.name}', which does not exist any more",
            )
        if record.current == pin.version:
            return record
        return msgspec.structs.replace(record, current=pin.version)


def check_pinned_modules(revision: RevisionRecord, packages: Iterable[ExtensionPackage]) -> None:
    """Refuse files of a module that was taken out of use since: EXTENSION_NOT_FOUND, or
    SIGNATURE_VERIFICATION_FAILED."""
    needed = {each.module: each.id for each in revision.pins.extensions if each.module}
    known = {each.module: each for each in packages if each.module in needed} if needed else {}
    for module, extension in needed.items():
        package = known.get(module)
        what = f"needs extension '{extension}' of module '{module}', which "
        if package is None or not package.active:
            state = "is not installed" if package is None else "is not active"
            raise _gone(Code.EXTENSION_NOT_FOUND, revision, what + state)
        if not package.proven:
            raise _gone(
                Code.SIGNATURE_VERIFICATION_FAILED, revision, what + "has a signature that does not hold"
            )


def check_same_kind(present: GroupSpec, revision: RevisionRecord) -> None:
    """Refuse a revision from before `static` was changed: directories belong to ids in one of them only."""
    if present.static != revision.spec.static:
        was, now = ("is", "is not") if revision.spec.static else ("is not", "is")
        raise _gone(Code.CONFLICT, revision, f"{was} static, and the group {now}")


def _gone(code: Code, revision: RevisionRecord, why: str) -> Rejected:
    return Rejected(
        code,
        f"revision {revision.number} of group '{revision.group}' {why}",
        hint=f"start by the present document: corral deploy {revision.group}",
        field="revision",
    )


def revision_not_kept(group: str, number: int, *, unreadable: bool = False) -> Rejected:
    """`unreadable`: it is stored, and cannot be read."""
    return Rejected(
        Code.FORMAT_INVALID if unreadable else Code.NOT_FOUND,
        f"revision {number} of group '{group}' {'cannot be read' if unreadable else 'is not kept'}",
        hint=f"start by the present document: corral deploy {group}",
        field="revision",
    )
