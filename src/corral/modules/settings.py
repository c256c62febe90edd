"""Settings that an operator gives a module, checked against the JSON Schema in its manifest.

Patterns are run by an engine that is linear in the text, nothing is ever fetched, and a refusal names the
place but not the value: it may be a secret.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from typing import Any, Final

import jsonschema_rs
import msgspec

from corral.errors import Code, Rejected
from corral.modules.schema_bounds import TooCostly, bound_schema, resolve

SETTINGS_MAX: Final = 256 * 1024
"""Bytes of settings as JSON."""
_TOLD_MAX: Final = 5
_CANONICAL: Final = msgspec.json.Encoder(order="sorted")
_FILL_DEPTH: Final = 64
_PATTERNS: Final = jsonschema_rs.RegexOptions(size_limit=1024 * 1024, dfa_size_limit=1024 * 1024)


def settings_json(settings: dict[str, Any]) -> bytes:
    """Settings as they travel: equal ones are equal bytes."""
    return _CANONICAL.encode(settings)


def settings_digest(settings: dict[str, Any]) -> str:
    """The SHA-256 of `settings_json`, by which two hosts compare settings without telling them."""
    return hashlib.sha256(settings_json(settings)).hexdigest()


def check_schema(schema: dict[str, Any]) -> None:
    """Refuse what is not a JSON Schema of settings; MANIFEST_INVALID, its field the place in the schema.
    Without a schema a module takes no settings."""
    if not schema:
        return
    if schema.get("type", "object") != "object":
        raise _bad_schema("type", "settings are a map; write 'type: object'")
    try:
        bound_schema(schema)
        _validator(schema, mask=None)
    except TooCostly as refused:
        raise _bad_schema(refused.path, refused.why) from None
    except jsonschema_rs.ValidationError as error:
        raise _bad_schema(_dotted(error.instance_path), error.message) from None
    except (ValueError, RecursionError) as error:
        raise _bad_schema("", str(error)) from None


def check_settings(schema: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """The settings with the schema's defaults filled in, as a copy. SETTINGS_INVALID names each place that
    does not fit. The schema is one that passed `check_schema`."""
    settings = _copied(values)
    if not schema:
        if settings:
            raise _bad_settings([("", f"the module takes no settings, but {_some(settings)} is given")])
        return {}
    _fill(schema, settings, schema, 0)
    try:
        errors = [
            (_dotted(error.instance_path), error.message)
            for error in _validator(schema, mask="the value").iter_errors(settings)
        ]
    except ValueError as error:
        raise _bad_settings([("", str(error))]) from None
    if errors:
        raise _bad_settings(errors)
    return settings


def _validator(schema: dict[str, Any], *, mask: str | None) -> Any:
    return jsonschema_rs.validator_for(
        schema, pattern_options=_PATTERNS, offline=True, mask=mask, validate_formats=True
    )


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    try:
        encoded = msgspec.json.encode(values)
        if len(encoded) > SETTINGS_MAX:
            raise _bad_settings([("", f"they are larger than {SETTINGS_MAX} bytes")])
        return msgspec.json.decode(encoded, type=dict[str, Any])
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError):
        raise _bad_settings([("", "they are not a map of plain values")]) from None


def _fill(schema: Any, value: Any, root: dict[str, Any], depth: int) -> None:
    """Put the defaults of properties where nothing stands, also in maps and lists further down."""
    if depth > _FILL_DEPTH or not isinstance(schema, dict):
        return
    if "$ref" in schema:
        _fill(resolve(root, schema["$ref"]), value, root, depth + 1)
    for part in _list(schema.get("allOf")):
        _fill(part, value, root, depth + 1)
    if isinstance(value, dict):
        properties = schema.get("properties")
        for name, inner in properties.items() if isinstance(properties, dict) else ():
            found = _default(inner, root)
            if name not in value and found is not None:
                value[name] = copy.deepcopy(found)
            if name in value:
                _fill(inner, value[name], root, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _fill(schema.get("items"), each, root, depth + 1)


def _default(schema: Any, root: dict[str, Any]) -> Any:
    """Its default; None, which no setting needs to be filled in with, when it has none."""
    for _ in range(_FILL_DEPTH):
        if not isinstance(schema, dict):
            return None
        if "default" in schema:
            return schema["default"]
        schema = resolve(root, schema.get("$ref"))
    return None


def _list(value: object) -> Iterable[Any]:
    return value if isinstance(value, list) else ()


def _dotted(path: Iterable[str | int]) -> str:
    told = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return told.removeprefix(".")


def _some(settings: dict[str, Any]) -> str:
    return repr(next(iter(settings))[:80])


def _bad_schema(path: str, why: str) -> Rejected:
    return Rejected(
        Code.MANIFEST_INVALID,
        f"the schema of its settings cannot be used: {why[:300]}",
        hint="write a JSON Schema (2020-12) whose references stay within it",
        field=path or None,
    )


def _bad_settings(errors: list[tuple[str, str]]) -> Rejected:
    told = [f"{path}: {why[:300]}" if path else why[:300] for path, why in errors[:_TOLD_MAX]]
    if len(errors) > _TOLD_MAX:
        told.append(f"and {len(errors) - _TOLD_MAX} more")
    return Rejected(
        Code.SETTINGS_INVALID,
        f"the settings do not fit the module: {'; '.join(told)}",
        hint="nothing was changed; `corral module config ID` shows what it takes once it is installed, its "
        "manifest before",
        field=errors[0][0] or None,
    )
