"""Which ends modules still have to hear of, by what lies in the run directories."""

from __future__ import annotations

import pathlib

from corral.daemon.hooks.start_changes import Provenance
from corral.daemon.runs.run_files import RunDirectories, RunFiles, RunIntent, RunOutcome
from corral.daemon.runs.run_hooks import find_unsent
from corral.daemon.workload.start_order import StartOrder
from corral.domain.ids import Incarnation, InstanceId
from corral.domain.instance_states import InstanceState
from corral.domain.modules.records import ModuleChange
from corral.sdk.runtime import RunExit

EXITED = RunExit(known=True, code=3)


def ended(
    data: pathlib.Path, id: str, number: int, *, exit: RunExit | None = EXITED, hear: bool = True
) -> RunFiles:
    files = RunDirectories(data).files(id, number)
    order = StartOrder(instance_id=InstanceId(id), group="g", incarnation=Incarnation(number), command=("x",))
    data.mkdir(exist_ok=True)
    files.make(RunIntent(order=order, boot_id="b", accepted_at_ms=1))
    files.write_outcome(
        RunOutcome(
            state=InstanceState.CRASHED,
            outcome="crashed",
            exit=exit,
            summary="it ended",
            ended_at_ms=1,
            modules_hear=hear,
        )
    )
    return files


def untold(data: pathlib.Path) -> list[str]:
    return [end.intent.name for end in find_unsent(RunDirectories(data).all())]


def test_an_end_is_told_until_it_is_marked(tmp_path):
    files = ended(tmp_path / "d", "a-1", 2)
    ended(tmp_path / "d", "a-1", 1)
    assert untold(tmp_path / "d") == ["a-1.1", "a-1.2"]
    files.write_pending_modules()
    assert untold(tmp_path / "d") == ["a-1.1"]


def test_what_never_ran_and_what_ended_before_there_were_modules_is_not_told(tmp_path):
    ended(tmp_path / "d", "never-1", 1, exit=None)
    ended(tmp_path / "d", "former-1", 1, hear=False)
    assert untold(tmp_path / "d") == []


def test_a_damaged_file_keeps_no_other_end_from_being_told(tmp_path):
    damaged = ended(tmp_path / "d", "a-1", 1)
    (damaged.directory / "outcome.json").write_text("{")
    ended(tmp_path / "d", "b-1", 1)
    assert untold(tmp_path / "d") == ["b-1.1"]


def test_what_modules_made_of_a_start_is_read_again_as_it_was_written(tmp_path):
    files = ended(tmp_path / "d", "a-1", 1)
    assert files.provenance() is None
    made = Provenance(changes=(ModuleChange(module="m", jvm_args_added=("-Xlog:gc",)),), missing=("n: away",))
    files.write_provenance(made)
    assert files.provenance() == made
