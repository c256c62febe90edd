"""List every trap of the specification with the tests that are marked for it.

The marks come from what pytest collects, not from the text of the files: a mark on a test that pytest
never sees closes nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys
from typing import Any, NamedTuple

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
TITLES = ROOT / "docs" / "traps.md"


class CollectedTest(NamedTuple):
    """One case that pytest would run."""

    file: str
    name: str
    """Of its function, whatever the parameters."""
    traps: list[str]
    marks: list[str]


class _Collection:
    """A pytest plug-in that keeps what is collected."""

    def __init__(self) -> None:
        self.tests: list[CollectedTest] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.tests += map(facts_of, session.items)


def facts_of(item: pytest.Item) -> CollectedTest:
    file = str(item.path.relative_to(item.config.rootpath))
    name = getattr(item, "originalname", None) or item.name
    every = list(item.iter_markers())
    traps = sorted({trap for mark in every if mark.name == "trap" for trap in mark.args})
    return CollectedTest(file, name, traps, sorted({mark.name for mark in every}))


def collect(root: pathlib.Path) -> list[CollectedTest]:
    """What pytest collects in the project at `root`.

    In a process of its own: imports and plug-ins of the collected tests stay out of the caller.
    """
    command = [sys.executable, str(pathlib.Path(__file__).resolve()), "--collect"]
    said = subprocess.run(command, cwd=root, check=True, stdout=subprocess.PIPE, text=True)
    return [CollectedTest(*each) for each in json.loads(said.stdout)]


def _print_collection() -> int:
    sys.path.insert(0, str(pathlib.Path.cwd()))  # as `python -m pytest` does
    plugin = _Collection()
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = pytest.main(["--collect-only", "-q", "-p", "no:randomly"], plugins=[plugin])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        print(said.getvalue(), file=sys.stderr)
        return int(code)
    print(json.dumps(plugin.tests))
    return 0


def marked_tests(collected: list[CollectedTest]) -> dict[str, list[str]]:
    """Collected test functions by the traps they close."""
    found: dict[str, set[str]] = {}
    for test in collected:
        for trap in test.traps:
            found.setdefault(trap, set()).add(f"{test.file}::{test.name}")
    return {trap: sorted(tests) for trap, tests in found.items()}


def titles() -> dict[str, str]:
    rows: list[Any] = re.findall(r"^\| (T\d+) \| (.+?) \|", TITLES.read_text(), flags=re.M)
    return dict(rows)


def main() -> int:
    if "--collect" in sys.argv:
        return _print_collection()
    known = titles()
    tests = marked_tests(collect(ROOT))
    unknown = sorted(set(tests) - set(known))
    for trap, title in known.items():
        state = "closed" if trap in tests else "open"
        print(f"{trap:4} {state:6} {title}")
        for test in tests.get(trap, []):
            print(f"            {test}")
    print(f"\n{len(set(tests) & set(known))} of {len(known)} traps have tests")
    if unknown:
        print(f"tests name traps that do not exist: {', '.join(unknown)}", file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    raise SystemExit(main())
