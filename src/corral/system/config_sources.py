"""Sources of settings: a file, the environment, flags. Each is read whole and refused by name.

A source yields settings by dotted path, each with the place it came from, so that its author can find a wrong
value.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
import yaml

from corral.errors import Code, Rejected, nearest
from corral.system.config_keys import Key, keys_of, sections_of
from corral.system.config_sections import Section
from corral.system.controller_config import ControllerConfig
from corral.system.daemon_config import DaemonConfig

VERSION: Final = 1
FORMATS: Final[Mapping[type[Section], str]] = {
    ControllerConfig: "corral-controller",
    DaemonConfig: "corral-daemon",
}
RESERVED: Final = frozenset({"CORRAL_URL", "CORRAL_TOKEN", "CORRAL_CONTEXT", "CORRAL_CONFIG", "CORRAL_CA"})
"""Names the command line reads itself."""
SECRET_PREFIX: Final = "CORRAL_SECRET_"  # noqa: S105 - a prefix of names
DEFAULT: Final = "default"
_HUMP: Final = re.compile(r"[A-Z]")
_HUMPED: Final = re.compile(r"[a-z0-9]+([A-Z][a-z0-9]+)+")
FLAG: Final = "flag"


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    value: Any
    origin: str


Settings = dict[str, Setting]


def refused(message: str, *, hint: str | None = None, field: str | None = None) -> Rejected:
    return Rejected(Code.INVALID_CONFIG, message, hint=hint, field=field)


def wrong_value(key: Key, origin: str, why: object) -> Rejected:
    return refused(
        f"{key.path} ({origin}) cannot be used: {why}",
        hint=f"{key.path}: {key.description}",
        field=key.path,
    )


def read_flags(flags: Mapping[str, object], schema: type[Section]) -> Settings:
    """Flags by dotted path; None means the flag was not given, a text is read like one."""
    known = keys_of(schema)
    found: Settings = {}
    for path, value in flags.items():
        if path not in known:
            raise _unknown(f"unknown key '{path}' in the flags", path, schema)
        if value is None:
            continue
        found[path] = Setting(value=_from_text(known[path], value, FLAG), origin=FLAG)
    return found


def read_environment(environment: Mapping[str, str], schema: type[Section]) -> Settings:
    """`CORRAL_HTTP_LISTEN` sets `http.listen`. Names of the other role are ignored: one host may run both."""
    mine = {key.environment: key for key in keys_of(schema).values()}
    others = {key.environment for role in FORMATS for key in keys_of(role).values()}
    found: Settings = {}
    for name, text in environment.items():
        if not name.startswith("CORRAL_") or name in RESERVED or name.startswith(SECRET_PREFIX):
            continue
        if (key := mine.get(name)) is None:
            if name in others:
                continue
            guess = nearest(name, mine)
            raise refused(
                f"unknown environment variable {name}",
                hint=f"did you mean {guess}?" if guess else "--print-config lists every key",
            )
        origin = f"environment {name}"
        found[key.path] = Setting(value=_from_text(key, text, origin), origin=origin)
    return {path: setting for path, setting in found.items() if setting.value is not None}


def _from_text(key: Key, value: object, origin: str) -> object:
    if not isinstance(value, str):
        return value
    try:
        return key.read_text(value)
    except ValueError as why:
        raise wrong_value(key, origin, why) from None


def read_file(path: pathlib.Path, schema: type[Section]) -> Settings:
    """A YAML file that names its format and version; every key must be known, once, and in place. A key may
    be written `wait_timeout_seconds` or `waitTimeoutSeconds`."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise refused(f"cannot read {path}: {error.strerror}", hint="check --config") from error
    except UnicodeDecodeError as error:
        raise refused(f"{path} is not UTF-8 text: {error}") from error
    except yaml.YAMLError as error:
        raise refused(f"{path} is not valid YAML: {_yaml_problem(error)}") from error
    _check_header(path, root, schema)
    assert isinstance(root, yaml.MappingNode)
    return dict(_walk(path, root, "", schema))


def _yaml_problem(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"{error.problem}, line {mark.line + 1} column {mark.column + 1}"
    return " ".join(str(error).split())


def _check_header(path: pathlib.Path, root: yaml.Node | None, schema: type[Section]) -> None:
    expected = FORMATS[schema]
    header: dict[str, str] = {}
    if isinstance(root, yaml.MappingNode):
        header = {str(name.value): str(value.value) for name, value in root.value}
    if header.get("format") != expected:
        found = f"says it is '{header['format']}'" if "format" in header else "does not say what it is"
        raise refused(
            f"{path} {found}, wanted '{expected}'",
            hint=f"begin it with the lines 'format: {expected}' and 'version: {VERSION}'",
            field="format",
        )
    version = header.get("version", "")
    if not version.isdecimal() or version == "0":
        raise refused(
            f"{path} has no version that is a whole number",
            hint=f"add the line 'version: {VERSION}'",
            field="version",
        )
    if int(version) > VERSION:
        raise Rejected(
            Code.FORMAT_TOO_NEW,
            f"{path} has format version {version}, this Corral reads up to {VERSION}",
            hint="run the version of Corral that wrote it, or a newer one",
            field="version",
        )


def _walk(
    path: pathlib.Path, mapping: yaml.MappingNode, prefix: str, schema: type[Section]
) -> Iterator[tuple[str, Setting]]:
    seen: set[str] = set()
    for name_node, value_node in mapping.value:
        place = f"file {path}:{name_node.start_mark.line + 1}"
        written = str(name_node.value)
        name = _snake_case(written)
        key_path = prefix + name
        if name in seen:
            raise refused(f"'{prefix + written}' stands twice in {path}, again in line {_line(name_node)}")
        seen.add(name)
        if not prefix and name in ("format", "version"):
            continue
        if "." in name:
            hint = "write each level on a line of its own, indented under the one before"
            raise refused(f"'{prefix + written}' in {path} line {_line(name_node)} is not a key", hint=hint)
        if key_path in sections_of(schema):
            yield from _walk_section(path, value_node, key_path, schema)
        elif (key := keys_of(schema).get(key_path)) is not None:
            yield from _leaf(key, value_node, place)
        else:
            message = f"unknown key '{prefix + written}' in {path} line {_line(name_node)}"
            raise _unknown(message, key_path, schema)


def _snake_case(name: str) -> str:
    """`leakGraceSeconds` is `leak_grace_seconds`; any third spelling stays as it is."""
    return _HUMP.sub(r"_\g<0>", name).lower() if _HUMPED.fullmatch(name) else name


def _walk_section(
    path: pathlib.Path, node: yaml.Node, key_path: str, schema: type[Section]
) -> Iterator[tuple[str, Setting]]:
    if isinstance(node, yaml.MappingNode):
        yield from _walk(path, node, key_path + ".", schema)
    elif node.value != "":  # an empty section is one whose keys are all commented out
        raise refused(f"'{key_path}' in {path} line {_line(node)} holds keys, not a value", field=key_path)


def _leaf(key: Key, node: yaml.Node, place: str) -> Iterator[tuple[str, Setting]]:
    try:
        value = key.read_node(node)
    except ValueError as why:
        raise wrong_value(key, place, why) from None
    if value is not None:
        yield key.path, Setting(value=value, origin=place)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1


def _unknown(message: str, path: str, schema: type[Section]) -> Rejected:
    guess = nearest(path, [*keys_of(schema), *sections_of(schema)])
    hint = f"did you mean '{guess}'?" if guess else "--print-config lists every key"
    return refused(message, hint=hint, field=path)
