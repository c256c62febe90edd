"""What is kept of modules' changes, and how ends are told to them."""

from __future__ import annotations

import pytest

from corral.daemon.hooks.start_changes import provenance
from corral.daemon.runs.run_files import RunOutcome
from corral.daemon.runs.run_hooks import exit_info
from corral.domain.instance_states import InstanceState
from corral.domain.modules.records import ModuleChange, Overridden
from corral.sdk.runtime import RunExit


def test_values_of_secrets_are_replaced_by_their_names():
    change = ModuleChange(
        module="ant",
        jvm_args_added=("-Dpassword=hunter2hunter", "-Dother=hunter2"),
        args_removed=("hunter2",),
        overridden=(Overridden(kind="jvm_args", name="-Dother=hunter2", by="bee"),),
        dropped="it raised ValueError: hunter2",
    )
    made = provenance(
        [change], ["bee: hunter"], {"PASSWORD": "hunter2", "LONGER": "hunter2hunter", "NONE": ""}
    )
    assert "hunter2" not in repr(made)
    assert made.changes[0].jvm_args_added == ("-Dpassword=%LONGER%", "-Dother=%PASSWORD%")
    assert made.changes[0].overridden[0].name == "-Dother=%PASSWORD%", "so that it is found among them"


def test_it_is_short_whatever_modules_do():
    changes = [
        ModuleChange(
            module=f"m{n}",
            jvm_args_added=("x" * 8000,) * 500,
            overridden=(Overridden(kind="jvm_args", name="x" * 8000, by="m0"),) * (500 if n else 0),
            dropped="y" * 5000,
        )
        for n in range(200)
    ]
    made = provenance(changes, ["z" * 5000] * 200, {})
    assert len(made.changes) == 64
    assert len(repr(made)) < 100_000
    assert made.changes[0].jvm_args_added[-1] == "… and 450 more"
    assert made.changes[-1].jvm_args_added == ("… 500 of them",)


@pytest.mark.trap("T8")
@pytest.mark.parametrize(
    ("exit", "code", "signal"),
    [
        (RunExit(known=True, code=137), 137, ""),
        (RunExit(known=True, code=0), 0, ""),
        (RunExit(known=True, signal=9), None, "SIGKILL"),
        (RunExit(known=True, signal=11, core_dumped=True), None, "SIGSEGV"),
        (RunExit(known=True, signal=36), None, "SIGRTMIN+2"),
        (RunExit(known=False, reason="nobody saw it"), None, ""),
        (RunExit(known=False, host_rebooted=True), None, ""),
    ],
)
def test_an_end_is_told_as_it_was(exit, code, signal):
    outcome = RunOutcome(
        state=InstanceState.STOPPED,
        outcome="x",
        exit=exit,
        summary="how it ended",
        uptime_ms=12,
        ended_at_ms=1,
    )
    info = exit_info(outcome)
    assert (info.exit_code, info.signal, info.duration_ms, info.crashed) == (code, signal, 12, False)
    assert info.crash_summary == ("" if exit.known else "how it ended")


def test_a_crash_is_told_with_its_summary():
    exit = RunExit(known=True, code=3)
    outcome = RunOutcome(
        state=InstanceState.CRASHED, outcome="crashed", exit=exit, summary="exited with code 3", ended_at_ms=1
    )
    assert exit_info(outcome).crashed
    assert exit_info(outcome).crash_summary == "exited with code 3"
