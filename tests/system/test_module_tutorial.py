"""The tutorial for module authors, command by command as it is printed."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from corral.testing.ports import free_addresses

pytestmark = pytest.mark.system

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "write-a-module.md"
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    return [(match[1], match[2]) for match in BLOCK.finditer(GUIDE.read_text())]


class Reader:
    """Somebody who types what the guide says, in one shell after the other, in an empty directory."""

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

    def edit(self, addition: str) -> None:
        """As the guide says: the route into `register_routes`, the method below it."""
        file = self.directory / "guest-book" / "guest_book" / "module.py"
        text = file.read_text()
        route, method = addition.split("\n\n", 1)
        first = next(line for line in text.splitlines() if "routes.get(" in line)
        file.write_text(text.replace(first, f"{first}\n{route}\n\n{method.rstrip()}"))


async def test_every_command_of_the_tutorial_does_what_it_says(processes, scratch):
    http, grpc = free_addresses(2)
    up = processes.start("up", "--data", str(scratch / "data"), "--http", http, "--grpc", grpc, "--no-demo")
    await up.ready()
    reader = Reader(scratch, http)
    expected = ""
    said = ""
    for kind, text in blocks():
        if kind == "sh" and "module dev" not in text:
            said = reader.type(text)
        elif kind == "python":
            reader.edit(text)
        elif kind == "":
            expected = text
            for line in expected.strip().splitlines():
                assert line in said, f"the guide promises {line!r}, and this was said: {said}"
    assert "guest-book" not in reader.type("corral module list")
    assert not any((scratch / "data" / "controller" / "artifacts").glob("*.zip"))


async def test_a_module_follows_the_editor(processes, scratch):
    """`corral module dev --once` twice, with an edit in between."""
    http, grpc = free_addresses(2)
    up = processes.start("up", "--data", str(scratch / "data"), "--http", http, "--grpc", grpc, "--no-demo")
    await up.ready()
    reader = Reader(scratch, http)
    reader.type(f'corral login http://{http} --token "$(cat data/admin.token)"')
    reader.type("corral module new guest-book\ncorral module dev guest-book --once")
    reader.type("sed -i 's/, {name}!/, dear {name}!/' guest-book/guest_book/module.py")
    assert "ACTIVE" in reader.type("corral module dev guest-book --once")
    token = (scratch / "data" / "admin.token").read_text().strip()
    said = reader.type(
        f'curl -s -H "Authorization: Bearer {token}" http://{http}/api/v1/modules/guest-book/hello/Ada'
    )
    assert "dear Ada" in said
