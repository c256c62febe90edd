"""The tutorial for module authors, command by command as it is printed."""

from __future__ import annotations

import pathlib

import pytest
from guide_reader import Reader

from corral.testing.ports import free_addresses

pytestmark = pytest.mark.system


class Editor:
    """Puts what the guide shows where it says."""

    def __init__(self, directory: pathlib.Path) -> None:
        self._file = directory / "guest-book" / "guest_book" / "module.py"
        self._tests = directory / "guest-book" / "tests" / "test_module.py"

    def edit(self, addition: str) -> None:
        if "def test_" in addition:
            self._tests.write_text(f"{self._tests.read_text()}\n\n{addition}")
        elif addition.startswith("class "):
            self._put_above("class GuestBook(", f"{addition}\n\n")
        elif "on_upgrade" in addition:
            self._put_above("    async def on_start(", f"{addition}\n")
        else:
            self._add_route(addition)

    def _put_above(self, line: str, addition: str) -> None:
        text = self._file.read_text()
        assert text.count(line) == 1
        self._file.write_text(text.replace(line, addition + line))

    def _add_route(self, addition: str) -> None:
        """The route into `register_routes`, the method below it."""
        text = self._file.read_text()
        route, method = addition.split("\n\n", 1)
        first = next(line for line in text.splitlines() if "routes.get(" in line)
        self._file.write_text(text.replace(first, f"{first}\n{route}\n\n{method.rstrip()}"))


async def test_every_command_of_the_tutorial_does_what_it_says(processes, scratch):
    http, grpc = free_addresses(2)
    up = processes.start("up", "--data", str(scratch / "data"), "--http", http, "--grpc", grpc, "--no-demo")
    await up.ready()
    reader = Reader(scratch, http)
    reader.read("write-a-module.md", edit=Editor(scratch).edit, skip="module dev")
    assert "guest-book" not in reader.type("corral module list")
    assert not any((scratch / "data" / "controller" / "artifacts").glob("*.zip"))


async def test_a_module_follows_the_editor(processes, scratch):
    """`corral module dev --once` twice, with an edit in between."""
    http, grpc = free_addresses(2)
    up = processes.start("up", "--data", str(scratch / "data"), "--http", http, "--grpc", grpc, "--no-demo")
    await up.ready()
    reader = Reader(scratch, http)
    reader.type(f"corral login http://{http} --token-file data/admin.token")
    reader.type("corral module new guest-book\ncorral module dev guest-book --once")
    reader.type("sed -i 's/, {name}!/, dear {name}!/' guest-book/guest_book/module.py")
    assert "ACTIVE" in reader.type("corral module dev guest-book --once")
    token = (scratch / "data" / "admin.token").read_text().strip()
    said = reader.type(
        f'curl -s -H "Authorization: Bearer {token}" http://{http}/api/v1/modules/guest-book/hello/Ada'
    )
    assert "dear Ada" in said
