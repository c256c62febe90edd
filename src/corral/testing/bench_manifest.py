"""The manifest of a module on the bench."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from corral.modules.manifest.manifest_reader import read_manifest

_BARE: Final[dict[str, Any]] = {"manifestVersion": 1, "id": "bench", "version": "1.0.0"}


def written_manifest(manifest: Mapping[str, Any] | Path | str | None) -> dict[str, Any]:
    """The manifest as an author writes it; a file is read as strictly as a host reads it."""
    if isinstance(manifest, Path | str):
        written: dict[str, Any] = msgspec.to_builtins(
            read_manifest(Path(manifest).read_text(), name=str(manifest))
        )
        return written
    return {**_BARE, **(manifest or {})}
