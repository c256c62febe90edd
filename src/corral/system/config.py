"""The configuration of both roles: flags over environment over file over defaults.

`load_controller` and `load_daemon` return a checked, frozen configuration and, for every key, where its value
came from. `render` writes both as a file that loads to the same.
"""

from __future__ import annotations

import decimal
import pathlib
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import yaml

from corral.system.config_keys import Key, Shape, keys_of
from corral.system.config_sections import Section
from corral.system.config_sources import (
    DEFAULT,
    FORMATS,
    VERSION,
    Settings,
    read_environment,
    read_file,
    read_flags,
    wrong_value,
)
from corral.system.controller_config import ControllerConfig, check_controller
from corral.system.daemon_config import DaemonConfig, check_daemon, node_id_of_host

__all__ = [
    "ControllerConfig",
    "DaemonConfig",
    "Sources",
    "load_controller",
    "load_daemon",
    "node_id_of_host",
    "render",
]

C = TypeVar("C", bound=Section)
Sources = Mapping[str, str]
"""For every key, by dotted path: `default`, `file F:LINE`, `environment NAME` or `flag`."""


def load_controller(
    path: pathlib.Path | None, env: Mapping[str, str], flags: Mapping[str, object]
) -> tuple[ControllerConfig, Sources]:
    """Raises `Rejected` (INVALID_CONFIG, FORMAT_TOO_NEW) at the first thing that is wrong."""
    config, sources = _load(ControllerConfig, path, env, flags)
    check_controller(config)
    return config, sources


def load_daemon(
    path: pathlib.Path | None, env: Mapping[str, str], flags: Mapping[str, object]
) -> tuple[DaemonConfig, Sources]:
    """Raises `Rejected` (INVALID_CONFIG, FORMAT_TOO_NEW) at the first thing that is wrong."""
    config, sources = _load(DaemonConfig, path, env, flags)
    check_daemon(config)
    return config, sources


def _load(
    schema: type[C], path: pathlib.Path | None, env: Mapping[str, str], flags: Mapping[str, object]
) -> tuple[C, Sources]:
    settings: Settings = read_file(path, schema) if path is not None else {}
    settings |= read_environment(env, schema)
    settings |= read_flags(flags, schema)
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for key in keys_of(schema).values():
        setting = settings.get(key.path)
        sources[key.path] = setting.origin if setting else DEFAULT
        try:
            values[key.path] = key.accept(setting.value if setting else key.default)
        except ValueError as why:
            raise wrong_value(key, sources[key.path], why) from why
    return _assemble(schema, values, ""), sources


def _assemble(schema: type[C], values: Mapping[str, Any], prefix: str) -> C:
    """Nest the flat, already checked values again."""
    fields: dict[str, Any] = {}
    for name, default in ((name, getattr(schema(), name)) for name in schema.__struct_fields__):
        path = prefix + name
        nested = isinstance(default, Section)
        fields[name] = _assemble(type(default), values, path + ".") if nested else values[path]
    return schema(**fields)


def render(config: ControllerConfig | DaemonConfig, sources: Sources, *, mask: bool = False) -> str:
    """Every key with its description and source as a YAML file that loads to the same configuration.

    With `mask`, the password of a store URL is hidden; such a text is for reading only.
    """
    schema = type(config)
    lines = [f"format: {FORMATS[schema]}", f"version: {VERSION}"]
    open_sections: list[str] = []
    for key in keys_of(schema).values():
        *parents, name = key.path.split(".")
        lines += _headings(parents, open_sections)
        open_sections = parents
        indent = "  " * len(parents)
        origin = " ".join(sources.get(key.path, DEFAULT).split())
        value = _value(config, key, mask=mask)
        lines += [f"{indent}# {key.description}", f"{indent}# from: {origin}", f"{indent}{name}: {value}"]
    return "\n".join(lines) + "\n"


def _headings(parents: list[str], opened: list[str]) -> list[str]:
    """The section lines to write before a key, given the sections of the last key."""
    shared = 0
    while shared < min(len(parents), len(opened)) and parents[shared] == opened[shared]:
        shared += 1
    new = [f"{'  ' * depth}{parents[depth]}:" for depth in range(shared, len(parents))]
    return new if shared else ["", *new]


def _value(config: Section, key: Key, *, mask: bool) -> str:
    found: Any = config
    for name in key.path.split("."):
        found = getattr(found, name)
    if key.shape is Shape.SCALAR:
        return _number(found)
    if key.shape is Shape.TEXT:
        found = str(found)
        if mask and key.path == "store.url":
            found = _without_password(found)
    elif key.shape is Shape.LIST:
        found = list(found)
    dumped: str = yaml.dump(
        found, Dumper=yaml.SafeDumper, default_style='"', default_flow_style=True, width=2**30
    )
    return dumped.strip()


def _number(value: float) -> str:
    """Digits alone: YAML 1.1 reads an exponent without a point as text."""
    if isinstance(value, bool):
        return str(value).lower()
    return format(decimal.Decimal(repr(value)), "f").removesuffix(".0")


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user, _, rest = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{user.partition(':')[0]}:***@{rest}"))
