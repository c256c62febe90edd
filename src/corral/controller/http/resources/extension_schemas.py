"""What modules install into instances, as the API shows it."""

from __future__ import annotations

import msgspec

from corral.domain.module_manifest import Manifest


class VariantShape(msgspec.Struct, frozen=True, kw_only=True):
    """One file of an extension, for these platforms (none: for any) in these versions."""

    id: str
    platforms: list[str]
    version_range: str
    file: str
    sha256: str
    install_path: str


class ExtensionShape(msgspec.Struct, frozen=True, kw_only=True):
    """What the module installs into instances: `always` into all that a variant fits, `requested` into those of
    groups that name it."""

    id: str
    activation: str
    conflicts: list[str]
    variants: list[VariantShape]


def extensions(manifest: Manifest) -> list[ExtensionShape]:
    return msgspec.convert(manifest.extensions, list[ExtensionShape], from_attributes=True)
