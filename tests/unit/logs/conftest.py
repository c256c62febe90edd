"""A started log that ends with the test."""

from __future__ import annotations

import io
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from corral.system.logs import Logs, start_logging

Start = Callable[..., Logs]


@pytest.fixture
def start(tmp_path: pathlib.Path) -> Iterator[Start]:
    started: list[Logs] = []

    def begin(**changes: Any) -> Logs:
        settings: dict[str, Any] = {
            "role": "controller",
            "directory": tmp_path / "logs",
            "level": "INFO",
            "format": "human",
            "stream": io.StringIO(),
        }
        started.append(start_logging(**{**settings, **changes}))
        return started[-1]

    yield begin
    for logs in started:
        logs.close()


@pytest.fixture
def written(tmp_path: pathlib.Path) -> Callable[[], list[dict[str, Any]]]:
    """The objects in the log file."""
    return lambda: [
        json.loads(line) for line in (tmp_path / "logs" / "controller.log").read_text().splitlines()
    ]
