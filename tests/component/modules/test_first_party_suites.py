"""The tests that the modules of this repository bring along, run by the tool their authors have."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

MODULES = pathlib.Path(__file__).parents[3] / "modules"
IDS = sorted(path.parent.name for path in MODULES.glob("*/module.yaml"))


def test_every_module_has_tests() -> None:
    assert {"stats-aggregator", "webhook-alerts"} <= set(IDS)
    assert [id for id in IDS if not list(MODULES.glob(f"{id}/tests/test_*.py"))] == []


@pytest.mark.system
@pytest.mark.parametrize("id", IDS)
def test_a_module_passes_its_own_tests(id: str) -> None:
    corral = pathlib.Path(sys.executable).with_name("corral")
    ended = subprocess.run(
        [corral, "module", "test", MODULES / id, "-q", "-n", "0", "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout
