"""Fixtures of every suite: leak checks and uvloop come from the plugin we ship."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

import hypothesis
import pytest

pytest_plugins = ["corral.testing.pytest_plugin"]


hypothesis.settings.register_profile(
    "corral",
    deadline=None,  # how long an example takes says something about the machine, not about what is tested
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("corral")


def pytest_configure() -> None:
    """Tests run pytest themselves, on modules: they need the fuzzer's plug-in no more than we do, and
    its import takes longer than most of those suites."""
    os.environ["PYTEST_ADDOPTS"] = "-p no:schemathesis"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """The names of what failed come last and bare: a report that is cut from above keeps them."""
    result = yield
    failed = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ())]
    if failed:
        terminalreporter.section("what failed")
    for report in failed:
        terminalreporter.line(f"{report.when}: {report.nodeid}")
    return result


@pytest.fixture
def scratch():
    """A directory in memory, where there is some: the root disk is slow with many small files."""
    parent = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
    directory = pathlib.Path(tempfile.mkdtemp(prefix="corral-", dir=parent))
    yield directory
    shutil.rmtree(directory)
