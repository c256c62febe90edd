"""What modules on the node made of an instance's start, in rows."""

from __future__ import annotations

from typing import Final

from corral.cli.output import Item

_SAID: Final = (
    ("jvm_args_added", "+jvm"),
    ("jvm_args_removed", "-jvm"),
    ("args_added", "+args"),
    ("args_removed", "-args"),
    ("env_set", "+env"),
    ("env_removed", "-env"),
)


def module_rows(modules: Item) -> list[tuple[str, str]]:
    """One for each module that changed something or was dropped, and for each that was missing; none when
    modules had nothing to do with it."""
    rows = [("Module", _change(change)) for change in modules.get("changes") or ()]
    return rows + [("Missing module", str(text)) for text in modules.get("missing") or ()]


def _change(change: Item) -> str:
    name = " ".join(part for part in (change.get("module"), change.get("version")) if part)
    if change.get("dropped"):
        return f"{name}: dropped, {change['dropped']}"
    said = [f"{sign} {' '.join(change[field])}" for field, sign in _SAID if change.get(field)]
    return f"{name}: {'; '.join(said)}"
