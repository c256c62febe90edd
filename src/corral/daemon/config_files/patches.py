r"""Patches of a plan, applied in a working directory before its program starts; and merges of two layers of a
configuration file, where a group configures them.

`put` sets a value by its path in a format that the patch names. A patch by pattern works on the bytes of a file: bytes
that do not match stay, whatever their encoding. In its new text `\1` and `\g<name>` stand for groups, `\0` for the
match, `\\` for a backslash.
"""

from __future__ import annotations

import pathlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from corral.daemon.config_files import json_text, properties, yaml_text
from corral.daemon.config_files.no_follow import read_beneath, replace_beneath
from corral.daemon.config_files.text_edits import MAX_BYTES, Impossible, Malformed
from corral.daemon.config_files.values import with_variables
from corral.domain.groups.config_patches import format_of, patch_format, split_path, value_text
from corral.domain.groups.group import PatchOp, PatchSpec
from corral.domain.groups.variables import substitute
from corral.domain.patterns import Pattern, check_template, compile_bytes, compile_pattern
from corral.errors import Code, CorralError, Rejected

_REFERENCE: Final = re.compile(r"\\(?:([0-9])|g<([A-Za-z_][A-Za-z0-9_]*|[0-9]{1,2})>|(\\))")
_SECONDS: Final = 2.0


def replace_matches(data: bytes, pattern: str, template: str) -> bytes:
    """Replace every match; none is fine. One search is linear in the file whatever the pattern, but a file may have as
    many matches as bytes: so all of them together have a deadline."""
    try:
        known = compile_pattern(pattern, field="path", multiline=True)
        check_template(known, template, field="value")
        compiled = compile_bytes(pattern, field="path", multiline=True)
    except CorralError as error:
        raise Impossible(error.message) from error
    parts = _parts(known, template)
    deadline = time.monotonic() + _SECONDS
    found: list[bytes] = []
    reached = size = 0
    for match in compiled.finditer(data):
        start, end = match.start(), match.end()
        if start == end and data[start : start + 1] and 0x80 <= data[start] < 0xC0:
            continue  # no match begins within a character
        new = b"".join(part if isinstance(part, bytes) else match[part] or b"" for part in parts)
        found += (data[reached:start], new)
        size += start - reached + len(new)
        reached = end
        if size > MAX_BYTES:
            raise Impossible(f"it would have more than {MAX_BYTES} bytes")
        if time.monotonic() > deadline:
            raise Impossible(f"its matches are not found within {_SECONDS:g} s")
    return b"".join((*found, data[reached:]))


def _parts(pattern: Pattern, template: str) -> list[bytes | int]:
    """The template as texts and numbers of groups."""
    parts: list[bytes | int] = []
    reached = 0
    for found in _REFERENCE.finditer(template):
        parts.append(template[reached : found.start()].encode())
        name = found[1] or found[2]
        if name is None:
            parts.append(b"\\")
        else:
            parts.append(int(name) if name.isdigit() else pattern.groupindex[name])
        reached = found.end()
    return [*parts, template[reached:].encode()]


def mergeable(name: str) -> bool:
    """Whether the extension of this file determines how to merge it."""
    return bool(format_of(name))


def merged(lower: bytes, upper: bytes, *, name: str) -> bytes:
    """The lower layer with the upper one over it: maps key by key, lists and all else as a whole, properties per key.
    Comments, order and layout are the lower one's. A file of no such format is the upper one."""
    kind = FORMATS.get(format_of(name))
    if kind is None:
        return upper
    if max(len(lower), len(upper)) > MAX_BYTES:
        raise _invalid(name, f"it has more than {MAX_BYTES} bytes")
    try:
        return kind.merge(lower, upper)
    except Malformed as error:
        where = f" in line {error.line}" if error.line else ""
        raise _invalid(name, f"it is not valid {format_of(name)}{where}: {error.why}") from error
    except Impossible as error:
        raise _invalid(name, error.why) from error


