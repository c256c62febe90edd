"""A warm command does what a cold one does."""

from __future__ import annotations

import pathlib
import subprocess

import pytest
from stand_in_controller import PROGRAM
from warm_commands import WarmCommands

GROUP = "name: lobby\ncommand: [x]\n"


@pytest.mark.parametrize(
    ("arguments", "input"),
    [
        ([], None),
        (["node", "list"], None),
        (["node", "lst"], None),
        (["apply", "-f", "-", "--dry-run"], GROUP),
        (["apply", "-f", "-"], None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_warm_command_ends_and_writes_as_a_cold_one(
    warm_commands: WarmCommands,
    pointed: dict[str, str],
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    input: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    stdin = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
    cold = subprocess.run(
        [*PROGRAM, *arguments], env=pointed, capture_output=True, text=True, timeout=60, **stdin
    )
    warm = warm_commands.run(arguments, env=pointed, input=input, timeout=60)
    assert (warm.args, warm.returncode) == (cold.args, cold.returncode)
    assert (warm.stdout, warm.stderr) == (cold.stdout, cold.stderr)


def test_what_an_interpreter_decides_at_its_start_is_decided_by_a_cold_one(
    warm_commands: WarmCommands, pointed: dict[str, str], tmp_path: pathlib.Path
) -> None:
    (tmp_path / "corral.py").write_text("raise SystemExit('another corral')")
    other = warm_commands.run(
        ["version"], env={**pointed, "PYTHONPATH": str(tmp_path)}, input=None, timeout=60
    )
    assert other.stderr == "another corral\n"
    assert warm_commands.run(["version"], env=pointed, input=None, timeout=60).returncode == 0
