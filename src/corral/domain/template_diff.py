"""Differences of two versions of a template: for people, and as a delta of manifests for nodes.

A node that has a version of a template receives the delta to the next one. The result is trusted only when it
has the announced digest; see `templates.manifest_digest`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from corral.domain.templates import TemplateFile, TemplateManifest, TemplateSettings
from corral.errors import Code, Rejected

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
    """Added, removed and changed files of the newer version; sorted by path."""

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
    old: TemplateManifest,
    new: TemplateManifest,
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
    """Whether they differ for people; the pieces in which a content is stored do not count."""
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


_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class _Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    removed: tuple[str, ...] = ()
    files: tuple[TemplateFile, ...] = ()
    """Added or changed."""
    removed_directories: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


def delta_between(old: TemplateManifest, new: TemplateManifest) -> bytes:
    """Canonical JSON that makes `new` of `old`."""
    before = {file.path: file for file in old.files}
    after = {file.path for file in new.files}
    old_directories, new_directories = set(old.directories), set(new.directories)
    return _ENCODER.encode(
        _Delta(
            removed=tuple(path for path in before if path not in after),
            files=tuple(file for file in new.files if before.get(file.path) != file),
            removed_directories=tuple(sorted(old_directories - new_directories)),
            directories=tuple(sorted(new_directories - old_directories)),
        )
    )


def apply_delta(old: TemplateManifest, delta: bytes) -> TemplateManifest:
    """The newer manifest, sorted; DIGEST_MISMATCH when the delta cannot be read. The caller compares its
    digest."""
    try:
        change = msgspec.json.decode(delta, type=_Delta)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Rejected(
            Code.DIGEST_MISMATCH,
            f"the changes of a template cannot be read: {error}",
            hint="ask for the whole manifest",
        ) from None
    files = {file.path: file for file in old.files}
    for path in change.removed:
        files.pop(path, None)
    files.update((file.path, file) for file in change.files)
    directories = (set(old.directories) - set(change.removed_directories)) | set(change.directories)
    return TemplateManifest(
        files=tuple(files[path] for path in sorted(files)), directories=tuple(sorted(directories))
    )
