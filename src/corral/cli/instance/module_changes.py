"""What modules changed in the plan of a run, as rows of text."""

from __future__ import annotations

from typing import Final

from corral.cli.terminal.output import Item

_CHANGE_FIELDS: Final = (
    ("jvm_args_added", "+jvm", "jvm_args"),
    ("jvm_args_removed", "-jvm", ""),
    ("args_added", "+args", ""),
    ("args_removed", "-args", ""),
    ("env_set", "+env", "env"),
    ("env_removed", "-env", "env"),
)
"""Where it is kept, how it is shown, and as what it may be overridden."""


def module_rows(modules: Item) -> list[tuple[str, str]]:
    """One for each module that changed something or was dropped, and for each that was missing; none when
    modules had nothing to do with it."""
    rows = [("Module", _change(change)) for change in modules.get("changes") or ()]
    return rows + [("Missing module", str(text)) for text in modules.get("missing") or ()]


def _change(change: Item) -> str:
    name = " ".join(part for part in (change.get("module"), change.get("version")) if part)
    if change.get("dropped"):
        return f"{name}: dropped, {change['dropped']}"
    lost = {(each["kind"], each["name"]): each["by"] for each in change.get("overridden") or ()}
    parts = [
        f"{sign} {' '.join(_word(word, kind, lost) for word in change[field])}"
        for field, sign, kind in _CHANGE_FIELDS
        if change.get(field)
    ]
    return f"{name}: {'; '.join(parts)}"


def _word(word: str, kind: str, lost: dict[tuple[str, str], str]) -> str:
    by = lost.get((kind, word))
    return word if by is None else f"{word} (overridden by {by or 'the plan'})"
