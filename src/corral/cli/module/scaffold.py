"""The first version of a module's source, which builds, passes its tests and can be installed."""

from __future__ import annotations

import keyword
import pathlib
import string
from collections.abc import Mapping
from typing import Final

from corral.cli.module import scaffold_both, scaffold_controller, scaffold_daemon
from corral.errors import Code, Rejected
from corral.modules.archive.source_tree import NOT_PACKED, SOURCES
from corral.modules.manifest.manifest_checks import FOUND_FIRST, ID, ID_RULE
from corral.modules.manifest.manifest_reader import read_manifest

FILES: Final[Mapping[str, Mapping[str, str]]] = {
    "controller": scaffold_controller.FILES,
    "daemon": scaffold_daemon.FILES,
    "both": scaffold_both.FILES,
}
"""By where the module runs."""

_README: Final = """\
# ${title}

    corral module test .        # run its tests
    corral module build .       # dist/${id}-0.1.0.cmod
    corral module install dist/${id}-0.1.0.cmod
"""

_IGNORED: Final = "dist/\n__pycache__/\n.pytest_cache/\n*.key\n"


def _package(id: str) -> str:
    """Named like the module, unless such a package could not be built or imported."""
    package = id.replace("-", "_")
    unusable = {*FOUND_FIRST, *NOT_PACKED, SOURCES, *keyword.kwlist}
    return f"{package}_module" if package in unusable else package


def write_scaffold(id: str, target: pathlib.Path, *, host: str = "controller") -> list[pathlib.Path]:
    """Write the files of a new module into a directory that is not there yet, or is empty. `host` is one of
    `FILES`."""
    if not ID.fullmatch(id):
        raise Rejected(Code.INVALID_FIELD, f"{id[:80]!r} is not a module id", hint=ID_RULE, field="id")
    package = _package(id)
    name = "".join(part.capitalize() for part in id.split("-"))
    title = " ".join(part.capitalize() for part in id.split("-"))
    values = {"id": id, "package": package, "name": name, "title": title}
    files = {
        **FILES[host],
        "${package}/__init__.py": '"""${title}."""\n',
        "README.md": _README,
        ".gitignore": _IGNORED,
    }
    texts = {_filled(path, values): _filled(text, values) for path, text in files.items()}
    read_manifest(
        texts["module.yaml"], name="module.yaml"
    )  # refuses a reserved id before anything is written
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise Rejected(
            Code.ALREADY_EXISTS, f"{target} is there already", hint="choose another place with --into DIR"
        )
    for path, text in texts.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        (target / path).write_text(text, "utf-8")
    return [target / path for path in texts]


def _filled(text: str, values: Mapping[str, str]) -> str:
    return string.Template(text).substitute(values)
