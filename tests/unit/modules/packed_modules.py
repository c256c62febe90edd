"""Archives of modules for tests: good ones, and parts to make bad ones of."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping

MANIFEST = """\
manifestVersion: 1
id: stats
version: 1.0.0
api: ">=1.0 <2"
backend:
  controller:
    entrypoint: stats.main:Stats
"""
FILES = {
    "module.yaml": MANIFEST.encode(),
    "stats/__init__.py": b"",
    "stats/main.py": b"class Stats: ...\n",
}


def zipped(files: Mapping[str, bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, compression)
    return out.getvalue()


def archive_with(**more: bytes) -> bytes:
    return zipped(FILES | more)


def with_mode(name: str, mode: int, content: bytes = b"target") -> bytes:
    """A good archive with one more entry of this Unix mode."""
    out = io.BytesIO(zipped(FILES))
    with zipfile.ZipFile(out, "a") as archive:
        info = zipfile.ZipInfo(name)
        info.create_system = 3
        info.external_attr = mode << 16
        archive.writestr(info, content)
    return out.getvalue()


def named(name: bytes) -> bytes:
    """A good archive with one more entry of this very name, also one that Python's packer would not write."""
    placeholder = b"#" * len(name)
    return zipped(FILES | {placeholder.decode(): b"x"}).replace(placeholder, name)
