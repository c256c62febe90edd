"""Every animal of the zoo does what its sign says."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator

import pytest

from corral.testing import workloads
from corral.testing.ports import free_addresses
from corral.testing.workloads import read_numbered

Run = Callable[[workloads.Argv], subprocess.Popen[bytes]]


@pytest.fixture
def run() -> Iterator[Run]:
    """Start a workload in a session of its own; whatever is left of the session ends with the test."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(argv: workloads.Argv) -> subprocess.Popen[bytes]:
        begun.append(
            subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
            )
        )
        return begun[-1]

    yield start
    for process in begun:
        end_session(process)


def end_session(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(timeout=20)
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()


def line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().decode().rstrip("\n")


def whole_output(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.read()


def say(process: subprocess.Popen[bytes], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(text.encode() + b"\n")


def test_a_chatty_one_writes_every_line_and_may_go_on(run: Run) -> None:
    process = run(workloads.chatty(lines=5000, padding=10, then="exit 7"))
    read_numbered(whole_output(process)).check(last=5000)
    assert process.wait(timeout=20) == 7


def test_a_chatty_one_can_be_slow(run: Run) -> None:
    process = run(workloads.chatty(lines=30, per_second=100, tag="slow", then="exit 0"))
    read_numbered(whole_output(process), tag="slow").check(last=30)


def test_one_that_reads_commands_answers_them_and_stops_when_told(run: Run) -> None:
    process = run(workloads.reading_commands(code=5))
    assert line(process) == "up"
    say(process, r"a \n  b")
    assert line(process) == r"got a \n  b"
    say(process, "stop")
    assert line(process) == "bye"
    assert process.wait(timeout=20) == 5


def test_one_that_reads_commands_tells_the_end_of_its_input(run: Run) -> None:
    process = run(workloads.reading_commands())
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=20) == 3


@pytest.mark.parametrize("told", ["command", "signal"])
def test_a_slow_stopper_ends_in_the_end(run: Run, told: str) -> None:
    process = run(workloads.slow_stopper(0.05))
    assert line(process) == "up"
    say(process, "stop") if told == "command" else process.terminate()
    assert line(process) == "stopping"
    assert process.wait(timeout=20) == 0


def test_one_that_ignores_signals_needs_to_be_killed(run: Run) -> None:
    process = run(workloads.ignoring_signals())
    assert line(process) == "up"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    ignored = int(status.split("SigIgn:\t")[1].split()[0], 16)
    assert all(ignored >> (number - 1) & 1 for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
    assert process.poll() is None


@pytest.mark.parametrize("argv", [workloads.silent(), workloads.not_reading()], ids=["silent", "deaf"])
def test_quiet_ones_end_by_a_signal(run: Run, argv: workloads.Argv) -> None:
    process = run(argv)
    process.terminate()
    assert process.wait(timeout=20) == -signal.SIGTERM


def test_one_that_closes_its_descriptors_lives_on(run: Run) -> None:
    process = run(workloads.closing_descriptors())
    assert whole_output(process) == b"up\n"
    assert process.poll() is None


def test_a_forking_one_names_its_children(run: Run) -> None:
    process = run(workloads.forking(2))
    children = [int(line(process).removeprefix("child ")) for _ in range(2)]
    assert line(process) == "up"
    assert all(os.getsid(pid) == process.pid for pid in children)


@pytest.mark.parametrize("stays", [True, False])
def test_a_double_forking_one_leaves_a_grandchild_outside_its_session(run: Run, stays: bool) -> None:
    process = run(workloads.double_forking(stays=stays))
    grandchild = int(line(process).removeprefix("grandchild "))
    pidfd = os.pidfd_open(grandchild)
    try:
        assert os.getsid(grandchild) != process.pid
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if not stays:
            assert process.wait(timeout=20) == 0
        assert pathlib.Path(f"/proc/{grandchild}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    finally:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


@pytest.mark.parametrize(
    ("argv", "code", "output"),
    [
        (workloads.crashing(code=3), 3, b""),
        (workloads.crashing(code=137), 137, b""),
        (workloads.crashing(signal=9), -9, b""),
        (workloads.crashing(signal=11, after_seconds=0.01, says="it's over"), -11, b"it's over\n"),
        (workloads.crashing(code=1, after_bytes=100_000), 1, b"x" * 100_000),
    ],
)
def test_a_crashing_one_ends_as_told(run: Run, argv: workloads.Argv, code: int, output: bytes) -> None:
    process = run(argv)
    assert whole_output(process) == output
    assert process.wait(timeout=20) == code


def test_a_megabyte_is_written_before_the_exit(run: Run) -> None:
    process = run(workloads.megabyte_then_exit(code=4))
    output = whole_output(process)
    assert len(output) == 1 << 20
    read_numbered(output).check(last=16_384)
    assert process.wait(timeout=20) == 4


def test_a_flood_does_not_end(run: Run) -> None:
    process = run(workloads.flooding(line="wave"))
    assert process.stdout is not None
    assert process.stdout.read(1000) == b"wave\n" * 200


def test_the_line_for_dev_stderr_is_the_last(run: Run) -> None:
    process = run(workloads.to_dev_stderr(10))
    assert [line(process) for _ in range(11)][-1] == "last"


def test_one_holds_its_ports_and_a_second_does_not_get_them(run: Run) -> None:
    port = int(free_addresses(1)[0].rpartition(":")[2])
    first = run(workloads.holding_ports(tcp=port, udp=port))
    assert line(first) == f"up tcp:{port} udp:{port}"
    socket.create_connection(("127.0.0.1", port), timeout=10).close()
    second = run(workloads.holding_ports(udp=port))
    assert b"Address already in use" in whole_output(second)
    assert second.wait(timeout=20) == 1


def test_memory_is_really_used(run: Run) -> None:
    process = run(workloads.allocating(32))
    assert line(process) == "up"
    resident = int(pathlib.Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * os.sysconf(
        "SC_PAGESIZE"
    )
    assert resident > 32 << 20


def test_output_can_be_hostile(run: Run) -> None:
    process = run(workloads.hostile_bytes())
    assert process.stdout is not None
    assert b"".join(iter(process.stdout.readline, b"up\n")) == workloads.HOSTILE


def test_a_line_can_be_very_long(run: Run) -> None:
    process = run(workloads.one_long_line(2))
    assert process.stdout is not None
    with os.fdopen(os.dup(process.stdout.fileno()), "rb") as output:
        assert len(output.readline()) == (2 << 20) + 1
        assert output.readline() == b"up\n"


def test_one_describes_itself(run: Run) -> None:
    process = run(workloads.describing_itself())
    told = json.loads(line(process))
    assert told["pid"] == process.pid
    assert told["session"] is True
    assert told["descriptors"] == [0, 1, 2]


def test_a_storm_of_forks_can_be_ended(run: Run) -> None:
    assert line(run(workloads.fork_storm(alive=3))) == "up"


@pytest.mark.parametrize(
    ("numbers", "field", "found"),
    [
        ([1, 2, 4], "lost", (3,)),
        ([1, 2, 2, 3], "doubled", (2,)),
        ([1, 3, 2], "reordered", (2,)),
    ],
)
def test_the_checker_sees_what_is_wrong(numbers: list[int], field: str, found: tuple[int, ...]) -> None:
    output = "".join(f"line {number} {workloads.checksum(number)}\n" for number in numbers)
    judged = read_numbered(output)
    assert getattr(judged, field) == found
    assert not judged.perfect
    with pytest.raises(AssertionError, match=field):
        judged.check()


def test_the_checker_sees_damage_but_forgives_an_unfinished_end() -> None:
    good = f"line 1 {workloads.checksum(1)}\nline 2 {workloads.checksum(2)}\n"
    assert read_numbered(good + "line 3").perfect
    assert read_numbered(good.replace("line 2", "line 3")).damaged
    assert read_numbered("xx" + good).damaged
    assert read_numbered("").last == 0
