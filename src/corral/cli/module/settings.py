"""New settings of a module from what a command line says, read as manifests are: a date is a text."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

from corral.cli.failure import WrongUsage
from corral.cli.terminal.output import Item
from corral.cli.terminal.values import pairs


def changed_settings(
    before: Item, *, given: tuple[str, ...], unset: tuple[str, ...], path: str | None
) -> dict[str, Any]:
    """All settings as they shall be: those of the file, or the present ones, then single keys. `a.b=1`
    reaches into a mapping."""
    settings = _read(path) if path is not None else _copy(before)
    for key, text in pairs(given).items():
        *above, last = key.split(".")
        _within(settings, above, key)[last] = _value(key, text)
    for key in unset:
        *above, last = key.split(".")
        _within(settings, above, key).pop(last, None)
    return settings


def _copy(value: Any) -> Any:
    return {key: _copy(inner) for key, inner in value.items()} if isinstance(value, dict) else value


def _within(settings: dict[str, Any], above: list[str], key: str) -> dict[str, Any]:
    place = settings
    for part in above:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise WrongUsage(f"'{key}' leads into a value that holds no others")
    return place


def _value(key: str, text: str) -> Any:
    from corral.modules.manifest.text_nodes import NotReadable, plain, read_yaml

    try:
        return plain(read_yaml(text)) if text.strip() else None
    except NotReadable as error:
        raise WrongUsage(f"the value of '{key}': {error.why}", hint="put quotes around texts") from error


def _read(path: str) -> dict[str, Any]:
    from corral.modules.manifest.text_nodes import NotReadable, plain, read_yaml

    try:
        text = sys.stdin.read() if path == "-" else pathlib.Path(path).expanduser().read_text("utf-8")
        settings = plain(read_yaml(text))
    except OSError as error:
        raise WrongUsage(f"cannot read {path}: {error.strerror}") from error
    except NotReadable as error:
        raise WrongUsage(f"{path}:{error.line}: {error.why}") from error
    except ValueError as error:
        raise WrongUsage(f"{path} is neither YAML nor JSON: {error}") from error
    if not isinstance(settings, dict):
        raise WrongUsage(f"{path} holds no mapping of settings")
    return settings
