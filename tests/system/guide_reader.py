"""Somebody who reads a guide and types what it says."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable

GUIDES = pathlib.Path(__file__).parents[2] / "docs" / "guides"
_BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def blocks(guide: str) -> list[tuple[str, str]]:
    """Kind and text of everything that is set off."""
    return [(match[1], match[2]) for match in _BLOCK.finditer((GUIDES / guide).read_text())]


class Reader:
    """Types commands, in one shell after the other, in an empty directory."""

    def __init__(self, directory: pathlib.Path, http: str) -> None:
        self.directory = directory
        self.http = http
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CORRAL_")}
        programs = str(pathlib.Path(sys.executable).parent)
        self.environment = {
            **environment,
            "HOME": str(directory / "home"),
            "PATH": f"{programs}{os.pathsep}{environment.get('PATH', '')}",
        }
        self.aliases = ""

    def read(self, guide: str, *, edit: Callable[[str], None] = lambda _: None, skip: str = "") -> None:
        """All of it: type what is for the shell (unless it holds `skip`), hand what is Python to `edit`, and
        look for what the guide promises in what was said last."""
        said = ""
        for kind, text in blocks(guide):
            if kind == "sh" and not (skip and skip in text):
                said = self.type(text)
            elif kind == "python":
                edit(text)
            elif kind == "":
                for line in text.strip().splitlines():
                    assert line in said, f"the guide promises {line!r}, and this was said: {said}"

    def type(self, commands: str) -> str:
        commands = commands.replace("127.0.0.1:8480", self.http)
        kept = [line for line in commands.splitlines() if "pip install" not in line]
        self.aliases += "".join(f"{line}\n" for line in kept if line.startswith("alias "))
        script = "set -e\nshopt -s expand_aliases\n" + self.aliases + "\n".join(kept)
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=self.directory,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=100,
        )
        assert ended.returncode == 0, f"{commands}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout
