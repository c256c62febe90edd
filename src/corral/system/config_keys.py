"""The keys of a configuration as a flat table, and the conversion of a text to the value of a key.

Text is read by the type of the key, never by YAML's guess: a node id `007` stays `007`, a label `on` stays
`on`, and `[::1]:80` is an address, not a list.
"""

from __future__ import annotations

import enum
import functools
import pathlib
import typing
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from corral.errors import CorralError
from corral.system.config_sections import Section
from corral.system.config_values import Check


class Shape(enum.Enum):
    TEXT = "a text"
    SCALAR = "a single value"
    LIST = "a list"
    MAP = "a map"


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One leaf of a schema."""

    path: str
    type: Any
    shape: Shape
    default: Any
    description: str
    checks: tuple[Check, ...]

    @property
    def environment(self) -> str:
        return "CORRAL_" + self.path.upper().replace(".", "_")

    def accept(self, value: Any) -> Any:
        """The value to keep; ValueError with the reason when it cannot be one."""
        if self.type is pathlib.Path:
            if not isinstance(value, str | pathlib.Path) or not str(value):
                raise ValueError("it is empty; write a path")
            value = pathlib.Path(value)
        else:
            value = msgspec.convert(value, self.type)  # its ValidationError is a ValueError
        try:
            for check in self.checks:
                value = check(value)
        except CorralError as refused:
            raise ValueError(str(refused)) from refused
        return value

    def read_text(self, text: str) -> Any:
        """The value of a flag or an environment variable: `a,b` and `k=v,l=w` besides YAML."""
        if self.shape is Shape.TEXT:
            return text
        node = _compose(text)
        if self.shape is Shape.SCALAR or isinstance(node, yaml.CollectionNode):
            return self.read_node(node) if node is not None else None
        items = [item.strip() for item in text.split(",") if item.strip()]
        if self.shape is Shape.LIST:
            return items
        if not all("=" in item for item in items):
            raise ValueError("a map is written as name=value,name=value")
        return dict(item.split("=", 1) for item in items)

    def read_node(self, node: yaml.Node) -> Any:
        """The value of a node in a YAML file; None stands for "not set"."""
        if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
            return None
        match self.shape:
            case Shape.TEXT:
                return _plain(node)
            case Shape.SCALAR:
                return _scalar(node)
            case Shape.LIST:
                if not isinstance(node, yaml.SequenceNode):
                    raise ValueError("it must be a list")
                return [_plain(item) for item in node.value]
            case Shape.MAP:
                return _plain_map(node)


def _compose(text: str) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError:
        return None  # not YAML at all, such as `[::1]:80`: the caller reads it as plain text
    return node


def _plain(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError("it must be a single value, not a list or map")
    return str(node.value)


def _scalar(node: yaml.Node) -> Any:
    _plain(node)
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError):
        raise ValueError("it is not a value that YAML knows") from None


def _plain_map(node: yaml.Node) -> dict[str, str]:
    if not isinstance(node, yaml.MappingNode):
        raise ValueError("it must be a map")
    found: dict[str, str] = {}
    for name_node, value_node in node.value:
        name = _plain(name_node)
        if name in found:
            raise ValueError(f"'{name}' stands there twice")
        found[name] = _plain(value_node)
    return found


@functools.cache
def keys_of(schema: type[Section]) -> Mapping[str, Key]:
    """Every leaf of a schema by its dotted path, in the order of the source."""
    return {key.path: key for key in _leaves(schema, "")}


@functools.cache
def sections_of(schema: type[Section]) -> frozenset[str]:
    """The dotted paths that hold keys rather than a value."""
    parents = (path.split(".")[:-1] for path in keys_of(schema))
    return frozenset(".".join(parts[:depth]) for parts in parents for depth in range(1, len(parts) + 1))


def _leaves(schema: type[Section], prefix: str) -> list[Key]:
    hints = typing.get_type_hints(schema, include_extras=True)
    found: list[Key] = []
    for field in msgspec.structs.fields(schema):
        path = prefix + field.name
        hint = hints[field.name]
        if isinstance(hint, type) and issubclass(hint, Section):
            found += _leaves(hint, path + ".")
        else:
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            found.append(_leaf(path, hint, default))
    return found


def _leaf(path: str, hint: Any, default: Any) -> Key:
    bare, *metas = typing.get_args(hint)
    origin = typing.get_origin(bare) or bare
    by_type = {str: Shape.TEXT, pathlib.Path: Shape.TEXT, tuple: Shape.LIST, dict: Shape.MAP}
    return Key(
        path=path,
        type=bare if bare is pathlib.Path else hint,
        shape=by_type.get(origin, Shape.SCALAR),
        default=default,
        description=next(meta.description for meta in metas if meta.description),
        checks=tuple(meta.extra["check"] for meta in metas if meta.extra),
    )
