"""Which files of a source directory belong into a module's archive, and under which names.

- `module.yaml` (or `module.json`) at the root;
- packages (directories with `__init__.py`) and single modules (`*.py`) at the root or beneath `src/`, which is
  left out of their names; a package is taken whole, with whatever else lies in it;
- `vendor/` and `frontend/` whole;
- the files that the manifest's `extensions` name.

Never: names that begin with a dot, `__pycache__`, `*.pyc`, `*.pyo` and `node_modules`, wherever they are; at
the root and in `src/` also `tests`, `test`, `dist`, `build`, `docs`, `setup.py`, `conftest.py`, `noxfile.py`
and `test_*.py`. A link or a special file among what is taken is refused, as is a path twice.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from corral.domain.file_paths import check_path
from corral.domain.module_manifest import Manifest
from corral.errors import Code, Rejected

SOURCES: Final = "src"
WHOLE: Final = ("vendor", "frontend")
_NEVER: Final = frozenset({"__pycache__", "node_modules"})
_COMPILED: Final = (".pyc", ".pyo")
NOT_PACKED: Final = frozenset(
    {"tests", "test", "dist", "build", "docs", "setup.py", "conftest.py", "noxfile.py", *WHOLE}
)
"""At the root and in `src/`: what is left out, or taken by another rule."""


def packed_files(source: Path, manifest_name: str, manifest: Manifest) -> dict[str, Path]:
    """Files by their name in the archive, sorted by it."""
    found: dict[str, Path] = {}
    for name, path in _taken(source, manifest_name, manifest):
        if found.setdefault(name, path) != path:
            other = found[name].relative_to(source)
            raise refused(path, f"'{other}' has the same name in the archive")
    return dict(sorted(found.items()))


def refused(path: Path, why: str) -> Rejected:
    return Rejected(
        Code.PATH_REFUSED,
        f"the module cannot be built: {path}: {why}",
        hint="remove it, or move it elsewhere",
    )


def _taken(source: Path, manifest_name: str, manifest: Manifest) -> Iterator[tuple[str, Path]]:
    yield _file(source, source / manifest_name)
    for root in (source, source / SOURCES):
        if root.is_dir():
            for path in _members(root):
                yield from _top_level(root, path)
    for name in WHOLE:
        if os.path.lexists(source / name):
            yield from _whole(source, source / name)
    for extension in manifest.extensions:
        for variant in extension.variants:
            if os.path.lexists(source / variant.file):
                yield _file(source, source / variant.file)


def _top_level(root: Path, path: Path) -> Iterator[tuple[str, Path]]:
    if path.name in NOT_PACKED:
        return
    if path.suffix == ".py" and not path.name.startswith("test_") and not path.is_dir():
        yield _file(root, path)
    elif (path / "__init__.py").is_file():
        yield from _whole(root, path)


def _whole(root: Path, path: Path) -> Iterator[tuple[str, Path]]:
    if path.is_symlink() or not path.is_dir():
        yield _file(root, path)
        return
    for inner in _members(path):
        yield from _whole(root, inner)


def _members(directory: Path) -> list[Path]:
    return [
        path
        for path in sorted(directory.iterdir())
        if not path.name.startswith(".") and path.name not in _NEVER and path.suffix not in _COMPILED
    ]


def _file(root: Path, path: Path) -> tuple[str, Path]:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise refused(path, "it is a symbolic link; put the file itself there")
    if not stat.S_ISREG(mode):
        raise refused(path, "it is neither a file nor a directory")
    return check_path(path.relative_to(root).as_posix()), path
