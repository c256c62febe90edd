"""Texts of errors: whatever they are made of, they can be stored and sent, and are found in a bounded time."""

from __future__ import annotations

import os

import msgspec
import pytest

from corral.daemon.runs.exit_outcome import failed_start
from corral.domain.groups.group_documents import group_document, merged, parse_group
from corral.errors import Code, Rejected
from corral.wire.v1.node_pb2 import ErrorReport

LONG = 1_000_000
NAME = os.fsdecode(b"w\xffrld")


def test_a_name_that_is_no_utf8_loses_no_outcome_and_no_report() -> None:
    error = Rejected(Code.PATH_REFUSED, f"'{NAME}' is a link", hint=f"remove {NAME}", field=NAME)
    stored = msgspec.json.encode(failed_start("files", error))
    assert b"w\\\\udcffrld" in stored
    report = ErrorReport(error_code=error.code.name, error_message=str(error), context=error.field)
    assert ErrorReport.FromString(report.SerializeToString()).error_message == str(error)
    assert str(error) == "'w\\udcffrld' is a link; remove w\\udcffrld"


@pytest.mark.parametrize(
    "piece", ["x", "unknown field `", "missing required field `", " - at `$", "`key` in "]
)
def test_a_long_wrong_word_in_a_group_is_refused_in_one_pass(piece: str) -> None:
    """Expressions that began at every piece anew would take minutes here."""
    word = piece * (LONG // len(piece))
    group = parse_group({"name": "lobby", "command": ["true"]})
    with pytest.raises(Rejected, match="unknown value of field") as wrong:
        parse_group(merged(group_document(group), {"variable_types": {"A": {"type": word}}}))
    assert wrong.value.code is Code.INVALID_FIELD
    assert len(str(wrong.value)) < 1000
    with pytest.raises(Rejected) as unknown:
        parse_group(merged(group_document(group), {word: 1}))
    assert unknown.value.code in (Code.UNKNOWN_FIELD, Code.INVALID_FIELD), "its end may look like a place"
    assert len(str(unknown.value)) < 1000
