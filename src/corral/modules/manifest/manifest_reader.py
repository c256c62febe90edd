"""From the text of `module.yaml` or `module.json` to a manifest, or to everything that is wrong with it."""

from __future__ import annotations

import itertools
import re
from typing import Final

import msgspec

from corral.domain.module_manifest import Manifest
from corral.errors import Code, Rejected
from corral.modules.manifest.json_nodes import read_json
from corral.modules.manifest.manifest_checks import ManifestFinding, check_manifest
from corral.modules.manifest.manifest_types import Problem, ShapeCheck
from corral.modules.manifest.text_nodes import ManifestNode, NotReadable, is_unicode, read_yaml

MANIFEST_MAX: Final = 256 * 1024
"""Bytes of a manifest's text."""
_TOLD_MAX: Final = 8
_FINDINGS_MAX: Final = 50
"""Then it is bad enough, and nobody looks further."""
_HINT: Final = "docs/concepts/manifest.md lists every key"
_STEP: Final = re.compile(r"[^.\[\]]+")


def read_manifest(text: str, *, name: str = "module.yaml") -> Manifest:
    """The manifest; `name` says whether the text is YAML or JSON and stands before each line's number.

    MANIFEST_INVALID names up to eight problems as `NAME:LINE: PATH: WHY`, in the order of their lines; its
    field is the first one's path. Blocking, for up to a second."""
    if len(text.encode("utf-8", "replace")) > MANIFEST_MAX:
        raise manifest_refused(name, "", f"it is larger than {MANIFEST_MAX} bytes")
    if not is_unicode(text):
        raise manifest_refused(name, "", "it is not UTF-8")
    try:
        root = read_json(text) if name.endswith(".json") else read_yaml(text)
    except NotReadable as error:
        raise _refused(name, [Problem(line=error.line, path="", why=error.why)]) from None
    shape = ShapeCheck()
    values = shape.check(root)
    try:
        manifest = msgspec.convert(values, Manifest)
    except msgspec.ValidationError as error:
        found = shape.problems or [Problem(line=root.line, path="", why=str(error))]
        raise _refused(name, found) from None
    problems = list(shape.problems)
    for finding in itertools.islice(check_manifest(manifest), _FINDINGS_MAX):
        if not _follows(finding.path, shape.problems):
            problems.append(_placed(root, finding))
    if problems:
        raise _refused(name, problems)
    return manifest


def _follows(path: str, problems: list[Problem]) -> bool:
    """Whether a finding is about something that stands in for what is wrong already, or may come of it: which
    hosts there are decides what else there has to be."""
    for problem in problems:
        if path.startswith(problem.path) or problem.path.startswith(path):
            return True
        if problem.path.startswith("hosts") and path.startswith("backend"):
            return True
    return False


def manifest_refused(name: str, path: str, why: str, *, line: int = 0) -> Rejected:
    """The same refusal for what only the archive can tell."""
    return _refused(name, [Problem(line=line, path=path, why=why)])


def _placed(root: ManifestNode, finding: ManifestFinding) -> Problem:
    """With the line of the deepest part of its path that the author wrote."""
    node, line = root, root.line
    for step in _STEP.findall(finding.path):
        inner = node.value
        if isinstance(inner, dict) and step in inner:
            node = inner[step]
        elif isinstance(inner, list) and step.isdigit() and int(step) < len(inner):
            node = inner[int(step)]
        else:
            break
        line = node.line
    return Problem(line=line, path=finding.path, why=finding.why)


def _refused(name: str, problems: list[Problem]) -> Rejected:
    ordered = sorted(problems, key=lambda problem: problem.line)
    told = "; ".join(_told(name, problem) for problem in ordered[:_TOLD_MAX])
    if len(ordered) > _TOLD_MAX:
        told += f"; and {len(ordered) - _TOLD_MAX} more"
    return Rejected(Code.MANIFEST_INVALID, told, hint=_HINT, field=ordered[0].path or None)


def _told(name: str, problem: Problem) -> str:
    place = f"{name}:{problem.line}" if problem.line else name
    return f"{place}: {problem.path}: {problem.why}" if problem.path else f"{place}: {problem.why}"
