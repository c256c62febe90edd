"""Templates: named, versioned file trees.

A version is a manifest, the list of its files, and the settings for them. The manifest is a blob like the
contents it names; the record of a template holds only what is needed to choose a version and to plan with it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from typing import Annotated, Final

import msgspec

from corral.domain.records import Record
from corral.domain.spec import Argument, PathText, Spec, VariableSpec
from corral.errors import Code, Rejected

PIECE: Final = 4 * 1024 * 1024
"""Contents longer than this are stored in pieces of this size, each a blob of its own."""
INLINE: Final = 64 * 1024
"""An archive up to this size is sent within the control stream."""
MODES: Final = (0o444, 0o555, 0o644, 0o755)
"""The kept bits of a file's mode: executable or not, and marked read-only or not."""

_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


def template_name(value: str, *, field: str = "template") -> str:
    """`name` or `group/name`, each part by the rules of names."""
    parts = value.split("/")
    if len(parts) > 2 or any(_NAME.fullmatch(part) is None or ".." in part for part in parts):
        raise Rejected(
            Code.INVALID_FIELD,
            f"{value[:80]!r} is not a valid template name",
            hint="use NAME or GROUP/NAME of a-z, 0-9, '.', '_' and '-'",
            field=field,
        )
    return value


def kept_mode(mode: int) -> int:
    """The kept part of a mode: executable by its owner, and writable by anyone."""
    executable = 0o111 if mode & 0o100 else 0
    return (0o644 if mode & 0o222 else 0o444) | executable


def group_of(name: str) -> str:
    """The template group a template belongs to; empty for none."""
    return name.rpartition("/")[0]


class TemplateFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One regular file of a version."""

    path: str
    """Relative, with `/`; see `file_paths.check_path`."""
    mode: int
    """One of MODES. Without a write bit the file is marked read-only: instances may share it."""
    size: int
    digest: str
    """SHA-256 of the whole content."""
    pieces: tuple[str, ...] = ()
    """Of contents longer than PIECE: the digests of their pieces, in order."""

    @property
    def read_only(self) -> bool:
        return not self.mode & 0o222

    @property
    def blobs(self) -> tuple[str, ...]:
        """The blobs that it is stored as."""
        return self.pieces or (self.digest,)


class TemplateManifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The files of a version, sorted by path; empty directories are listed."""

    files: tuple[TemplateFile, ...] = ()
    directories: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def encode_manifest(manifest: TemplateManifest) -> bytes:
    """Canonical: equal manifests have equal bytes."""
    return _ENCODER.encode(manifest)


def decode_manifest(data: bytes) -> TemplateManifest:
    return msgspec.json.decode(data, type=TemplateManifest)


def manifest_digest(manifest: TemplateManifest) -> str:
    return hashlib.sha256(encode_manifest(manifest)).hexdigest()


class TemplateSettings(Spec, frozen=True, kw_only=True):
    """Settings for the files of a version."""

    description: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    parents: tuple[Annotated[str, msgspec.Meta(max_length=127)], ...] = ()
    """Templates that are laid below it, in this order."""
    variables: dict[str, Argument] = msgspec.field(default_factory=dict)
    variable_types: dict[str, VariableSpec] = msgspec.field(default_factory=dict)
    substitute: tuple[PathText, ...] = ()
    """Globs of files in which `%NAME%` is replaced, beside those the group names."""


class TemplateVersion(Record, frozen=True, kw_only=True):
    """One version; numbers grow by one and are never used again while the template lives."""

    number: int
    manifest: str
    """Digest of the manifest's blob."""
    hash: str
    """SHA-256 of the version's tar.gz; the id of the version for nodes and plans."""
    archive_size: int
    files: int
    size: int
    settings: TemplateSettings = TemplateSettings()
    note: str = ""
    created_at: dt.datetime
    created_by: str = ""


class TemplateRecord(Record, frozen=True, kw_only=True):
    """A template with the versions that are kept, oldest first."""

    name: str
    current: int
    """The number of the version that new starts use."""
    last: int
    """The highest number ever given."""
    saved_from: str = ""
    """The group from whose instances alone it was saved; empty: something else was put into it, if only once."""
    versions: tuple[TemplateVersion, ...]
    created_at: dt.datetime
    updated_at: dt.datetime

    def version(self, number: int | None = None) -> TemplateVersion:
        """That version, or the current one; NOT_FOUND names those that are kept."""
        chosen = self.current if number is None else number
        for version in self.versions:
            if version.number == chosen:
                return version
        kept = ", ".join(str(version.number) for version in self.versions[-20:])
        raise Rejected(
            Code.NOT_FOUND, f"template '{self.name}' has no version {chosen}", hint=f"versions kept: {kept}"
        )

    def by_hash(self, hash: str) -> TemplateVersion | None:
        return next((version for version in reversed(self.versions) if version.hash == hash), None)
