"""The log of a process as a whole: everything flows through it, and nothing stays behind."""

from __future__ import annotations

import io
import logging
import os
import pathlib
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import structlog

from corral.domain.records import LogRecord
from corral.errors import Code, Rejected
from corral.system.logs import Logs, logger, start_logging

Start = Callable[..., Logs]
Written = Callable[[], list[dict[str, Any]]]
log = logger("corral.test")


def newest(logs: Logs) -> LogRecord:
    return logs.ring.tail(1)[0][1]


def test_a_record_reaches_ring_file_and_stderr(start: Start, written: Written) -> None:
    stream = io.StringIO()
    logs = start(stream=stream)
    log.bind(session="s1").info("node.online", node="n 1", count=3)
    logs.close()
    found = newest(logs)
    assert (found.level, found.logger, found.message) == ("INFO", "corral.test", "node.online")
    assert found.fields == {"session": "s1", "node": "n 1", "count": "3"}
    assert found.thread == "MainThread"
    assert written()[0]["message"] == "node.online"
    assert 'INFO  corral.test: node.online session=s1 node="n 1" count=3\n' in stream.getvalue()


def test_stderr_can_be_json(start: Start, written: Written) -> None:
    stream = io.StringIO()
    logs = start(stream=stream, format="json")
    log.info("node.online")
    logs.close()
    assert stream.getvalue().startswith('{"at":"')
    assert written()[0]["level"] == "INFO"


def test_an_exception_goes_into_throwable(start: Start) -> None:
    logs = start()
    try:
        raise ValueError("deep down")
    except ValueError as error:
        log.exception("it.broke")
        kept = error
    assert newest(logs).throwable.endswith("ValueError: deep down\n")
    log.error("it.broke_again", exc_info=kept)
    assert "Traceback" in newest(logs).throwable
    assert newest(logs).fields == {}


@pytest.mark.parametrize("name", ["uvicorn.error", "grpc", "asyncpg.pool", "asyncio"])
def test_libraries_flow_through_it(start: Start, name: str) -> None:
    logs = start()
    logging.getLogger(name).warning("gone after %d s", 5)
    assert (newest(logs).logger, newest(logs).level, newest(logs).message) == (name, "WARN", "gone after 5 s")
    logging.getLogger(name).critical("worst")
    assert newest(logs).level == "ERROR"


