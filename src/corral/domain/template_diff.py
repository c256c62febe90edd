"""The difference of two versions of a template, for people."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from corral.domain.templates import Manifest, TemplateFile, TemplateSettings

_NONE: Final = TemplateSettings()


class FileState(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    size: int
    mode: int
    digest: str


class FileChange(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    old_size: int
    new_size: int
    old_mode: int
    new_mode: int
    content: bool
    """False: only the mode changed."""


class SettingChange(msgspec.Struct, frozen=True, kw_only=True):
    field: str
    old: Any
    new: Any


class TemplateDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What the newer version has, has no more, and has otherwise; sorted by path."""

    added: tuple[FileState, ...] = ()
    removed: tuple[FileState, ...] = ()
    changed: tuple[FileChange, ...] = ()
    added_directories: tuple[str, ...] = ()
    removed_directories: tuple[str, ...] = ()
    settings: tuple[SettingChange, ...] = ()

    @property
    def empty(self) -> bool:
        return self == TemplateDiff()


def diff_versions(
    old: Manifest,
    new: Manifest,
    old_settings: TemplateSettings = _NONE,
    new_settings: TemplateSettings = _NONE,
) -> TemplateDiff:
    before = {file.path: file for file in old.files}
    after = {file.path: file for file in new.files}
    both = sorted(before.keys() & after.keys())
    return TemplateDiff(
        added=tuple(_state(after[path]) for path in sorted(after.keys() - before.keys())),
        removed=tuple(_state(before[path]) for path in sorted(before.keys() - after.keys())),
        changed=tuple(
            _change(before[path], after[path]) for path in both if _differ(before[path], after[path])
        ),
        added_directories=tuple(sorted(set(new.directories) - set(old.directories))),
        removed_directories=tuple(sorted(set(old.directories) - set(new.directories))),
        settings=_setting_changes(old_settings, new_settings),
    )


def _state(file: TemplateFile) -> FileState:
    return FileState(path=file.path, size=file.size, mode=file.mode, digest=file.digest)


def _differ(old: TemplateFile, new: TemplateFile) -> bool:
    """In what people see; the pieces a content is kept in are not."""
    return (old.digest, old.mode) != (new.digest, new.mode)


def _change(old: TemplateFile, new: TemplateFile) -> FileChange:
    return FileChange(
        path=old.path,
        old_size=old.size,
        new_size=new.size,
        old_mode=old.mode,
        new_mode=new.mode,
        content=old.digest != new.digest,
    )


def _setting_changes(old: TemplateSettings, new: TemplateSettings) -> tuple[SettingChange, ...]:
    return tuple(
        SettingChange(
            field=name,
            old=msgspec.to_builtins(getattr(old, name)),
            new=msgspec.to_builtins(getattr(new, name)),
        )
        for name in old.__struct_fields__
        if getattr(old, name) != getattr(new, name)
    )
