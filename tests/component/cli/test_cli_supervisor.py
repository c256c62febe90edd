"""Children and signals, with real processes."""

from __future__ import annotations

import os
import pathlib
import select
import signal
import subprocess
import sys
import textwrap

import pytest

from corral.cli.local.child_processes import Child, ChildSupervisor
from corral.cli.local.cluster_processes import MOST_QUICK_DEATHS, QUICK_SECONDS, Restarts
from corral.cli.local.up_state import find_running, remove_record, write_record
from corral.errors import Code, Rejected
from corral.system.service.process import watch

SLEEPER = "import signal; print('ready: here', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready: here', flush=True)\nwhile True: signal.pause()"


def start(supervisor: ChildSupervisor, code: str, name: str = "child") -> Child:
    return supervisor.start(name, [sys.executable, "-c", code], env=os.environ)


def wait_ready(supervisor: ChildSupervisor, child: Child) -> None:
    assert supervisor.wait(lambda: child.ready is not None, timeout=30)


def test_a_child_says_when_it_is_ready_and_ends_when_asked() -> None:
    with ChildSupervisor() as supervisor:
        child = start(supervisor, SLEEPER)
        wait_ready(supervisor, child)
        assert child.ready == "here"
        assert supervisor.end(child, timeout=30, patience=0)
        assert child.how_it_ended() == "killed by SIGTERM"


def test_what_a_dying_child_said_last_is_kept_and_bounded() -> None:
    told: list[tuple[str, str]] = []
    # Only what comes through one pipe has an order: the other one may be read before or after it.
    code = (
        "import sys\nprint('out')\nfor n in range(100): print(n, file=sys.stderr)\n"
        "sys.stderr.write('no newline'); sys.exit(3)"
    )
    with ChildSupervisor(echo=lambda name, line: told.append((name, line))) as supervisor:
        child = start(supervisor, code)
        assert supervisor.wait(lambda: not child.running, timeout=30)
    assert child.how_it_ended() == "exit code 3"
    assert len(child.tail) == 30
    assert [line for line in child.tail if line != "out"][-2:] == ["99", "no newline"]
    assert len(told) == 102
    assert "out" in {line for _, line in told}


def test_a_child_that_will_not_end_is_killed_when_time_is_over() -> None:
    with ChildSupervisor() as supervisor:
        child = start(supervisor, STUBBORN)
        wait_ready(supervisor, child)
        assert not supervisor.end(child, timeout=0.05, patience=0)
        assert child.how_it_ended() == "killed by SIGKILL"


def test_a_second_request_to_end_kills_at_once() -> None:
    with ChildSupervisor() as supervisor:
        child = start(supervisor, STUBBORN)
        wait_ready(supervisor, child)
        os.kill(os.getpid(), signal.SIGINT)
        assert not supervisor.wait(lambda: False, timeout=30)
        os.kill(os.getpid(), signal.SIGTERM)
        assert not supervisor.end(child, timeout=60, patience=1)
        assert child.how_it_ended() == "killed by SIGKILL"
        assert supervisor.signals == 2


def test_a_child_may_die_of_a_signal_without_a_name() -> None:
    with ChildSupervisor() as supervisor:
        child = start(supervisor, "import os; os.kill(os.getpid(), 40)")
        assert supervisor.wait(lambda: not child.running, timeout=30)
        assert child.how_it_ended() == "killed by SIGRTMIN+6"


def test_the_signal_for_dumps_ends_neither_us_nor_a_child_that_does_not_handle_it_yet() -> None:
    with ChildSupervisor() as supervisor:
        child = start(supervisor, SLEEPER)
        wait_ready(supervisor, child)
        os.kill(os.getpid(), signal.SIGUSR1)
        child.send(signal.SIGUSR1)
        assert supervisor.end(child, timeout=30, patience=0)
        assert child.how_it_ended() == "killed by SIGTERM"
        assert supervisor.signals == 0
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def test_leaving_kills_what_still_runs_and_gives_the_signals_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with ChildSupervisor() as supervisor:
        child = start(supervisor, STUBBORN)
        wait_ready(supervisor, child)
    assert child.how_it_ended() == "killed by SIGKILL"
    assert signal.getsignal(signal.SIGTERM) is before


