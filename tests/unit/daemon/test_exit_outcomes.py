"""What the end of a run means, and how it is said."""

from __future__ import annotations

import errno
import os

import pytest

from corral.daemon.node.disk_space import as_ours
from corral.daemon.runs.exit_outcome import Life, decide_outcome, failed_start
from corral.daemon.runs.run_files import StopOrder
from corral.daemon.runs.run_messages import MAX_MESSAGE, cut, start_refused
from corral.domain.instance_states import InstanceState
from corral.errors import Code, Rejected, Retryable
from corral.sdk.runtime import RunExit

STOP = StopOrder(reason="asked")


def life(exit: RunExit, **fields) -> Life:
    return Life(exit=exit, pid=7, started_at_ms=1000, uptime_ms=500, console_end=9, now_ms=2000, **fields)


@pytest.mark.parametrize(
    ("exit", "fields", "state", "outcome"),
    [
        (RunExit(known=True, code=0), {}, "CRASHED", "clean"),
        (RunExit(known=True, code=3), {}, "CRASHED", "crashed"),
        (RunExit(known=False), {}, "CRASHED", "unknown"),
        (RunExit(known=True, code=0), {"stop": STOP, "rung": "command stop"}, "STOPPED", "stopped"),
        (RunExit(known=True, signal=9), {"stop": STOP, "rung": "kill"}, "STOPPED", "killed"),
        (RunExit(known=True, code=3), {"stop": STOP}, "STOPPED", "stopped"),
        (RunExit(known=True, signal=9, oom_killed=True), {"stop": STOP}, "CRASHED", "crashed"),
        (RunExit(known=True, signal=15), {"ready": False, "rung": "SIGTERM"}, "CRASHED", "crashed"),
        (RunExit(known=False, host_rebooted=True), {}, "STOPPED", "host_rebooted"),
    ],
)
def test_an_end_is_a_crash_unless_it_was_asked_for(exit, fields, state, outcome):
    judged = decide_outcome(life(exit, **fields))
    assert (judged.state, judged.outcome) == (state, outcome)
    assert bool(judged.crash_class) == (judged.state is InstanceState.CRASHED)


def test_the_sentence_about_a_stop_does_not_quote_the_line_that_was_sent():
    outcome = decide_outcome(life(RunExit(known=True, code=0), stop=STOP, rung="command login hunter2"))
    assert outcome.rung == "command login hunter2"
    assert outcome.summary.startswith("stopped (command): ")


def test_an_error_says_whether_trying_again_helps_and_when():
    permanent = failed_start("VALIDATION", Rejected(Code.INVALID_FIELD, "no", hint="change it"))
    passing = failed_start("VALIDATION", Retryable(Code.PORT_IN_USE, "not now", retry_after=0.2))
    assert (permanent.permanent, permanent.message) == (True, "no; change it")
    assert (passing.permanent, passing.retry_after_seconds) == (False, 1)


def test_a_long_text_is_cut_and_never_the_reason_to_drop_an_answer():
    failure = failed_start("PROCESS_START", Rejected(Code.START_FAILED, "ü" * 100_000))
    ack = start_refused("one", 1, failure, state=InstanceState.CRASHED).start_instance_ack
    assert len(ack.error_message.encode()) <= MAX_MESSAGE
    assert ack.error_message.endswith("…")
    assert cut("short") == "short"


def test_a_name_that_is_no_utf8_is_never_the_reason_to_drop_an_answer():
    name = os.fsdecode(b"caf\xe9")
    unreadable = as_ours(
        OSError(errno.EIO, "Input/output error", name), doing="packing", otherwise=Code.FILE_UNREADABLE
    )
    failure = failed_start("PROCESS_START", Rejected(Code.START_FAILED, name))
    ack = start_refused("one", 1, failure, state=InstanceState.CRASHED).start_instance_ack
    assert "caf\\udce9" in ack.error_message
    assert b"caf?" in str(unreadable).encode()
