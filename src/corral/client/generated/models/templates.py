"""Structures of `templates`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from corral.client.generated.models.shared import TemplateSettings


class TemplatePage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Template, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Template(Struct, frozen=True, kw_only=True):
    """A template and its current version. `versions` is the number of kept ones, `used_by` the groups that
    name it, themselves or through its children."""

    name: str
    """NAME or GROUP/NAME."""
    group: str
    """The part of the name before the `/`; empty: none."""
    version: int
    """Number of the current version."""
    hash: str
    """Hash of the current version's files."""
    files: int
    """How many files it has."""
    size: int
    """Size of all its files, in bytes."""
    settings: TemplateSettings
    """What holds for the files beside the files: parents, variables, globs."""
    note: str
    """Note on the current version."""
    created_at: str
    """When it was made, in UTC."""
    updated_at: str
    """When it was last changed, in UTC."""
    created_by: str
    """Who made it, for example `token:tok-…`."""
    versions: int
    """How many versions are kept."""
    used_by: tuple[str, ...]
    """Groups that are made of it, themselves or through other templates."""
    revision: int
    """Number of the last change of this document. It is the `ETag` that `If-Match` takes."""


class SettingsPatch(Struct, frozen=True, kw_only=True):
    """A merge patch (RFC 7396) of the settings: what is not named stays, null goes back to the default."""

    settings: Mapping[str, Any]
    """The settings that change (RFC 7396): what is not named stays, null goes back to the default."""
    note: str | UnsetType = UNSET
    """A word on this change, for people."""


class VersionPage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[Version, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""


class Version(Struct, frozen=True, kw_only=True):
    """Version."""

    number: int
    """Number of the version."""
    current: bool
    """Whether new starts use it."""
    hash: str
    """Hash of its files."""
    files: int
    """How many files it has."""
    size: int
    """Size of all its files, in bytes."""
    note: str
    """A word on this change, for people."""
    created_at: str
    """When it was made, in UTC."""
    created_by: str
    """Who made it, for example `token:tok-…`."""
    settings: TemplateSettings
    """The settings of this version."""


class Diff(Struct, frozen=True, kw_only=True):
    """Files that version `to` added, removed and changed since `from`."""

    name: str
    """Name of the template."""
    from_: int = field(name="from")
    """Number of the older version."""
    to: int
    """Number of the newer version."""
    added: tuple[File, ...]
    """Files that only the newer one has."""
    removed: tuple[File, ...]
    """Files that only the older one has."""
    changed: tuple[FileChange, ...]
    """Files that differ."""
    added_directories: tuple[str, ...]
    """Empty directories that only the newer one has."""
    removed_directories: tuple[str, ...]
    """Empty directories that only the older one has."""
    settings: tuple[SettingChange, ...]
    """Settings that differ."""


class File(Struct, frozen=True, kw_only=True):
    """A file of a version; `digest` is the SHA-256 of its content."""

    path: str
    """Path within the template."""
    mode: str
    """Permissions as people write them, such as `644`."""
    size: int
    """Size in bytes."""
    digest: str
    """SHA-256 of its content."""


class FileChange(Struct, frozen=True, kw_only=True):
    """`content` false: only the mode changed."""

    path: str
    """Path within the template."""
    old_size: int
    """Size in the older version, in bytes."""
    new_size: int
    """Size in the newer version, in bytes."""
    old_mode: str
    """Permissions in the older version."""
    new_mode: str
    """Permissions in the newer version."""
    content: bool
    """false: only the permissions changed."""


class SettingChange(Struct, frozen=True, kw_only=True):
    """Setting change."""

    field: str
    """Name of the setting."""
    old: Any
    """Its former value."""
    new: Any
    """Its new value."""


class FilePage(Struct, frozen=True, kw_only=True):
    """Some items of a list; `next` leads to the following ones and is null at the end."""

    items: tuple[File, ...]
    """The items of this page."""
    next: str | None
    """The `cursor` of the following page; null: this is the last one."""
