"""Validator of settings against their JSON Schema, run in a child process, or in this one for small ones.

Nothing in here is bounded, and the validator holds the interpreter until it is done. Its library is imported
with the first check: it is large, and most nodes check nothing.
"""

from __future__ import annotations

import resource
import signal
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    import jsonschema_rs

MISFITS_MAX: Final = 5
EXIT_MEMORY: Final = 72
_PATTERN_SIZE: Final = 1024 * 1024
_MEMORY: Final = 1024 * 1024 * 1024


class ValidationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Without settings: checks whether the schema itself is valid."""

    schema: dict[str, Any]
    settings: dict[str, Any] | None = None


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is dotted, empty for the whole."""

    path: str = ""
    why: str


class ValidationResult(msgspec.Struct, frozen=True, kw_only=True):
    """The first few misfits, and how many there are in all."""

    misfits: tuple[Misfit, ...] = ()
    count: int = 0


def validate(question: ValidationRequest) -> ValidationResult:
    """Misfits of the schema, or of the settings. Texts name the place but not the value: it may be a
    secret."""
    import jsonschema_rs

    try:
        if question.settings is None:
            _validator(question.schema, mask=None)
            return ValidationResult()
        validator = _validator(question.schema, mask="the value")
        if validator.is_valid(question.settings):
            return ValidationResult()
        found = [_misfit(error) for error in validator.iter_errors(question.settings)]
    except jsonschema_rs.ValidationError as error:
        found = [_misfit(error)]
    except (ValueError, RecursionError) as error:
        found = [Misfit(why=str(error)[:300])]
    return ValidationResult(misfits=tuple(found[:MISFITS_MAX]), count=len(found))


def validate_from_stdin(seconds: int) -> None:
    """Main function of a child: reads a request from its input and writes the result to its output. It ends
    by itself when it computes for longer than `seconds`, or exceeds its memory limit."""
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGXCPU})
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=ValidationRequest)
    try:
        found = validate(question)
    except MemoryError:
        sys.exit(EXIT_MEMORY)
    sys.stdout.buffer.write(msgspec.json.encode(found))


def _validator(schema: dict[str, Any], *, mask: str | None) -> Any:
    import jsonschema_rs

    patterns = jsonschema_rs.RegexOptions(size_limit=_PATTERN_SIZE, dfa_size_limit=_PATTERN_SIZE)
    return jsonschema_rs.validator_for(
        schema, pattern_options=patterns, offline=True, mask=mask, validate_formats=True
    )


def _misfit(error: jsonschema_rs.ValidationError) -> Misfit:
    return Misfit(path=_dotted(error.instance_path), why=error.message[:300])


def _dotted(path: Iterable[str | int]) -> str:
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")
