"""Seed of a static directory: each file as it was laid, and what it was made of.

A static directory belongs to its operator. A later start may replace a file only when what the templates give for that
very path has changed and the file is still as it was laid; so both are recorded, beside the directory. A start that
replaces files first records what each of them becomes: killed at any point, the next start can tell a file that was
about to be laid, or had been, from one that was edited.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import secrets
import threading
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from corral.daemon.prepare.ingredients import Ingredients
from corral.daemon.prepare.substitution import Rendered
from corral.daemon.workload.variable_values import Values
from corral.domain.file_paths import globs
from corral.domain.groups.plans import Plan
from corral.domain.templates import TemplateFile
from corral.system.files import atomic_write

KEY_FILE: Final = "static.key"
_KEY_BYTES: Final = 32
_BLOCK: Final = 1 << 20
_PLAIN: Final = "sha256"
_KEYED: Final = "keyed"
_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class Laid(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file that templates or artifacts have."""

    source: str = ""
    """The `OfferedFile.source` at the time it was laid. Empty: the file was there before templates or artifacts had
    one."""
    laid: str = ""
    """The digest of the file after merging, variables and patches. Empty: it was never laid."""
    coming: str = ""
    """The digest of the file that a start was about to put there."""
    filled: dict[str, str | None] = {}
    """The variables in it with the values they got; None: the variable was not defined."""
    secrets: dict[str, str] = {}
    """The secrets in it, as keyed digests, so that a secret cannot be found by guessing."""

    def is_outdated(self, values: Values, digests: Digests) -> bool:
        """Whether a variable in it has another value now."""
        return bool(self.outdated_names(values, digests))

    def outdated_names(self, values: Values, digests: Digests) -> list[str]:
        """The variables in it that have another value now."""
        plain = [name for name, value in self.filled.items() if values.all.get(name) != value]
        hidden = [
            name
            for name, digest in self.secrets.items()
            if digests.of_value(name, values.all.get(name)) != digest
        ]
        return [*plain, *hidden]


