"""What the store has to keep for a package."""

from __future__ import annotations

from corral.domain.module_records import PackageRecord


def blobs_of(record: PackageRecord) -> set[str]:
    """Digests of its archive and of its signature's sidecar."""
    sidecar = record.signature.blob if record.signature else ""
    return {record.sha256, sidecar} - {""}
