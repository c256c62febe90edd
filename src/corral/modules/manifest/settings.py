"""Settings of a module, checked against the JSON Schema in its manifest.

Patterns are run by an engine that is linear in the text, nothing is ever fetched, and a refusal names the
place but not the value: it may be a secret. The cost of schema and value together is estimated first: small
ones are checked in this process, all others in a child whose CPU time is bounded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from corral.domain.json_limits import MAX_DEPTH, deeper_than
from corral.errors import Code, Rejected
from corral.modules.manifest.schema_limits import (
    TooCostly,
    bound_schema,
    checking_weight,
    resolve,
    schema_weight,
    value_weight,
)
from corral.modules.manifest.settings_validator import Misfit, ValidationRequest, ValidationResult, validate
from corral.modules.manifest.validation_process import CPU_SECONDS, TooSlow, validate_in_child

SETTINGS_MAX: Final = 256 * 1024
"""Bytes of settings as JSON, the defaults included."""
SMALL: Final = 3000
"""The `checking_weight` up to which settings are checked in this process: some 20 µs each at the very worst,
which is a value that fits none of many alternatives. Some hundreds of settings of various types stay
below."""
_SMALL_SCHEMA: Final = 3000
"""Parts of a schema that is compiled in this process; each takes some 7 µs."""
_FILL_STEPS: Final = 100_000
_CANONICAL: Final = msgspec.json.Encoder(order="sorted")
_FILL_DEPTH: Final = 64


def settings_json(settings: dict[str, Any]) -> bytes:
    """Settings as they are sent: equal settings are equal bytes."""
    return _CANONICAL.encode(settings)


def settings_digest(settings: dict[str, Any]) -> str:
    """The SHA-256 of `settings_json`, by which two hosts compare settings without sending them."""
    return hashlib.sha256(settings_json(settings)).hexdigest()


def check_schema(schema: dict[str, Any]) -> None:
    """Refuse what is not a JSON Schema of settings; MANIFEST_INVALID, its field the place in the schema.
    Without a schema a module takes no settings. Blocking."""
    if not schema:
        return
    if schema.get("type", "object") != "object":
        raise _bad_schema("type", "settings are a map; write 'type: object'")
    try:
        cost = bound_schema(schema)
        found = _verdict(ValidationRequest(schema=schema), small=schema_weight(schema, cost) <= _SMALL_SCHEMA)
    except TooCostly as refused:
        raise _bad_schema(refused.path, refused.why) from None
    except TooSlow:
        raise _bad_schema("", f"it takes longer than {CPU_SECONDS} s of computing to understand") from None
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise _bad_schema("", str(error)) from None
    for misfit in found.misfits:
        raise _bad_schema(misfit.path, misfit.why)


def check_settings(schema: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The settings with the schema's defaults filled in, as a copy. SETTINGS_INVALID names each place that
    does not fit. The schema is one that passed `check_schema`. Blocking."""
    settings = _copied(values)
    if not schema:
        if settings:
            raise _bad_settings(f"the module takes no settings, but {_some(settings)} is given")
        return {}
    try:
        _Filling(schema).fill(schema, settings, 0)
        settings = _copied(settings)
        weight = checking_weight(schema, settings, most=SMALL)
        found = _verdict(ValidationRequest(schema=schema, settings=settings), small=weight <= SMALL)
    except (TooCostly, TooSlow):
        raise _bad_settings(
            f"it takes more than {CPU_SECONDS} s of computing, or {_FILL_STEPS:,} steps, to check them against the "
            "module's schema"
        ) from None
    if found.misfits:
        raise _misfitting(found.misfits, found.count)
    return settings


def _verdict(question: ValidationRequest, *, small: bool) -> ValidationResult:
    return validate(question) if small else validate_in_child(question)


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    """A map of plain values, neither too deep nor too large."""
    if deeper_than(values, MAX_DEPTH):
        raise _bad_settings(f"they are nested deeper than {MAX_DEPTH} levels")
    try:
        encoded = msgspec.json.encode(values)
        copied = msgspec.json.decode(encoded, type=dict[str, Any])
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError):
        raise _bad_settings("they are not a map of plain values") from None
    if len(encoded) > SETTINGS_MAX:
        raise _bad_settings(f"they are larger than {SETTINGS_MAX} bytes, the defaults included")
    return copied


class _Filling:
    """Fills in the defaults of missing properties, also in nested maps and lists, in a bounded number of
    steps: each part of the schema may be visited for each part of the value."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._left = _FILL_STEPS

    def fill(self, schema: Any, value: Any, depth: int) -> None:
        """TooCostly."""
        self._step()
        if depth > _FILL_DEPTH or not isinstance(schema, dict):
            return
        if "$ref" in schema:
            self.fill(resolve(self._root, schema["$ref"]), value, depth + 1)
        for part in _list(schema.get("allOf")):
            self.fill(part, value, depth + 1)
        if isinstance(value, dict):
            properties = schema.get("properties")
            for name, inner in properties.items() if isinstance(properties, dict) else ():
                self._step()
                if name not in value:
                    found = _default(inner, self._root)
                    if found is not None:
                        value[name] = self._copy(found)
                if name in value:
                    self.fill(inner, value[name], depth + 1)
        elif isinstance(value, list):
            for each in value:
                self.fill(schema.get("items"), each, depth + 1)

    def _copy(self, default: Any) -> Any:
        self._step(value_weight(default))
        return msgspec.json.decode(msgspec.json.encode(default))

    def _step(self, steps: int = 1) -> None:
        self._left -= steps
        if self._left < 0:
            raise TooCostly("", "its defaults are too many")


def _default(schema: Any, root: dict[str, Any]) -> Any:
    """The default; None, which is never filled in, when it has none."""
    for _ in range(_FILL_DEPTH):
        if not isinstance(schema, dict):
            return None
        if "default" in schema:
            return schema["default"]
        schema = resolve(root, schema.get("$ref"))
    return None


def _list(value: object) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _some(settings: dict[str, Any]) -> str:
    return repr(next(iter(settings))[:80])


def _bad_schema(path: str, why: str) -> Rejected:
    return Rejected(
        Code.MANIFEST_INVALID,
        f"the schema of its settings cannot be used: {why[:300]}",
        hint="write a JSON Schema (2020-12) whose references stay within it",
        field=path or None,
    )


def _misfitting(misfits: Sequence[Misfit], count: int) -> Rejected:
    texts = [f"{each.path}: {each.why}" if each.path else each.why for each in misfits]
    if count > len(misfits):
        texts.append(f"and {count - len(misfits)} more")
    return _bad_settings("; ".join(texts), field=misfits[0].path)


def _bad_settings(why: str, *, field: str = "") -> Rejected:
    return Rejected(
        Code.SETTINGS_INVALID,
        f"the settings do not fit the module: {why}",
        hint="nothing was changed; `corral module config ID` shows what it takes once it is installed, its "
        "manifest before",
        field=field or None,
    )