def _invalid(name: str, why: str) -> Rejected:
    return Rejected(
        Code.CONFIG_FILE_INVALID,
        f"the layers of {name} cannot be merged: {why}",
        hint="correct the file in its template, or take it out of the group's 'merge'",
        field="file",
    )


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """Functions of bytes; they raise `Malformed` and `Impossible`."""

    put: Callable[..., bytes]
    """(data, path as in a patch, value, create=bool): sets a value at its path, all else unchanged."""
    merge: Callable[[bytes, bytes], bytes]
    """(lower, upper): the upper one's values over the lower one's."""


def _stepwise(put: Callable[..., bytes]) -> Callable[..., bytes]:
    def put_at(data: bytes, path: str, value: Any, *, create: bool) -> bytes:
        return put(data, split_path(path), value, create=create)

    return put_at


def _put_toml(data: bytes, steps: tuple[str, ...], value: Any, *, create: bool) -> bytes:
    from corral.daemon.config_files import toml_text  # with the first TOML file: its library is large

    return toml_text.put(data, steps, value, create=create)


def _merge_toml(lower: bytes, upper: bytes) -> bytes:
    from corral.daemon.config_files import toml_text

    return toml_text.merge(lower, upper)


FORMATS: Final[Mapping[str, Format]] = {
    "properties": Format(put=properties.put, merge=properties.merge),
    "yaml": Format(put=_stepwise(yaml_text.put), merge=yaml_text.merge),
    "json": Format(put=_stepwise(json_text.put), merge=json_text.merge),
    "toml": Format(put=_stepwise(_put_toml), merge=_merge_toml),
}


def apply_patches(
    directory: pathlib.Path, patches: Sequence[PatchSpec], *, values: Mapping[str, str]
) -> None:
    """Apply the patches in their order, `values` being the variables. Blocks: call it in a worker thread.

    All or nothing as far as the patches are concerned: files are written once every patch was possible. No error text
    has a value, which may be a secret.
    """
    contents: dict[str, bytes | None] = {}
    before: dict[str, bytes | None] = {}
    for patch in patches:
        if patch.file not in contents:
            contents[patch.file] = before[patch.file] = read_beneath(directory, patch.file)
        contents[patch.file] = patched(contents[patch.file], patch, values)
    for path, content in contents.items():
        if content is not None and content != before[path]:
            replace_beneath(directory, path, content)


def patched(data: bytes | None, patch: PatchSpec, values: Mapping[str, str]) -> bytes:
    """A file's content with one patch applied; None: there is no such file."""
    if data is None and patch.op is not PatchOp.SET:
        raise _failed(patch, "there is no such file", "check the templates, or use the op set to make it")
    try:
        if patch.op is PatchOp.REGEX:
            result = _substituted(data or b"", patch, values)
        else:
            result = _put(data or b"", patch, values)
    except Malformed as error:
        where = f" in line {error.line}" if error.line else ""
        raise Rejected(
            Code.CONFIG_FILE_INVALID,
            f"{patch.file} is not valid {patch_format(patch)}{where}: {error.why}",
            hint="correct the file in its template, or give the patch another format",
            field="file",
        ) from error
    except Impossible as error:
        raise _failed(patch, error.why, "compare the patch with the file of its template") from error
    if len(result) > MAX_BYTES:
        raise _failed(
            patch, f"it would have {len(result)} bytes, more than {MAX_BYTES}", "take a smaller value"
        )
    return result


def _put(data: bytes, patch: PatchSpec, values: Mapping[str, str]) -> bytes:
    kind = FORMATS.get(patch_format(patch))
    if kind is None:
        raise _failed(
            patch, "its ending does not tell its format", f"give the patch a format: {', '.join(FORMATS)}"
        )
    return kind.put(data, patch.path, with_variables(patch.value, values), create=patch.op is PatchOp.SET)


def _substituted(data: bytes, patch: PatchSpec, values: Mapping[str, str]) -> bytes:
    """Replace by pattern; a backslash in a variable's value is not a reference to a group."""
    literal = {name: value.replace("\\", "\\\\") for name, value in values.items()}
    return replace_matches(data, patch.path, substitute(value_text(patch.value), literal).text)


def _failed(patch: PatchSpec, why: str, hint: str) -> Rejected:
    where = f" at '{patch.path[:200]}'" if patch.op is not PatchOp.REGEX else ""
    return Rejected(
        Code.CONFIG_PATCH_FAILED, f"{patch.file} cannot be patched{where}: {why}", hint=hint, field="path"
    )
