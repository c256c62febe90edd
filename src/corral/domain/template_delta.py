"""What changed from one manifest to another, shorter than the other whole.

A node that has a version of a template is sent the way to the next one. What comes out is trusted only
when it has the digest that was announced; see `templates.manifest_digest`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from corral.domain.templates import Manifest, TemplateFile
from corral.errors import Code, Rejected

_ENCODER: Final = msgspec.json.Encoder(order="sorted")


class _Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    removed: tuple[str, ...] = ()
    files: tuple[TemplateFile, ...] = ()
    """Added or changed."""
    removed_directories: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()


def delta_between(old: Manifest, new: Manifest) -> bytes:
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


def apply_delta(old: Manifest, delta: bytes) -> Manifest:
    """The newer manifest, sorted; DIGEST_MISMATCH when the delta cannot be read. Compare its digest!"""
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
    return Manifest(
        files=tuple(files[path] for path in sorted(files)), directories=tuple(sorted(directories))
    )
