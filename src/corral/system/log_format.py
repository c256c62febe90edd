"""How a log record looks: one JSON object a line for machines, one aligned line for people."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

import msgspec

from corral.domain.records import LogRecord

_COLOURS: Final = {"TRACE": "2", "DEBUG": "2", "INFO": "32", "WARN": "33", "ERROR": "31"}
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_CONTROL_KEEP_LINES: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BARE: Final = re.compile(r"[^\s\"'=\x00-\x1f\x7f-\x9f]+")

_encoder: Final = msgspec.json.Encoder()


def as_json(record: LogRecord) -> bytes:
    return _encoder.encode(record) + b"\n"


def as_human(*, colour: bool) -> Callable[[LogRecord], bytes]:
    """Lines for a terminal. Nothing that came from outside can move its cursor or forge a line."""

    def line_of(record: LogRecord) -> bytes:
        time = record.at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
        level = f"{record.level:<5}"
        if colour:
            level = f"\x1b[{_COLOURS.get(record.level, '0')}m{level}\x1b[0m"
        line = f"{time} {level} {record.logger}: {_escaped(record.message)}"
        for name, value in record.fields.items():
            line += f" {_escaped(name)}={_field(value)}"
        if record.dropped_before:
            line += f" ({record.dropped_before} records lost before this one)"
        if record.throwable:
            safe = _CONTROL_KEEP_LINES.sub(_code, record.throwable.rstrip("\n"))
            line += "\n    " + safe.replace("\n", "\n    ")
        return line.encode("utf-8", "backslashreplace") + b"\n"

    return line_of


def _field(value: str) -> str:
    return value if _BARE.fullmatch(value) else _escaped(json.dumps(value, ensure_ascii=False))


def _escaped(text: str) -> str:
    return _CONTROL.sub(_code, text)


def _code(match: re.Match[str]) -> str:
    character = match.group()
    known = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return known.get(character) or f"\\x{ord(character):02x}"