class Seed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of a static directory at its last start. Earlier versions wrote no `files`: the digests of what they laid
    are unknown. They can read our other fields."""

    templates: tuple[str, ...] = ()
    merge: tuple[str, ...] = ()
    placed: dict[str, str] = {}
    """Artifacts by their path, each with its digest."""
    substitute: tuple[str, ...] | None = None
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    """Files with secrets."""
    files: dict[str, Laid] | None = None
    """Every file that was ever laid, also those that no template has any more: a deleted file stays deleted."""
    directories: tuple[str, ...] = ()
    """The directories that were ever laid."""
    kept: dict[str, str] = {}
    """Files that stay although templates give others for them, each with the reason."""

    def same_plan(self, other: Seed) -> bool:
        """Whether both have the same templates, artifacts and rules."""
        mine = (self.templates, self.merge, self.placed, self.substitute, self.protected)
        return mine == (other.templates, other.merge, other.placed, other.substitute, other.protected)


def seed_of(plan: Plan) -> Seed:
    """The seed of a plan, before anything is known about files."""
    artifacts = (*((plan.artifact,) if plan.artifact else ()), *(e.artifact for e in plan.extensions))
    return Seed(
        templates=tuple(f"{t.name}@{t.hash}{'' if t.override else '?'}" for t in plan.templates),
        merge=plan.merge,
        placed={artifact.file: artifact.sha256 for artifact in artifacts},
        substitute=plan.substitute,
        protected=plan.protected_paths,
    )


class OfferedFile(msgspec.Struct, frozen=True, kw_only=True):
    """The current content for one path from templates and artifacts."""

    source: str
    """A digest of the contents it is made of, their modes, and whether variables are filled in."""
    content: str = ""
    """The SHA-256 of the result, where it is known without building it."""
    size: int = 0
    """The size of that result."""


def offers(plan: Plan, found: Ingredients) -> dict[str, OfferedFile]:
    """The offered files by path. Patches are not included: they are applied at every start to the existing file."""
    chosen = globs(plan.substitute)
    made: dict[str, OfferedFile] = {}
    parts: list[tuple[str, int, tuple[TemplateFile, ...]]] = [
        *((file.path, file.mode, (file,)) for file in found.layout.copies),
        *((merge.path, merge.mode, merge.parts) for merge in found.layout.merges),
    ]
    for path, mode, files in parts:
        fills = path in found.texts and chosen.matches(path)
        identity = ([(file.digest, file.mode) for file in files], mode, fills)
        source = hashlib.sha256(_ENCODER.encode(identity)).hexdigest()
        known = len(files) == 1 and not fills
        made[path] = OfferedFile(
            source=source,
            content=files[0].digest if known else "",
            size=files[0].size if known else 0,
        )
    return made


class Digests:
    """Digests of files and values. Those that include secrets are keyed, with a key stored elsewhere on the node: a
    reader of the seed cannot try passwords on it. One for the node; it blocks."""

    def __init__(self, key_file: pathlib.Path) -> None:
        self._key_file = key_file
        self._key = b""
        self._lock = threading.Lock()

    def of_file(self, descriptor: int, *, keyed: bool) -> str:
        """The digest of the file with its mode, so that a changed mode is a changed file, and with its size, so that a
        file of another size is not read. The file is read from its beginning."""
        kind = _KEYED if keyed else _PLAIN
        hash = hashlib.blake2b(key=self._node_key()) if keyed else hashlib.sha256()
        found, position = os.fstat(descriptor), 0
        while position < found.st_size and (block := os.pread(descriptor, _BLOCK, position)):
            hash.update(block)
            position += len(block)
        return f"{kind}:{hash.hexdigest()}:{_mode_and_size(found.st_mode, found.st_size)}"

    def has_digest(self, descriptor: int, digest: str) -> bool:
        """Whether a file has this digest, of either kind. A file of another size or mode is not read: a workload can
        make sparse files of any size."""
        found = os.fstat(descriptor)
        if not digest.endswith(f":{_mode_and_size(found.st_mode, found.st_size)}"):
            return False
        return self.of_file(descriptor, keyed=digest.startswith(_KEYED)) == digest

    def of_value(self, name: str, value: str | None) -> str:
        """The digest of a secret; empty when it is none any more."""
        if value is None:
            return ""
        return hashlib.blake2b(f"{name}={value}".encode(), key=self._node_key(), digest_size=32).hexdigest()

    def _node_key(self) -> bytes:
        """The key, created when it is first needed. A lost one is created anew: files with secrets then count as
        edited."""
        with self._lock:
            if not self._key:
                found = self._key_file.read_bytes() if self._key_file.exists() else b""
                if len(found) != _KEY_BYTES:
                    found = secrets.token_bytes(_KEY_BYTES)
                    atomic_write(self._key_file, found)
                self._key = found
            return self._key


def plain_digest(offer: OfferedFile, mode: int) -> str:
    """The digest of a file that is laid unchanged from its template, and has this mode."""
    return f"{_PLAIN}:{offer.content}:{_mode_and_size(mode, offer.size)}"


def _mode_and_size(mode: int, size: int) -> str:
    return f"{mode & 0o777:o}:{size}"


def same_content(one: str, other: str) -> bool:
    """Whether two digests of one kind are of the same bytes, whatever the modes are."""
    return one.split(":")[:2] == other.split(":")[:2]


def laid_from(
    offer: OfferedFile, path: str, rendered: Rendered, values: Values, digests: Digests, *, laid: str
) -> Laid:
    """The record of a file that has just been made."""
    return Laid(
        source=offer.source,
        laid=laid,
        filled=rendered.files.get(path, {}),
        secrets={
            name: digests.of_value(name, values.all.get(name)) for name in rendered.secrets.get(path, ())
        },
    )


def with_coming(
    files: Mapping[str, Laid], after: Mapping[str, Laid], moved: Iterable[str]
) -> dict[str, Laid]:
    """The seed to write before these files are put in place."""
    return {
        **files,
        **{
            path: msgspec.structs.replace(files.get(path, Laid()), coming=after[path].laid)
            for path in moved
            if path in after and after[path].laid and after[path] != files.get(path)
        },
    }
