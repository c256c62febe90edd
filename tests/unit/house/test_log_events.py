"""Every log event is `noun.verb_past`, with one verb of a short list; the reason is a field of the record."""

from __future__ import annotations

import ast
import functools
import pathlib
import re
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
ROOMS = ROOT / "src" / "corral"
LOGGERS = ("_log", "log")
METHODS = ("debug", "info", "warning", "error", "exception", "critical")
CALLED = re.compile(r"\b_?log\s*\.")
"""Where one of the loggers may be called: other files need not be parsed."""
EVENT = re.compile(r"[a-z_]+(\.[a-z_]+)*\.([a-z]+)")
_WORDS = """
started restarted stopped finished ended killed
failed refused retried skipped lost recovered expired delayed blocked fenced
opened closed connected redirected dialled enrolled renewed acquired
sent received requested answered accepted
created stored committed changed moved removed replaced evicted kept damaged quarantined
installed upgraded disabled prepared adopted chosen used found suspected leaked succeeded
"""
VERBS = frozenset(_WORDS.split())
"""A new event takes one of these, and says what it is about in its noun: `spool_write.failed`, `session_labels.refused`."""


def calls(source: str) -> Iterator[tuple[int, ast.expr | None]]:
    """Calls of a logger: line and first argument."""
    if CALLED.search(source) is None:
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node.func.attr in METHODS and ast.unparse(node.func.value).rpartition(".")[2] in LOGGERS:
            yield node.lineno, node.args[0] if node.args else None


def fault(event: ast.expr | None) -> str | None:
    """Why this cannot be the event of a record; None when it can."""
    if not isinstance(event, ast.Constant) or not isinstance(event.value, str):
        return "the event is no literal: filters cannot be written for it"
    found = EVENT.fullmatch(event.value)
    if found is None:
        return f"{event.value!r} is not noun.verb"
    return None if found[2] in VERBS else f"the verb of {event.value!r} is not in the list"


@functools.cache
def events() -> list[tuple[str, ast.expr | None]]:
    """The events of all rooms, each with its place."""
    return [
        (f"{path.relative_to(ROOMS).as_posix()}:{line}", event)
        for path in sorted(ROOMS.rglob("*.py"))
        for line, event in calls(path.read_text())
    ]


def test_every_log_event_is_a_noun_and_a_past_verb_of_the_list() -> None:
    found = events()
    assert len(found) > 300, "the calls were not found"
    assert [f"{where}: {why}" for where, event in found if (why := fault(event))] == []


def test_every_verb_of_the_list_is_in_use() -> None:
    used = {event.value.rpartition(".")[2] for _, event in events() if isinstance(event, ast.Constant)}
    assert VERBS - used == set()


def test_every_logger_has_one_of_the_names_that_are_looked_for() -> None:
    named = re.compile(r"^\s*([\w.]+)(?:: \w+)? = (?:structlog\.get_logger|logger)\(", re.MULTILINE)
    found = {
        name.rpartition(".")[2] for path in ROOMS.rglob("*.py") for name in named.findall(path.read_text())
    }
    assert found == set(LOGGERS)


@pytest.mark.parametrize(
    "planted",
    [
        '_log.warning("spool.write_failed", reason=str(error))',
        '_log.info("instance.transition")',
        'self._log.error("failed")',
        'log.info("Spool.failed")',
        'log.info(f"{kind}.failed")',
        "log.info(event=event)",
    ],
)
def test_a_planted_event_of_another_form_is_found(planted: str) -> None:
    assert [fault(event) for _, event in calls(planted)] != [None]
    assert len(list(calls(planted))) == 1
