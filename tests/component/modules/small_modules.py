"""Archives of small modules: a manifest and one file of source."""

from __future__ import annotations

import pathlib
import textwrap
from typing import Any

import yaml

from corral.testing.archives import zipped

PLAIN = """
from corral.sdk import PlatformModule

class Module(PlatformModule):
    pass
"""


def archive(
    directory: pathlib.Path,
    id: str = "small",
    version: str = "1.0.0",
    *,
    source: str = PLAIN,
    files: dict[str, bytes] | None = None,
    hook_ms: int = 2000,
    **manifest: Any,
) -> pathlib.Path:
    """An archive whose class is `Module` in `SOURCE`; more of the manifest by keyword."""
    package = id.replace("-", "_") + "_module"
    told = {
        "manifestVersion": 1,
        "id": id,
        "version": version,
        "api": ">=1.0",
        "backend": {"controller": {"entrypoint": f"{package}:Module", "hookDeadlineMs": hook_ms}},
        **manifest,
    }
    content = {
        "module.yaml": yaml.safe_dump(told, sort_keys=False).encode(),
        f"{package}.py": textwrap.dedent(source).encode(),
        **(files or {}),
    }
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{id}-{version}-{abs(hash((source, str(told)))) % 10**8}.cmod"
    path.write_bytes(zipped(content))
    return path
