"""Patches of configuration files: the format of a file, the parts of a path, and the check of a patch."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Final

import msgspec

from corral.domain.file_paths import check_path
from corral.domain.groups.group import PatchOp, PatchSpec
from corral.domain.json_limits import MAX_DEPTH, deeper_than
from corral.domain.patterns import check_template, compile_pattern
from corral.domain.spec import invalid

FORMATS: Final[Mapping[str, str]] = {
    ".properties": "properties",
    ".yml": "yaml",
    ".yaml": "yaml",
    ".json": "json",
    ".toml": "toml",
}
"""By the suffix of a file, in lower case."""
MAX_PARTS: Final = 64
MAX_VALUE: Final = 128 * 1024
_SCALARS: Final = (str, int, float, bool)


def format_of(name: str) -> str:
    """The format by the suffix of its name; empty when unknown."""
    return FORMATS.get(posixpath.splitext(name)[1].lower(), "")


def patch_format(patch: PatchSpec) -> str:
    """properties, yaml, json, toml or text; empty when neither the patch nor the file's name gives it."""
    if patch.op is PatchOp.REGEX:
        return patch.format or "text"
    return patch.format or format_of(patch.file)


def split_path(text: str, *, field: str = "path") -> tuple[str, ...]:
    r"""The parts of `a.b."c.d".0`. Within quotes `\"` and `\\` stand for the sign behind the backslash."""
    parts, at = [], 0
    while True:
        quoted = text.startswith('"', at)
        part, at = _quoted(text, at + 1, field) if quoted else _plain(text, at)
        if not part and not quoted:
            raise invalid(field, f"{text[:80]!r} has an empty part", 'write a."".b for an empty key')
        parts.append(part)
        if at == len(text):
            break
        if text[at] != ".":
            raise invalid(field, f"{text[:80]!r} goes on behind a quote", "put a '.' between two parts")
        at += 1
    if len(parts) > MAX_PARTS:
        raise invalid(field, f"it has {len(parts)} parts, more than {MAX_PARTS}", "shorten it")
    return tuple(parts)


def check_patch(patch: PatchSpec, *, field: str) -> None:
    """Refuse a change that could never be made."""
    check_path(patch.file, field=f"{field}/file")
    kind = patch_format(patch)
    if patch.op is PatchOp.REGEX:
        pattern = compile_pattern(patch.path, field=f"{field}/path", multiline=True)
        _check_scalar(patch, "a regex", f"{field}/value")
        check_template(pattern, value_text(patch.value), field=f"{field}/value")
        return
    if not kind or kind == "text":
        known = ", ".join(dict.fromkeys(FORMATS.values()))
        raise invalid(
            f"{field}/format",
            f"the format of '{patch.file[:80]}' is not known by its ending",
            f"give one of {known}, or use the op regex",
        )
    if kind == "properties":
        _check_scalar(patch, "a properties file", f"{field}/value")
        return
    split_path(patch.path, field=f"{field}/path")
    _check_value(patch.value, kind, f"{field}/value")


def value_text(value: object) -> str:
    """A scalar as it is written into a text: `true`, `1.5`, the string itself."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _plain(text: str, at: int) -> tuple[str, int]:
    end = text.find(".", at)
    end = len(text) if end < 0 else end
    return text[at:end], end


def _quoted(text: str, at: int, field: str) -> tuple[str, int]:
    part = ""
    while at < len(text):
        if text[at] == '"':
            return part, at + 1
        if text[at] == "\\" and at + 1 < len(text):
            at += 1
        part += text[at]
        at += 1
    raise invalid(field, f"a quote in {text[:80]!r} is not closed", "close it")


def _check_scalar(patch: PatchSpec, where: str, field: str) -> None:
    if not isinstance(patch.value, _SCALARS):
        raise invalid(
            field,
            f"{where} takes text, a number or a truth value",
            "lists and maps belong to YAML, JSON and TOML",
        )
    if len(value_text(patch.value)) > MAX_VALUE:
        raise invalid(field, f"it is longer than {MAX_VALUE} characters", "put it into a template")


def _check_value(value: object, kind: str, field: str) -> None:
    if deeper_than(value, MAX_DEPTH):
        raise invalid(field, f"it is nested deeper than {MAX_DEPTH}", "put it into a template")
    if kind == "toml" and _holds_null(value):
        raise invalid(field, "TOML has no null", "leave the key out, or use an empty text")
    if len(msgspec.json.encode(value)) > MAX_VALUE:
        raise invalid(field, f"it is longer than {MAX_VALUE} bytes", "put it into a template")


def _children(value: object) -> list[object]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


def _holds_null(value: object) -> bool:
    return value is None or any(_holds_null(child) for child in _children(value))
