"""Fixtures of every suite: leak checks and uvloop come from the plugin we ship."""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import functools
import gc
import inspect
import json
import os
import pathlib
import shutil
import sys
import tempfile

import hypothesis
import pytest

from corral.testing.postgres_server import PostgresServer

pytest_plugins = ["corral.testing.pytest_plugin"]

DURATIONS = pathlib.Path(__file__).parent / "durations.json"
UNKNOWN_SECONDS = 10.0
"""A file that was not measured yet may be a long one."""
STUCK_SECONDS = 60
ALL_ITEMS = pytest.StashKey[list[pytest.Item]]()
SHOWN_LINES = 60
"""Of what a failed test wrote: what it was about to do is at the end."""

hypothesis.settings.register_profile(
    "corral",
    deadline=None,  # how long an example takes says something about the machine, not about what is tested
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=True,  # what was green stays green: new examples are drawn by `make soak`
    max_examples=50,  # the same each time: more of them find nothing that these did not
)
hypothesis.settings.register_profile(
    "explore", parent=hypothesis.settings.get_profile("corral"), derandomize=False, max_examples=100
)
hypothesis.settings.load_profile("explore" if os.environ.get("CORRAL_EXPLORE") else "corral")


def pytest_configure() -> None:
    """Tests run pytest themselves, on modules: they need the fuzzer's plug-in no more than we do, and
    its import takes longer than most of those suites."""
    os.environ["PYTEST_ADDOPTS"] = "-p no:schemathesis"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    """Modules and items are many and stay: nothing of them is garbage, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config, items):
    """Workers take whole files in this order: the longest first, or one of them would be alone with it in the end."""
    config.stash[ALL_ITEMS] = list(items)  # before a mark chooses among them
    for item in items:
        if inspect.iscoroutinefunction(getattr(item, "obj", None)):
            item.obj = limited(item.obj, seconds_of(item))
    if not hasattr(config, "workerinput"):
        return
    seconds = json.loads(DURATIONS.read_text())
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], UNKNOWN_SECONDS))


def seconds_of(item):
    """The limit of a test."""
    marker = item.get_closest_marker("timeout")
    return float(marker.args[0] if marker and marker.args else item.config.getini("timeout") or STUCK_SECONDS)


def limited(test, seconds):
    """A test that is cancelled at its limit: a loop of uvloop does not hand on what the signal of a timeout raises."""

    @functools.wraps(test)
    async def run(*arguments, **fixtures):
        async with asyncio.timeout(seconds):
            return await test(*arguments, **fixtures)

    return run


@contextlib.contextmanager
def ended_after(seconds):
    """Whoever hangs in spite of its limit, such as for a thread that a loop waits for when it is closed, ends its worker:
    else the whole run would hang."""
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    with ended_after(seconds_of(item) + STUCK_SECONDS):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item):
    with ended_after(seconds_of(item) + STUCK_SECONDS):
        return (yield)


def last_lines(text, most=SHOWN_LINES):
    lines = text.splitlines(keepends=True)
    cut = len(lines) - most
    return f"({cut} lines before these are not shown)\n" + "".join(lines[cut:]) if cut > 0 else text


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport():
    """A controller logs thousands of lines in a test: among all of them nobody finds the failure."""
    report = yield
    report.sections = [(name, last_lines(text)) for name, text in report.sections]
    return report


def cause(report):
    """Why it failed, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else report.longreprtext).strip().splitlines()
    line = lines[0 if crash else -1] if lines else "no reason is known"
    return line.removeprefix("E ").strip()[:300]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """What failed, and why, comes last and bare: a report that is cut from above keeps it."""
    result = yield
    failed = [report for kind in ("failed", "error") for report in terminalreporter.stats.get(kind, ())]
    if failed:
        terminalreporter.section("what failed")
    for report in failed:
        terminalreporter.line(f"{report.when}: {report.nodeid}")
        terminalreporter.line(f"    {cause(report)}")
    return result


@pytest.fixture(scope="session")
def all_items(request):
    """Every test that pytest collects, those of other targets too; None when it was asked for some files only."""
    config = request.config
    whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    left_out = any(config.getoption(name) for name in ("ignore", "ignore_glob", "deselect"))
    return config.stash[ALL_ITEMS] if whole and not left_out else None


@pytest.fixture(scope="session")
def postgres():
    """One server for each worker, with a database for each test. A test that asks for it in its course needs it from
    the beginning: the leak check counts children."""
    with PostgresServer() as server:
        yield server


@pytest.fixture
def scratch():
    """A directory in memory, where there is some: the root disk is slow with many small files."""
    parent = "/dev/shm" if pathlib.Path("/dev/shm").is_dir() else None
    directory = pathlib.Path(tempfile.mkdtemp(prefix="corral-", dir=parent))
    yield directory
    shutil.rmtree(directory)
