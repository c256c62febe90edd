"""Each benchmark runs from its first to its last line, in small: its figures mean nothing then."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

from benchmarks.__main__ import chosen

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.system
@pytest.mark.timeout(300)
@pytest.mark.parametrize("claim", chosen([]))
def test_a_benchmark_runs_whole(claim: str, tmp_path: pathlib.Path) -> None:
    into = tmp_path / "results.json"
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--small", "--into", str(into), claim],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results = json.loads(into.read_text())
    assert results
    for each in results:
        assert set(each) == {"name", "value", "unit", "floor", "ratio", "target", "ok"}
