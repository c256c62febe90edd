"""The files: rotation, loss, and what survives trouble."""

from __future__ import annotations

import datetime as dt
import pathlib
import resource
import threading

import pytest

from corral.domain.records import LogRecord
from corral.system.log_output import LogWriter, RotatingFile

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def record(message: str) -> LogRecord:
    return LogRecord(at=NOW, level="INFO", logger="t", message=message)


def line(found: LogRecord) -> bytes:
    return f"{found.message} {found.dropped_before}\n".encode()


class Gate:
    """A write that waits until it is let go, and says when it has begun."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.open = threading.Event()
        self.written = b""

    def write(self, content: bytes) -> None:
        self.begun.set()
        assert self.open.wait(20)
        self.written += content


def test_files_rotate_at_their_size_and_the_oldest_is_dropped(tmp_path: pathlib.Path) -> None:
    file = RotatingFile(tmp_path / "c.log", limit=100, count=3)
    for number in range(10):
        file.write(b"%d" % number * 59 + b"\n")
    file.close()
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["c.log", "c.log.1", "c.log.2"]
    assert [(tmp_path / name).read_bytes()[:1] for name in kept] == [b"9", b"8", b"7"]


def test_a_file_goes_on_where_the_last_run_stopped_and_ends_a_line_that_was_cut(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "c.log"
    path.write_bytes(b'{"cut')
    file = RotatingFile(path, limit=1000, count=2)
    file.write(b"next\n")
    file.close()
    assert path.read_bytes() == b'{"cut\nnext\n'


def test_a_file_that_was_moved_or_deleted_is_opened_anew(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "c.log"
    file = RotatingFile(path, limit=1000, count=2)
    file.write(b"one\n")
    path.rename(tmp_path / "moved")
    file.write(b"two\n")
    path.unlink()
    file.write(b"three\n")
    file.close()
    assert path.read_bytes() == b"three\n"
    assert (tmp_path / "moved").read_bytes() == b"one\n"


@pytest.mark.trap("T72")
def test_a_file_that_cannot_be_written_is_tried_again_with_each_write(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "logs"
    place.touch()  # no directory, for root neither
    file = RotatingFile(place / "c.log")
    assert file.problem
    with pytest.raises(OSError, match="exists"):
        file.write(b"lost\n")
    place.unlink()
    file.write(b"kept\n")
    assert not file.problem
    file.close()
    assert (place / "c.log").read_bytes() == b"kept\n"


@pytest.mark.trap("T72")
def test_a_disk_that_takes_half_of_what_is_written_has_it_taken_back(tmp_path: pathlib.Path) -> None:
    """A line that was cut at the disk's end by a killed process stays, and is ended by the next write."""
    path = tmp_path / "c.log"
    path.write_bytes(b"x" * 100)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (106, limits[1]))
    try:
        file = RotatingFile(path)
        assert not file.problem, "opening writes nothing"
        with pytest.raises(OSError, match="too large"):
            file.write(b"a line\n" * 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b"x" * 100
    file.write(b"whole\n")
    file.close()
    assert path.read_bytes() == b"x" * 100 + b"\nwhole\n"


def test_log_files_are_for_their_owner_alone(tmp_path: pathlib.Path) -> None:
    RotatingFile(tmp_path / "c.log").close()
    assert (tmp_path / "c.log").stat().st_mode & 0o777 == 0o600


def test_a_slow_writer_never_holds_up_the_one_who_logs_and_the_loss_is_counted() -> None:
    gate = Gate()
    writer = LogWriter(name="t", format=line, write=gate.write, limit=2)
    writer.put(record("held"))
    assert gate.begun.wait(20)
    for number in range(5):
        writer.put(record(str(number)))
    assert writer.dropped == 3
    gate.open.set()
    assert writer.flush(timeout=20)
    writer.put(record("after"))
    assert writer.close(timeout=20)
    assert gate.written == b"held 0\n0 0\n1 0\nafter 3\n"


def test_a_write_that_fails_is_counted_and_the_next_one_works() -> None:
    written: list[bytes] = []

    def write(content: bytes) -> None:
        if content.startswith(b"bad"):
            raise OSError(28, "No space left on device")
        written.append(content)

    writer = LogWriter(name="t", format=line, write=write)
    writer.put(record("bad"))
    writer.flush(timeout=20)
    writer.put(record("good"))
    assert writer.close(timeout=20)
    assert written == [b"good 1\n"]
    assert writer.dropped == 1


def test_a_record_that_cannot_be_formatted_takes_no_other_with_it() -> None:
    written: list[bytes] = []
    gate = Gate()

    def picky(found: LogRecord) -> bytes:
        if found.message == "bad":
            raise ValueError(found.message)
        return line(found)

    def write(content: bytes) -> None:
        gate.write(b"")
        written.append(content)

    writer = LogWriter(name="t", format=picky, write=write)
    writer.put(record("held"))
    assert gate.begun.wait(20)
    for message in ("one", "bad", "two"):
        writer.put(record(message))
    gate.open.set()
    writer.flush(timeout=20)
    writer.put(record("after"))
    assert writer.close(timeout=20)
    assert written == [b"held 0\n", b"one 0\ntwo 0\n", b"after 1\n"]
    assert writer.dropped == 1


def test_closing_gives_up_on_a_write_that_does_not_return() -> None:
    gate = Gate()
    writer = LogWriter(name="t", format=line, write=gate.write)
    writer.put(record("held"))
    assert gate.begun.wait(20)
    assert not writer.close(timeout=0.01)
    gate.open.set()
    assert writer.close(timeout=20)


@pytest.mark.parametrize("count", [1, 255, 256, 257, 2000])
def test_everything_that_was_put_is_written_in_order(count: int) -> None:
    written: list[bytes] = []
    writer = LogWriter(name="t", format=line, write=written.append)
    for number in range(count):
        writer.put(record(str(number)))
    assert writer.close(timeout=20)
    assert b"".join(written) == b"".join(b"%d 0\n" % number for number in range(count))


def test_records_that_come_together_are_written_together() -> None:
    written: list[bytes] = []
    writer = LogWriter(name="t", format=line, write=written.append)
    for number in range(200):
        writer.put(record(str(number)))
    assert writer.flush(timeout=20)
    assert writer.close(timeout=20)
    assert len(written) < 100, "a thread that is woken for each record takes the time of those who log"
