"""Manifest reader: the text of `module.yaml` or `module.json` becomes a manifest, or a list of all its problems.

Values are checked against the types of `corral.domain.modules.manifest`: each key known, each of its type.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import Any, Final

import msgspec
from msgspec import inspect as kinds

from corral.domain.modules.manifest import Manifest
from corral.errors import Code, Rejected, nearest
from corral.modules.manifest.manifest_checks import ManifestFinding, check_manifest
from corral.modules.manifest.text_nodes import (
    ManifestNode,
    NotReadable,
    is_unicode,
    plain,
    read_json,
    read_yaml,
)

MANIFEST_MAX: Final = 256 * 1024
"""Bytes of a manifest's text."""
_PROBLEMS_MAX: Final = 8
_FINDINGS_MAX: Final = 50
"""Most problems collected; the check ends then."""
_HINT: Final = "docs/concepts/manifest.md lists every key"
_STEP: Final = re.compile(r"[^.\[\]]+")


def read_manifest(text: str, *, name: str = "module.yaml") -> Manifest:
    """The manifest; `name` decides whether the text is YAML or JSON, and precedes each line number.

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
    """Is a problem only the consequence of another one, whose value was replaced by a placeholder? For
    example, the hosts decide which other keys are required."""
    for problem in problems:
        if path.startswith(problem.path) or problem.path.startswith(path):
            return True
        if problem.path.startswith("hosts") and path.startswith("backend"):
            return True
    return False


def manifest_refused(name: str, path: str, why: str, *, line: int = 0) -> Rejected:
    """The same error for problems that only the archive shows."""
    return _refused(name, [Problem(line=line, path=path, why=why)])


def _placed(root: ManifestNode, finding: ManifestFinding) -> Problem:
    """The problem with the line of the deepest part of its path that the author wrote."""
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
    text = "; ".join(_problem_text(name, problem) for problem in ordered[:_PROBLEMS_MAX])
    if len(ordered) > _PROBLEMS_MAX:
        text += f"; and {len(ordered) - _PROBLEMS_MAX} more"
    return Rejected(Code.MANIFEST_INVALID, text, hint=_HINT, field=ordered[0].path or None)


def _problem_text(name: str, problem: Problem) -> str:
    place = f"{name}:{problem.line}" if problem.line else name
    return f"{place}: {problem.path}: {problem.why}" if problem.path else f"{place}: {problem.why}"


TEXT_MAX: Final = 4096
LIST_MAX: Final = 1000
_GUESSES_MAX: Final = 20
"""Most typos for which a suggestion is searched, to bound the time."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A problem of a manifest: its place and description."""

    line: int
    path: str
    why: str


class ShapeCheck:
    """Goes through a manifest and gathers every problem, so that an author sees all of them at once."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def check(self, root: ManifestNode) -> Any:
        """Plain values, all of the right types: a placeholder is put where a problem was found."""
        return self._value(root, _manifest_type(), "")

    def _value(self, node: ManifestNode, kind: kinds.Type, path: str) -> Any:
        match kind:
            case kinds.UnionType():
                inner = next(each for each in kind.types if not isinstance(each, kinds.NoneType))
                return self._value(node, inner, path)
            case kinds.StructType():
                return self._struct(node, kind, path)
            case kinds.VarTupleType():
                return self._list(node, kind, path)
            case kinds.DictType():
                return plain(node) if self._is(node, dict, "a map", path) else _stand_in(kind)
            case kinds.EnumType():
                return self._choice(node, [each.value for each in kind.cls], path)
            case kinds.BoolType():
                return self._is(node, bool, "true or false", path) and node.value
            case kinds.IntType():
                return node.value if self._is(node, int, "a whole number", path) else _stand_in(kind)
            case _:
                return self._text(node, path)

    def _struct(self, node: ManifestNode, kind: kinds.StructType, path: str) -> dict[str, Any]:
        if not self._is(node, dict, "a map", path):
            return dict(_stand_in(kind))
        fields = {field.encode_name: field for field in kind.fields}
        found = {}
        for key, value in node.value.items():
            place = f"{path}.{key}" if path else key
            if key not in fields:
                self._unknown(value.line, place, key, list(fields))
            elif value.value is not None:
                found[key] = self._value(value, fields[key].type, place)
        for name, field in fields.items():
            if field.required and name not in found:
                place = f"{path}.{name}" if path else name
                self._add(node.line, place, "it is missing")
                found[name] = _stand_in(field.type)
        return found

    def _list(self, node: ManifestNode, kind: kinds.VarTupleType, path: str) -> list[Any]:
        if not self._is(node, list, "a list", path):
            return []
        if len(node.value) > LIST_MAX:
            self._add(node.line, path, f"it has more than {LIST_MAX} members")
            return []
        return [self._value(each, kind.item_type, f"{path}[{at}]") for at, each in enumerate(node.value)]

    def _text(self, node: ManifestNode, path: str) -> str:
        value = node.value if isinstance(node.value, str) else node.text
        if value is None or node.value is None:
            self._add(node.line, path, f"it must be a text, not {_called(node.value)}")
            return ""
        if len(value) > TEXT_MAX:
            self._add(node.line, path, f"it is longer than {TEXT_MAX} characters")
            return ""
        return value

    def _choice(self, node: ManifestNode, choices: list[str], path: str) -> str:
        value = self._text(node, path)
        if value in choices:
            return value
        if value:
            self._add(node.line, path, f"unknown value {value[:80]!r}; {self._way(value, choices)}")
        return choices[0]

    def _is(self, node: ManifestNode, expected: type, called: str, path: str) -> bool:
        if isinstance(node.value, expected) and (expected is bool or not isinstance(node.value, bool)):
            return True
        self._add(node.line, path, f"it must be {called}, not {_called(node.value)}")
        return False

    def _unknown(self, line: int, place: str, key: str, known: list[str]) -> None:
        self._add(line, place[:200], f"unknown key; {self._way(key, known)}")

    def _way(self, word: str, known: list[str]) -> str:
        guess = nearest(word, known) if len(self.problems) < _GUESSES_MAX else None
        return f"did you mean '{guess}'?" if guess else f"known: {', '.join(known)}"

    def _add(self, line: int, path: str, why: str) -> None:
        self.problems.append(Problem(line=line, path=path, why=why))


def _stand_in(kind: kinds.Type) -> Any:
    """A placeholder of this type."""
    match kind:
        case kinds.StructType():
            return {each.encode_name: _stand_in(each.type) for each in kind.fields if each.required}
        case kinds.UnionType():
            return None
        case kinds.DictType():
            return {}
        case kinds.VarTupleType():
            return []
        case kinds.EnumType():
            return next(iter(kind.cls)).value
        case kinds.BoolType():
            return False
        case kinds.IntType():
            return 0
        case _:
            return ""


@functools.cache
def _manifest_type() -> kinds.Type:
    return kinds.type_info(Manifest)


def _called(value: object) -> str:
    names = {dict: "a map", list: "a list", str: "a text", bool: "a truth value", type(None): "nothing"}
    return names.get(type(value), "a number")
