"""The file that says how a run ended."""

from __future__ import annotations

import pytest

from corral.daemon.runs.run_files import RunFiles, RunOutcome
from corral.domain.instance_states import InstanceState
from corral.errors import CorralError


def test_a_file_that_names_no_end_as_the_state_cannot_be_read(tmp_path):
    files = RunFiles(tmp_path)
    files.write_outcome(
        RunOutcome(state=InstanceState.STOPPED, outcome="ended", summary="ended", ended_at_ms=1)
    )
    path = tmp_path / "outcome.json"
    path.write_text(path.read_text().replace('"STOPPED"', '"RUNNING"'))
    with pytest.raises(CorralError, match="RUNNING is not the end of a run"):
        files.outcome()
