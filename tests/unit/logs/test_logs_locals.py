"""A traceback in a log never shows the value of a variable: it may be a secret."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable

import pytest
import structlog

from corral.system.logger import log_plainly
from corral.system.logs import Logs, logger

SECRET = "hush-" + "4711"


def fail() -> None:
    password = SECRET.swapcase()
    raise ValueError(f"it has {len(password)} characters")


def log_failure() -> None:
    word = SECRET.swapcase()
    try:
        fail()
    except ValueError:
        structlog.get_logger("corral.test").exception("it.failed", length=len(word))


def check(told: str) -> None:
    assert "it.failed" in told
    assert "ValueError: it has 9 characters" in told
    assert SECRET.swapcase() not in told


def test_nothing_is_shown_in_tests(capsys: pytest.CaptureFixture[str]) -> None:
    log_failure()
    check(capsys.readouterr().out)


def test_nothing_is_shown_before_the_log_is_started_and_after_it_has_ended(
    start: Callable[..., Logs],
) -> None:
    former = structlog.get_config()
    early, stream = io.StringIO(), io.StringIO()
    try:
        log_plainly(early)
        log_failure()
        check(early.getvalue())
        logs = start(stream=stream)
        log_failure()
        logger("corral.own").info("it.ended")
        logs.close()
        check(stream.getvalue())
        early.truncate(0)
        log_failure()
        check(early.getvalue())
    finally:
        structlog.configure(**former)


ROLE = """
import sys, structlog
from corral.system.config import load_{role}
from corral.{role}.app import run_{role}

config, _ = load_{role}(None, {{}}, {{"data": sys.argv[1], "node.id": "n1", "controllers": "127.0.0.1:1"}})
try:
    run_{role}(config)
except Exception:
    word = "HUSH-" + "4711"
    structlog.get_logger("corral.test").exception("it.failed")
"""


@pytest.mark.system
@pytest.mark.parametrize("role", ["controller", "daemon"])
def test_a_role_shows_nothing_before_its_log_is_started(role: str, tmp_path) -> None:
    place = tmp_path / "file"
    place.touch()  # no directory: it cannot begin
    source = ROLE.format(role=role)
    if role == "controller":
        source = source.replace(', "node.id": "n1", "controllers": "127.0.0.1:1"', "")
    done = subprocess.run(
        [sys.executable, "-c", source, str(place / "data")], capture_output=True, text=True, timeout=60
    )
    assert "it.failed" in done.stderr, done
    assert "HUSH-4711" not in done.stdout + done.stderr
