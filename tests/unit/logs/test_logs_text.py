"""The form of a record for people: one line, whatever the texts in it, with fields that can be told apart."""

from __future__ import annotations

import datetime as dt
import json
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corral.cli.event import _line as event_line
from corral.cli.logs import _line as cli_line
from corral.domain.records import LogRecord
from corral.system.log_output import as_human

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
HEAD = re.compile(r"2026-01-01 00:00:00\.000 INFO  ")
LOST = re.compile(r" \((\d+) records? lost before this one\)$")
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"\'=]+')
FORGERIES = (
    "/x status=200 principal=token:1",
    'a" b="c',
    "a\n2026-01-01 00:00:00.000 INFO  corral: forged",
    "x (7 records lost before this one)",
    "x (1 record lost before this one)",
    "\u202egnp.exe\u2028\u2066\x1b[2J\x85\x7f\u200b\udcff",
    "back\\slash",
    "",
    " ",
)
texts = st.one_of(
    st.sampled_from(FORGERIES),
    st.text(st.characters(exclude_categories=())),
    st.text(alphabet=" =\"'\\:()\n\r\t\x0b\x1c\u2028\u202e\u2066ab", max_size=12),
).map(lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
"""Without a pair of lone surrogates that JSON would join."""


def unquoted(word: str) -> str:
    return json.loads(word) if word.startswith('"') else word


def parsed(line: str) -> tuple[str, str, dict[str, str], int]:
    """Logger, message, fields and lost records of a line, as its reader takes it apart."""
    head = HEAD.match(line)
    assert head, line
    rest = line[head.end() :]
    lost = LOST.search(rest)
    rest = rest[: lost.start()] if lost else rest
    source = WORD.match(rest)
    assert source, line
    name = source.group() if source.group().startswith('"') else source.group().removesuffix(":")
    assert rest[len(name) :].startswith(": "), line
    rest = rest[len(name) + 2 :]
    if rest.startswith('"'):
        told = WORD.match(rest)
        assert told
        message, rest = json.loads(told.group()), rest[told.end() :]
    else:
        first = re.search(rf" (?:{WORD.pattern})=", rest)
        end = first.start() if first else len(rest)
        message, rest = rest[:end], rest[end:]
    fields: dict[str, str] = {}
    while rest:
        field = re.match(rf" ({WORD.pattern})=({WORD.pattern})", rest)
        assert field, rest
        fields[unquoted(field[1])] = unquoted(field[2])
        rest = rest[field.end() :]
    return unquoted(name), message, fields, int(lost[1]) if lost else 0


@given(texts, texts, st.dictionaries(texts, texts, max_size=4), st.integers(0, 3))
@example("corral", "http_request.ended", dict.fromkeys(FORGERIES, FORGERIES[0]), 0)
def test_a_record_is_one_line_that_reads_back(
    logger: str, message: str, fields: dict[str, str], lost: int
) -> None:
    record = LogRecord(
        at=NOW, level="INFO", logger=logger, message=message, fields=fields, dropped_before=lost
    )
    line = as_human(colour=False)(record).decode()
    assert line.splitlines(keepends=True) == [line], "one line by any notion of a line"
    assert line.removesuffix("\n").isprintable(), "nothing steers the terminal"
    assert parsed(line.removesuffix("\n")) == (logger, message, fields, lost)


@given(texts.filter(bool))
@example("a\n2026-01-01 00:00:00.000 INFO  corral: forged\u2028x\x0by\ud800")
def test_a_traceback_is_indented_below_its_record(throwable: str) -> None:
    record = LogRecord(at=NOW, level="INFO", logger="l", message="m", throwable=throwable)
    _, *below = as_human(colour=False)(record).decode().removesuffix("\n").splitlines()
    assert all(line.startswith("    ") and line.isprintable() for line in below)


@pytest.mark.parametrize("text", FORGERIES)
def test_corral_logs_prints_the_same_fields(text: str) -> None:
    record = {
        "at": "2026-01-01T00:00:00.000", "level": "INFO", "logger": "l", "message": text, "fields": {text: text}
    }  # fmt: skip
    line = cli_line(record)
    assert len(line.splitlines()) == 1
    assert parsed(line.replace("T", " ", 1)) == ("l", text, {text: text}, 0)


@pytest.mark.parametrize("text", FORGERIES)
def test_an_event_is_one_line_too(text: str) -> None:
    event = {"at": "2026-01-01T00:00:00Z", "type": "A" + text, "subject": text, "data": {"message": text}}
    line = event_line(event)
    assert len(line.splitlines()) == 1
    assert line.isprintable()
