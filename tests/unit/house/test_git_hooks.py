"""The hooks of git run the checks of `make check`, by the programs of the same environment."""

from __future__ import annotations

import pathlib
import re
import shlex

import yaml

ROOT = pathlib.Path(__file__).parents[3]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
CHECK = re.search(r"^check:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)


def checks(entry: str) -> tuple[str, str]:
    """Program and first argument: what tells one check from another."""
    program, *arguments = shlex.split(entry)
    return program.rsplit("/", 1)[-1], "".join(a for a in arguments[:1] if not a.startswith("-"))


def test_every_hook_is_a_check_and_every_check_a_hook() -> None:
    assert CHECK is not None
    by_make = {checks(line.strip()) for line in CHECK[1].splitlines()}
    by_hooks = {checks(hook["entry"]) for repository in HOOKS for hook in repository["hooks"]}
    assert by_hooks == by_make


def test_no_hook_is_fetched_from_elsewhere() -> None:
    assert [repository["repo"] for repository in HOOKS] == ["local"]
    for hook in HOOKS[0]["hooks"]:
        assert hook["language"] == "system", hook["id"]
        assert hook["entry"].startswith(".venv/bin/"), hook["id"]
