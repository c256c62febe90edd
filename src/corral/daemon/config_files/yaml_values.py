"""Values as YAML text, read back alike by YAML 1.1 and 1.2; and the content of a YAML document apart from its layout,
to check an edit and to write a file anew."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml

from corral.daemon.config_files.text_edits import MAX_DEPTH, Impossible, Malformed
from corral.daemon.config_files.yaml_nodes import NULL, STR, YamlNode

STEP: Final = 2
_PLAIN: Final = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@+-]*( [A-Za-z0-9_./@+-]+)*", re.ASCII)
_WORDS: Final = frozenset(["y", "yes", "n", "no", "on", "off", "true", "false", "null"])
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_QUOTABLE: Final = re.compile(r"[ -~]*", re.ASCII)


class Scalar(msgspec.Struct, frozen=True):
    """A scalar that is written unchanged: its text in the file, and the tag and value it is read as."""

    text: str
    tag: str
    value: str


def scalar(value: Any, *, style: str = "") -> Scalar:
    """A scalar's text in one line; a string keeps the single quotes it had by `style`."""
    if isinstance(value, Scalar):
        return value
    if value is None:
        return Scalar("null", NULL, "null")
    if isinstance(value, str):
        return Scalar(_string(value, style), STR, value)
    if isinstance(value, bool):
        text, kind = "true" if value else "false", "bool"
    elif isinstance(value, int):
        text, kind = str(value), "int"
    else:
        text, kind = _float(float(value)), "float"
    return Scalar(text, f"tag:yaml.org,2002:{kind}", text)