def test_a_library_that_formats_wrongly_is_still_heard(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own would raise
    logs = start()
    logging.getLogger("lib").error("%d apples", "many")
    assert newest(logs).message == "%d apples ('many',)"


def test_plain_structlog_loggers_and_context_variables_come_the_same_way(start: Start) -> None:
    logs = start()
    with structlog.contextvars.bound_contextvars(request="r1"):
        structlog.get_logger("corral.other").warning("http.slow", name="n", msg="m", level="l")
    assert newest(logs).logger == "corral.other"
    assert newest(logs).fields == {"request": "r1", "name": "n", "msg": "m", "level": "l"}


def test_secrets_are_masked_in_message_fields_and_traceback(start: Start, written: Written) -> None:
    logs = start()
    secret = "corral_k3V9x2Qm6X5paLr8tB0cDw"
    try:
        raise ValueError(f"refused {secret}")
    except ValueError:
        log.exception(f"token {secret}", token="hush", note=secret)
    logging.getLogger("lib").warning("sent %s", secret)
    logs.close()
    told = (logs.ring.tail(2), written())
    assert secret not in repr(told)
    assert "hush" not in repr(told)


def test_the_level_switches_at_run_time_and_back(start: Start) -> None:
    logs = start(level="WARN")
    log.info("unheard")
    assert logs.ring.last == 0
    logs.set_level("TRACE")
    assert logs.level == "TRACE"
    log.trace("heard")
    assert newest(logs).level == "TRACE"
    logs.set_level("")
    assert logs.level == "WARN"
    log.info("unheard again")
    assert logs.ring.last == 1


def test_an_unknown_level_is_refused_and_changes_nothing(start: Start, tmp_path: pathlib.Path) -> None:
    logs = start()
    with pytest.raises(Rejected, match="TRACE, WARN") as caught:
        logs.set_level("LOUD")
    assert caught.value.code is Code.INVALID_FIELD
    assert logs.level == "INFO"
    with pytest.raises(Rejected):
        start_logging(role="x", directory=tmp_path, level="LOUD", format="human")


def test_a_sink_gets_every_record_until_it_is_removed(start: Start) -> None:
    logs = start()
    seen: list[str] = []
    remove = logs.add_sink(lambda record: seen.append(record.message))
    log.info("one")
    remove()
    log.info("two")
    assert seen == ["one"]


def test_a_sink_that_fails_or_logs_harms_nobody(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    logs = start()
    seen: list[str] = []

    def failing(record: LogRecord) -> None:
        log.info(f"about {record.message}")
        raise RuntimeError("broken sink")

    logs.add_sink(failing)
    logs.add_sink(lambda record: seen.append(record.message))
    log.info("one")
    assert seen == ["one"]
    assert [record.message for _, record in logs.ring.tail(5)] == ["one", "about one"]


def test_the_file_rotates(start: Start, tmp_path: pathlib.Path) -> None:
    logs = start(file_bytes=2000, file_count=3)
    for _ in range(50):
        log.info("x" * 200)
        logs.flush()
    logs.close()
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == ["controller.log", "controller.log.1", "controller.log.2"]


def test_it_can_be_started_many_times_and_leaves_logging_as_it_was(start: Start) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level, structlog.is_configured())
    for _ in range(5):
        logs = start()
        log.info("again")
        logs.close()
        logs.close()
        assert logs.ring.last == 1
    assert (list(root.handlers), root.level, structlog.is_configured()) == before
    log.info("after the end")


@pytest.mark.trap("T72")
def test_a_directory_that_cannot_be_written_is_told_and_is_no_reason_not_to_start(
    start: Start, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "logs").write_text("")
    said = io.StringIO()
    logs = start(stream=said)
    assert "cannot be written" in logs.problem
    log.info("heard all the same")
    assert logs.flush()
    assert "log_write.failed" in said.getvalue()
    (tmp_path / "logs").unlink()
    log.info("written")
    assert logs.flush()
    assert not logs.problem
    lines = (tmp_path / "logs" / "controller.log").read_text().splitlines()
    assert '"dropped_before":2' in lines[0], "what was lost is counted"


def test_nothing_from_outside_can_steer_the_terminal_or_forge_a_line(start: Start) -> None:
    stream = io.StringIO()
    logs = start(stream=stream)
    log.info("evil\nINFO forged\x1b[2J", path="a\r\x9b1m")
    logs.close()
    told = stream.getvalue()
    assert told.count("\n") == 1
    assert "\x1b" not in told
    assert "\x9b" not in told
    assert "evil\\nINFO forged\\u001b[2J" in told


def test_endless_messages_are_cut_in_the_middle(start: Start) -> None:
    logs = start()
    log.info("a" * 100_000 + "end")
    assert len(newest(logs).message) < 17_000
    assert newest(logs).message.endswith("end")


@pytest.mark.parametrize("format", ["human", "json"])
def test_a_lone_surrogate_loses_no_record(
    start: Start, written: Written, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's name may bring one, and no encoder takes it."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's own would fail to report it
    stream = io.StringIO()
    logs = start(stream=stream, format=format)
    name = os.fsdecode(b"w\xffrld")
    for number in range(100):
        log.info("before", number=number)
    try:
        raise ValueError(name)
    except ValueError:
        log.exception(f"seen {name}", path=name, paths=[name], **{name: 1})
    logging.getLogger(name).warning("%s", name)
    thread = threading.Thread(target=log.info, args=("of a thread",), name=name)
    thread.start()
    thread.join()
    logs.close()
    assert logs.dropped == 0
    found = written()
    assert len(found) == len(stream_records(stream)) == logs.ring.last == 103
    seen = found[100]
    assert seen["fields"]["path"] == "w\\udcffrld"
    assert seen["message"] == "seen w\\udcffrld"
    assert "ValueError: w\\udcffrld" in seen["throwable"]
    for _, record in logs.ring.tail(3):
        msgspec.json.encode(record)


def stream_records(stream: io.StringIO) -> list[str]:
    return [line for line in stream.getvalue().splitlines() if not line.startswith("    ")]
