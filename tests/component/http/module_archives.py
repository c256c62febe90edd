"""Modules as tests want them, packed by hand."""

from __future__ import annotations

import io
import json
import textwrap
import zipfile
from collections.abc import Mapping
from typing import Any

PLAIN = """
    from corral.sdk import PlatformModule

    class Plain(PlatformModule):
        pass
"""


def module_zip(
    id: str = "plain",
    version: str = "1.0.0",
    *,
    source: str = PLAIN,
    name: str = "Plain",
    files: Mapping[str, bytes] | None = None,
    **manifest: Any,
) -> bytes:
    """An archive of one class. Further keys of the manifest as keywords, files beside it by path."""
    package = id.replace("-", "_") + "_code"
    said = {
        "manifestVersion": 1,
        "id": id,
        "version": version,
        "backend": {"controller": {"entrypoint": f"{package}.main:{name}"}},
        **manifest,
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("module.yaml", json.dumps(said))  # JSON is YAML
        archive.writestr(f"{package}/__init__.py", "")
        archive.writestr(f"{package}/main.py", textwrap.dedent(source))
        for path, content in (files or {}).items():
            archive.writestr(path, content)
    return packed.getvalue()
