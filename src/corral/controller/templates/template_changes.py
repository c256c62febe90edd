"""Changes of templates, as pure functions: state in, record and steps out; their callers commit.

A version is never changed. Uploads, edits and settings make a new one with the next number; a rollback makes
an old one the current one again.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

import msgspec

from corral.controller.instances.plans import StateSources
from corral.controller.state.cluster_state import ClusterState, StoredRecord
from corral.controller.state.collections import TEMPLATES
from corral.controller.state.ledger import Step
from corral.controller.templates.archive_import import ImportedTree
from corral.controller.templates.template_usage import hashes_in_use, users_of
from corral.domain.events import Draft, EventType
from corral.domain.groups import template_selection as selection
from corral.domain.groups.template_selection import check_settings
from corral.domain.templates import TemplateRecord, TemplateSettings, TemplateVersion, template_name
from corral.errors import Code, Rejected, short_list
from corral.store.port import ABSENT

NOTE_MAX: Final = 1000
_LISTED: Final = 5


class TemplateChange(msgspec.Struct, frozen=True, kw_only=True):
    """The new record, and the steps that store it; no steps when nothing changes."""

    record: TemplateRecord
    steps: tuple[Step, ...] = ()

    @property
    def unchanged(self) -> bool:
        return not self.steps


def new_version(
    state: ClusterState,
    name: str,
    intake: ImportedTree,
    *,
    settings: TemplateSettings | None = None,
    note: str = "",
    actor: str = "",
    now: dt.datetime,
    keep: int,
    base: int | None = None,
    saved_from: str = "",
) -> TemplateChange:
    """The tree as the next version, of a new template if there is none of this name.

    Without `settings` those of the current version are kept. The same tree and settings again make no new
    version. `base` is the version an edit began with: when another one is current by now, the edit would undo
    concurrent changes, and is refused (REVISION_MISMATCH). `saved_from`: the group whose instances alone the tree is of.
    """
    stored = state.templates.find(template_name(name, field="name"))
    current = stored.record.version() if stored else None
    if base is not None and (current is None or current.number != base):
        raise _edited_meanwhile(name, base, current)
    if settings is None:
        settings = current.settings if current else TemplateSettings()
    elif current is None or settings != current.settings:
        _check(state, name, settings)
    if stored and current and (current.manifest, current.settings) == (intake.digest, settings):
        return TemplateChange(record=stored.record)
    version = TemplateVersion(
        number=stored.record.last + 1 if stored else 1,
        manifest=intake.digest,
        hash=intake.hash,
        archive_size=intake.archive_size,
        files=intake.files,
        size=intake.size,
        settings=settings,
        note=_checked_note(note),
        created_at=now,
        created_by=actor,
    )
    return _with(state, name, stored, version, now=now, keep=keep, saved_from=saved_from)


def set_settings(
    state: ClusterState,
    name: str,
    settings: TemplateSettings,
    *,
    note: str = "",
    actor: str = "",
    now: dt.datetime,
    keep: int,
) -> TemplateChange:
    """The current files under other settings, as the next version. NOT_FOUND, TEMPLATE_CYCLE, …"""
    stored = state.templates.require(name)
    current = stored.record.version()
    if settings == current.settings:
        return TemplateChange(record=stored.record)
    _check(state, name, settings)
    version = msgspec.structs.replace(
        current,
        number=stored.record.last + 1,
        settings=settings,
        note=_checked_note(note),
        created_at=now,
        created_by=actor,
    )
    return _with(state, name, stored, version, now=now, keep=keep)


def rollback(
    state: ClusterState, name: str, number: int, *, now: dt.datetime, actor: str = ""
) -> TemplateChange:
    """Make a kept version the current one. NOT_FOUND names the existing ones."""
    stored = state.templates.require(name)
    record = stored.record
    version = record.version(number)
    if number == record.current:
        return TemplateChange(record=record)
    _check(state, name, version.settings)
    changed = msgspec.structs.replace(record, current=number, updated_at=now)
    event = Draft(
        type=EventType.TEMPLATE_ROLLED_BACK,
        subject=name,
        data={"version": number, "from": record.current, "hash": version.hash, "by": actor},
    )
    return TemplateChange(record=changed, steps=(TEMPLATES.put(name, changed, expect=stored.revision), event))


def delete(state: ClusterState, name: str) -> tuple[Step, ...]:
    """The steps that remove a template. NOT_FOUND; TEMPLATE_IN_USE names its users."""
    stored = state.templates.require(name)
    users = users_of(state, name)
    if users:
        raise Rejected(
            Code.TEMPLATE_IN_USE,
            f"template '{name}' is used by {short_list(users, _LISTED)}",
            hint="take it out of them first",
        )
    data = {"version": stored.record.current, "versions": len(stored.record.versions)}
    return (
        TEMPLATES.delete(name, expect=stored.revision),
        Draft(type=EventType.TEMPLATE_DELETED, subject=name, data=data),
    )


def check_parents(state: ClusterState, name: str, parents: tuple[str, ...]) -> None:
    """TEMPLATE_NOT_FOUND for parents that do not exist, TEMPLATE_CYCLE with the circle."""
    selection.check_parents(name, parents, StateSources(state), field="settings/parents")


def _check(state: ClusterState, name: str, settings: TemplateSettings) -> None:
    check_settings(settings)
    check_parents(state, name, settings.parents)


def _edited_meanwhile(name: str, base: int, current: TemplateVersion | None) -> Rejected:
    return Rejected(
        Code.REVISION_MISMATCH,
        f"template '{name}' was changed in the meantime: the edit began with version {base}, "
        f"current is {current.number if current else 'none'}",
        hint="read it again and repeat the edit",
    )


def _checked_note(note: str) -> str:
    if len(note) > NOTE_MAX:
        raise Rejected(
            Code.INVALID_FIELD,
            f"the note has {len(note)} characters",
            hint=f"use at most {NOTE_MAX}",
            field="note",
        )
    return note


def _with(
    state: ClusterState,
    name: str,
    stored: StoredRecord[TemplateRecord] | None,
    version: TemplateVersion,
    *,
    now: dt.datetime,
    keep: int,
    saved_from: str = "",
) -> TemplateChange:
    versions = (*stored.record.versions, version) if stored else (version,)
    in_use = hashes_in_use(state, name) if len(versions) > keep else frozenset[str]()
    record = TemplateRecord(
        name=name,
        current=version.number,
        last=version.number,
        saved_from=saved_from if stored is None or stored.record.saved_from == saved_from else "",
        versions=kept_versions(versions, keep=keep, current=version.number, in_use=in_use),
        created_at=stored.record.created_at if stored else now,
        updated_at=now,
    )
    event = Draft(
        type=EventType.TEMPLATE_UPDATED if stored else EventType.TEMPLATE_CREATED,
        subject=name,
        data={
            "version": version.number,
            "hash": version.hash,
            "files": version.files,
            "size": version.size,
            "note": version.note,
            "by": version.created_by,
        },
    )
    expect = stored.revision if stored else ABSENT
    return TemplateChange(record=record, steps=(TEMPLATES.put(name, record, expect=expect), event))


def kept_versions(
    versions: tuple[TemplateVersion, ...], *, keep: int, current: int, in_use: frozenset[str]
) -> tuple[TemplateVersion, ...]:
    """The newest `keep`, the current one, and those that live instances use."""
    newest = {version.number for version in versions[-keep:]}
    return tuple(
        version
        for version in versions
        if version.number in newest or version.number == current or version.hash in in_use
    )
