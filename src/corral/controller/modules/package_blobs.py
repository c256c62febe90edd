"""What the store has to keep for a package."""

from __future__ import annotations

from corral.domain.module_manifest import Manifest
from corral.domain.module_records import PackageRecord


def blobs_of(record: PackageRecord) -> set[str]:
    """Digests of its archive, of its signature's sidecar, and of the files it installs into instances."""
    sidecar = record.signature.blob if record.signature else ""
    return {record.sha256, sidecar, *extension_files(record.manifest)} - {""}


def extension_files(manifest: Manifest) -> dict[str, str]:
    """The files it installs into instances, by digest: where each lies in the archive. Nodes fetch them by
    these digests, as they fetch uploaded programs; so each is a blob of its own."""
    return {
        variant.sha256: variant.file for extension in manifest.extensions for variant in extension.variants
    }
