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
    return [
        ExtensionShape(
            id=each.id,
            activation=each.activation,
            conflicts=list(each.conflicts),
            variants=[
                VariantShape(
                    id=variant.id,
                    platforms=list(variant.platforms),
                    version_range=variant.version_range,
                    file=variant.file,
                    sha256=variant.sha256,
                    install_path=variant.install_path,
                )
                for variant in each.variants
            ],
        )
        for each in manifest.extensions
    ]