def flow(value: Any) -> str:
    """In one line, with brackets."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key).text}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value).text


def is_one_line(value: Any) -> bool:
    return not (isinstance(value, Mapping | list | tuple) and value)


def block(value: Any, indent: int) -> list[str]:
    """A map or a list that is not empty, over several lines."""
    blanks = " " * indent
    lines: list[str] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            lines += entry(scalar(key).text, item, indent)
        return lines
    for item in value:
        if is_one_line(item):
            lines.append(f"{blanks}- {flow(item)}")
        else:
            first, *rest = block(item, indent + STEP)
            lines += (f"{blanks}- {first.lstrip(' ')}", *rest)
    return lines


def entry(key: str, value: Any, indent: int) -> list[str]:
    """A key in its written form, and its value."""
    blanks = " " * indent
    if is_one_line(value):
        return [f"{blanks}{key}: {flow(value)}"]
    return [f"{blanks}{key}:", *block(value, indent + STEP)]


def _string(text: str, style: str) -> str:
    if style == "'" and _QUOTABLE.fullmatch(text):
        return "'" + text.replace("'", "''") + "'"
    if not style and _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Impossible("YAML has no such text") from None
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def _float(number: float) -> str:
    if math.isnan(number):
        return ".nan"
    if math.isinf(number):
        return ".inf" if number > 0 else "-.inf"
    text = repr(number)
    mantissa, e, exponent = text.partition("e")
    # YAML 1.1 requires a point in the mantissa.
    return text if not e or "." in mantissa else f"{mantissa}.0e{exponent}"


Shape = Any
"""A map is a dict, a list a list, a scalar a tuple of "scalar", its tag and text, an alias of "alias" and name."""
_DUMPER: Final[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_MAX_COPIED: Final = 100_000
_STR_KEY: Final = "scalar", STR


def shape(node: YamlNode | None) -> Shape:
    if node is None:
        return {}
    if node.kind == "map":
        return {_key(key): shape(value) for key, value in node.entries}
    if node.kind == "list":
        return [shape(item) for item, _ in node.entries]
    if node.kind == "alias":
        return "alias", node.value
    return "scalar", node.tag, "null" if node.tag == NULL else node.value  # null can be written in five ways


def shape_of(value: Any) -> Shape:
    """The shape of a value that is going to be written."""
    if isinstance(value, Mapping):
        return {shape_of(key): shape_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [shape_of(item) for item in value]
    written = scalar(value)
    return "scalar", written.tag, written.value


def put_shape(old: Shape, steps: tuple[str, ...], new: Shape) -> Shape:
    """The shape with a new one at this path; it may be changed itself."""
    if not steps:
        return new
    if isinstance(old, list):
        at = int(steps[0])
        old[at : at + 1] = [put_shape(old[at] if at < len(old) else {}, steps[1:], new)]
        return old
    old = old if isinstance(old, dict) else {}
    key = _named(old, steps[0])
    old[key] = put_shape(old.get(key, {}), steps[1:], new)
    return old


def merged_shape(lower: YamlNode, upper: YamlNode, below: YamlCopier, above: YamlCopier) -> Shape:
    found = shape(lower)
    for key, new in upper.entries:
        entry = lower.at(key.value)
        new = above.resolved(new)
        if entry is None:
            found[_key(key)] = shape_of(above.copy(new))
        elif new.kind == "map" and entry[1].kind == "map":
            found[_key(entry[0])] = merged_shape(entry[1], new, below, above)
        elif new.kind == "map" and below.resolved(entry[1]).kind == "map":
            found[_key(entry[0])] = shape_of(above.over(below.resolved(entry[1]), new, below))
        else:
            found[_key(entry[0])] = shape_of(above.copy(new))
    return found


def as_text(found: Shape) -> str:
    """A document with this content, in a plain layout."""
    text: str = yaml.serialize(_yaml_node(found), Dumper=_DUMPER, allow_unicode=True, width=1 << 20)
    return text


class YamlCopier:
    """Copies values out of a document, with its aliases resolved, up to a bound."""

    def __init__(self, anchors: Mapping[str, YamlNode]) -> None:
        self._anchors = anchors
        self._left = _MAX_COPIED

    def resolved(self, node: YamlNode) -> YamlNode:
        return self._anchors[node.value] if node.kind == "alias" else node

    def copy(self, node: YamlNode, depth: int = 0) -> Any:
        node = self.resolved(node)
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise Malformed(f"its aliases stand for more than {_MAX_COPIED} values")
        if node.kind == "map":
            _refuse_tag(node)
            return {self.copy_key(key): self.copy(value, depth + 1) for key, value in node.entries}
        if node.kind == "list":
            _refuse_tag(node)
            return [self.copy(item, depth + 1) for item, _ in node.entries]
        if node.tag == STR:
            return scalar(node.value)
        if node.style:
            return Scalar(f"!<{node.tag}> {scalar(node.value, style=chr(34)).text}", node.tag, node.value)
        return Scalar(node.value or "null", node.tag, node.value or "null")

    def copy_key(self, key: YamlNode) -> Scalar:
        if key.kind != "scalar":
            raise Impossible("it has keys that are no simple texts")
        found: Scalar = self.copy(key)
        return found

    def over(self, lower: YamlNode, upper: YamlNode, below: YamlCopier) -> dict[Scalar, Any]:
        """The values of the lower map with those of the upper one over them."""
        found: dict[Scalar, Any] = below.copy(lower)
        for key, value in upper.entries:
            old = lower.at(key.value)
            name = below.copy_key(old[0]) if old is not None else self.copy_key(key)
            if old is not None and (below.resolved(old[1]).kind, self.resolved(value).kind) == ("map", "map"):
                found[name] = self.over(below.resolved(old[1]), self.resolved(value), below)
            else:
                found[name] = self.copy(value)
        return found


def _refuse_tag(node: YamlNode) -> None:
    if node.tag:
        raise Impossible(f"it has a map or list with the tag '{node.tag}'")


def _key(node: YamlNode) -> Shape:
    if node.kind == "scalar":
        return "scalar", node.tag, node.value  # found by its text
    found = shape(node)
    return found if isinstance(found, tuple) else ("complex", repr(found))


def _named(found: dict[Shape, Shape], name: str) -> Shape:
    """The last key with this text; a missing one is a string."""
    for key in reversed(found):
        if key[0] == "scalar" and key[2] == name:
            return key
    return (*_STR_KEY, name)


def _yaml_node(found: Shape) -> yaml.Node:
    if isinstance(found, dict):
        pairs = [(_yaml_node(key), _yaml_node(value)) for key, value in found.items()]
        return yaml.MappingNode("tag:yaml.org,2002:map", pairs, flow_style=False)
    if isinstance(found, list):
        items = [_yaml_node(item) for item in found]
        return yaml.SequenceNode("tag:yaml.org,2002:seq", items, flow_style=False)
    if found[0] != "scalar":
        raise Impossible("it has aliases or complex keys, and is laid out in a way that cannot be edited")
    return yaml.ScalarNode(found[1], found[2])
