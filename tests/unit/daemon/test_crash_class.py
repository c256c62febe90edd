"""What kind of crash it was."""

from __future__ import annotations

import pytest

from corral.daemon.runs.crash_class import classify, ending, normalised, signature
from corral.domain.groups.crash_records import CrashClass
from corral.sdk.runtime import RunExit

FAILED = RunExit(known=True, code=1)


@pytest.mark.parametrize(
    ("exit", "tail", "kind"),
    [
        (RunExit(known=True, code=0), (), CrashClass.CLEAN_EXIT),
        (RunExit(known=True, code=1), (), CrashClass.UNKNOWN),
        (RunExit(known=True, signal=11), (), CrashClass.SIGNAL),
        (RunExit(known=True, signal=9, oom_killed=True), (), CrashClass.OOM),
        (RunExit(known=False), (), CrashClass.UNKNOWN),
        (FAILED, ("OSError: [Errno 98] Address already in use",), CrashClass.PORT_IN_USE),
        (FAILED, ("MemoryError",), CrashClass.OOM),
        (FAILED, ("RecursionError: maximum recursion depth exceeded",), CrashClass.STACK_OVERFLOW),
        (FAILED, ("ModuleNotFoundError: No module named 'x'",), CrashClass.MISSING_CLASS),
        (FAILED, ("sh: 1: ./run: No such file or directory",), CrashClass.MISSING_FILE),
        (FAILED, ("No such file or directory", "java.lang.OutOfMemoryError"), CrashClass.OOM),
        (
            FAILED,
            ("java.lang.OutOfMemoryError", "done", "No such file or directory"),
            CrashClass.MISSING_FILE,
        ),
    ],
)
def test_the_last_known_word_decides(exit, tail, kind):
    assert classify(exit, tail) is kind


def test_what_was_ended_for_not_being_ready_is_that_and_nothing_else():
    assert (
        classify(RunExit(known=True, signal=15), ("Address already in use",), ready=False)
        is CrashClass.NEVER_READY
    )


def test_numbers_addresses_and_paths_do_not_make_another_crash():
    one = "\x1b[31mat 0xdeadbeef in /srv/a/b.so:12 after 3.5 s\x1b[0m"
    two = "at 0x12345678 in /opt/c/d.so:9 after 17.25 s"
    assert normalised(one) == normalised(two) == "at X in PATH:N after N.N s"
    assert signature(CrashClass.UNKNOWN, FAILED, [one]) == signature(CrashClass.UNKNOWN, FAILED, [two, ""])


def test_another_end_or_another_word_is_another_crash():
    known = {
        signature(CrashClass.UNKNOWN, FAILED, ["a"]),
        signature(CrashClass.UNKNOWN, FAILED, ["b"]),
        signature(CrashClass.UNKNOWN, RunExit(known=True, code=2), ["a"]),
        signature(CrashClass.SIGNAL, RunExit(known=True, signal=2), ["a"]),
        signature(CrashClass.UNKNOWN, RunExit(known=False), ["a"]),
    }
    assert len(known) == 5


@pytest.mark.parametrize(
    ("exit", "words"),
    [
        (RunExit(known=True, code=137), "exited with code 137"),
        (RunExit(known=True, signal=9), "was ended by SIGKILL"),
        (RunExit(known=True, signal=6, core_dumped=True), "was ended by SIGABRT, core dumped"),
        (RunExit(known=True, signal=60), "was ended by SIGRTMIN+26"),
        (
            RunExit(known=False, reason="the keeper died, too"),
            "ended, nobody knows how (the keeper died, too)",
        ),
        (RunExit(known=False, host_rebooted=True), "ended with the host"),
    ],
)
def test_an_end_is_told_in_words(exit, words):
    assert ending(exit) == words
