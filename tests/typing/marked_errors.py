"""What mypy says about sample programs, compared with the marks in them: `# E: code` on a line."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

EXPECTED = re.compile(r"# E: ([a-z-]+)")
REPORTED = re.compile(r"^(.+?):(\d+): error: .*\[([a-z-]+)\]$")


def check_marks(cases: pathlib.Path, *, source: pathlib.Path, cache: pathlib.Path) -> None:
    """Every marked error is found in the programs of a folder, and no other; what they import is in `source`."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", cache]
    command += ["--namespace-packages", "--explicit-package-bases", "--no-error-summary"]
    ran = subprocess.run(
        [*command, *sorted(cases.glob("*.py"))],
        env={**os.environ, "MYPYPATH": str(source)},
        cwd=cases,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert ran.returncode in (0, 1), ran.stdout + ran.stderr
    found = [REPORTED.match(line) for line in ran.stdout.splitlines() if ": error: " in line]
    assert all(found), ran.stdout
    reported = {(pathlib.Path(hit[1]).name, int(hit[2]), hit[3]) for hit in found if hit}
    assert reported == _expected(cases), ran.stdout


def _expected(cases: pathlib.Path) -> set[tuple[str, int, str]]:
    return {
        (case.name, number, mark[1])
        for case in cases.glob("*.py")
        for number, line in enumerate(case.read_text().splitlines(), 1)
        if (mark := EXPECTED.search(line))
    }
