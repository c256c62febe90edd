"""A line for every pass of every simulation would take longer than the passes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from corral.system.logger import log_plainly


@pytest.fixture(autouse=True, scope="module")
def only_warnings() -> Iterator[None]:
    before = structlog.get_config()
    log_plainly(sys.stderr, least=logging.WARNING)
    yield
    structlog.configure(**before)
