"""Texts of errors: whatever they are made of, they can be stored and sent, and are found in a bounded time."""

from __future__ import annotations

import os

import msgspec

from corral.daemon.runs.exit_outcome import failed_start
from corral.errors import Code, Rejected
from corral.wire.v1.node_pb2 import ErrorReport

NAME = os.fsdecode(b"w\xffrld")


def test_a_name_that_is_no_utf8_loses_no_outcome_and_no_report() -> None:
    error = Rejected(Code.PATH_REFUSED, f"'{NAME}' is a link", hint=f"remove {NAME}", field=NAME)
    stored = msgspec.json.encode(failed_start("files", error))
    assert b"w\\\\udcffrld" in stored
    report = ErrorReport(error_code=error.code.name, error_message=str(error), context=error.field)
    assert ErrorReport.FromString(report.SerializeToString()).error_message == str(error)
    assert str(error) == "'w\\udcffrld' is a link; remove w\\udcffrld"