def test_children_notice_that_their_parent_was_killed(tmp_path: pathlib.Path) -> None:
    child = textwrap.dedent(
        """
        import asyncio, os, sys
        from corral.system.service.process import watch

        async def main():
            ended = asyncio.Event()
            watch(int(sys.argv[-1]), ended.set)
            print("ready:", os.getpid(), flush=True)
            await ended.wait()

        asyncio.run(main())
        """
    )
    parent = textwrap.dedent(
        f"""
        import os, sys
        from corral.cli.local.child_processes import ChildSupervisor

        with ChildSupervisor() as supervisor:
            child = supervisor.start("child", [sys.executable, "-c", {child!r}], env=os.environ)
            supervisor.wait(lambda: child.ready is not None, timeout=30)
            print(child.ready, flush=True)
            supervisor.wait(lambda: False, timeout=60)
        """
    )
    process = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    grandchild = os.pidfd_open(int(process.stdout.readline()))
    process.kill()
    process.communicate(timeout=30)
    assert select.select([grandchild], [], [], 30)[0], "the child outlived its parent"
    os.close(grandchild)


async def test_a_descriptor_that_is_not_open_is_refused() -> None:
    with pytest.raises(Rejected, match="not an open pipe"):
        watch(9999, lambda: None)


async def test_watching_can_be_stopped_and_closes_the_descriptor() -> None:
    ours, theirs = os.pipe()
    stop = watch(ours, lambda: pytest.fail("nobody ended"))
    assert not os.get_inheritable(ours)
    stop()
    stop()
    os.close(theirs)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(ours)


def test_quick_deaths_are_waited_out_longer_and_longer_and_then_given_up() -> None:
    restarts = Restarts()
    delays = [restarts.died(after_seconds=1) for _ in range(MOST_QUICK_DEATHS + 1)]
    assert delays == [0.5, 1.0, 2.0, 4.0, 8.0, None]


def test_a_process_that_had_worked_starts_a_new_count() -> None:
    restarts = Restarts()
    for _ in range(MOST_QUICK_DEATHS):
        restarts.died(after_seconds=1)
    assert restarts.died(after_seconds=QUICK_SECONDS) == 0.5
    assert restarts.died(after_seconds=1) == 1.0


def test_the_running_up_is_found_by_its_record(tmp_path: pathlib.Path) -> None:
    assert find_running(tmp_path) is None
    write_record(tmp_path)
    found = find_running(tmp_path)
    assert found is not None
    assert found[0] == os.getpid()
    os.close(found[1])
    remove_record(tmp_path)
    assert find_running(tmp_path) is None


def test_a_process_id_that_changed_hands_is_not_taken_for_it(tmp_path: pathlib.Path) -> None:
    write_record(tmp_path)
    path = tmp_path / "up.pid"
    path.write_text(path.read_text().replace('"started": ', '"started": 9'))
    assert find_running(tmp_path) is None


def test_a_record_of_a_process_that_is_gone_means_nothing_runs(tmp_path: pathlib.Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    write_record(tmp_path)
    path = tmp_path / "up.pid"
    path.write_text(path.read_text().replace(f'"pid": {os.getpid()}', f'"pid": {done.pid}'))
    assert find_running(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "code"),
    [
        ("", Code.FORMAT_INVALID),
        ("12", Code.FORMAT_INVALID),
        ('{"format": "corral-up", "version": 9}', Code.FORMAT_TOO_NEW),
        ('{"format": "corral-up", "version": 1, "pid": "x"}', Code.FORMAT_INVALID),
    ],
)
def test_a_damaged_record_is_refused(tmp_path: pathlib.Path, content: str, code: Code) -> None:
    (tmp_path / "up.pid").write_text(content)
    with pytest.raises(Rejected) as caught:
        find_running(tmp_path)
    assert caught.value.code is code
