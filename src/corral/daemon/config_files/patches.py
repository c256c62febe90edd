"""The patches of a plan, made in a working directory before its program starts."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence

from corral.daemon.config_files.faults import MAX_BYTES, Impossible, Malformed
from corral.daemon.config_files.formats import FORMATS
from corral.daemon.config_files.no_follow import read_beneath, replace_beneath
from corral.daemon.config_files.regexes import replace_matches
from corral.daemon.config_files.values import with_variables
from corral.domain.config_patches import patch_format, value_text
from corral.domain.groups import PatchOp, PatchSpec
from corral.domain.variables import substitute
from corral.errors import Code, Rejected


def apply_patches(
    directory: pathlib.Path, patches: Sequence[PatchSpec], *, values: Mapping[str, str]
) -> None:
    """Make the patches in their order, `values` being the variables. Blocks: call it in a worker thread.

    All or nothing as far as the patches are concerned: files are written once every patch could be made. No
    error text holds a value, which may be a secret.
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
    """A file's content with one patch made; None: there is no such file."""
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
    """A backslash in a variable's value is no reference to a group."""
    literal = {name: value.replace("\\", "\\\\") for name, value in values.items()}
    return replace_matches(data, patch.path, substitute(value_text(patch.value), literal).text)


def _failed(patch: PatchSpec, why: str, hint: str) -> Rejected:
    where = f" at '{patch.path[:200]}'" if patch.op is not PatchOp.REGEX else ""
    return Rejected(
        Code.CONFIG_PATCH_FAILED, f"{patch.file} cannot be patched{where}: {why}", hint=hint, field="path"
    )
