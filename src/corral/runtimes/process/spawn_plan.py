"""What the keeper is told to start: the specification, checked and with its user looked up."""

from __future__ import annotations

from typing import Any, Final

from corral.errors import Code, Rejected
from corral.runtimes.process.framing import MAX_FRAME, pack
from corral.runtimes.process.run_user import RunUser
from corral.sdk.runtime import RunSpec

_MEBIBYTE: Final = 1 << 20


def spawn_plan(spec: RunSpec, *, user: RunUser, marks: dict[str, str], segment_bytes: int) -> dict[str, Any]:
    """A request to the keeper. INVALID_FIELD for what no process can be given, ARGUMENTS_TOO_LONG for
    more than any kernel takes."""
    if not spec.command or not spec.command[0]:
        raise Rejected(Code.INVALID_FIELD, f"run {spec.run_name} has no command", field="command")
    _check_texts(spec)
    plan = {
        "do": "spawn",
        "run": spec.run_name,
        "run_directory": spec.run_directory,
        "directory": spec.directory,
        "command": list(spec.command),
        "environment": {**spec.environment, **marks},
        "marks": [f"{name}={value}" for name, value in marks.items()],
        "uid": user.uid,
        "gid": user.gid,
        "groups": list(user.groups),
        "stdin": spec.stdin,
        "tty": spec.tty,
        "segment_bytes": segment_bytes,
        "quota_bytes": spec.limits.console_mb * _MEBIBYTE,
    }
    if len(pack(plan)) > MAX_FRAME:
        raise Rejected(
            Code.ARGUMENTS_TOO_LONG,
            f"the arguments and environment of run {spec.run_name} are too long for any kernel",
            hint="one argument or value may have 128 KiB, all of them about 2 MiB",
        )
    return plan


def _check_texts(spec: RunSpec) -> None:
    for text in (*spec.command, *spec.environment.values(), spec.directory, *spec.environment):
        if "\0" in text:
            raise Rejected(Code.INVALID_FIELD, f"run {spec.run_name}: {text[:40]!r} contains a zero byte")
    for name in spec.environment:
        if not name or "=" in name:
            raise Rejected(
                Code.INVALID_FIELD,
                f"run {spec.run_name}: {name[:40]!r} is no name of a variable",
                field="env",
            )
