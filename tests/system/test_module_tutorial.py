"""What authors of modules do beside the tutorials; those are read by `test_guides`."""

from __future__ import annotations

import asyncio

import pytest
from guide_machine import guide_machine
from guide_reader import START

pytestmark = pytest.mark.system

UP = START.format(command="corral up --data data --no-demo", number=1, ready="ready: ")
GREETED = "curl -s -H @header http://127.0.0.1:8480/api/v1/modules/guest-book/hello/Ada"


async def typed(*commands: str) -> str:
    """What the last of these commands says, on a machine of their own."""

    def type_all() -> str:
        with guide_machine() as machine:
            shell = machine.shell()
            for command in ('export PATH="$PWD/.venv/bin:$PATH"', *commands):
                code, said = shell.type(command)
                assert code == 0, f"{command}: {said}"
            return said

    return await asyncio.to_thread(type_all)


async def test_a_module_follows_the_editor() -> None:
    """`corral module dev --once` twice, with an edit in between."""
    said = await typed(
        UP,
        "corral login http://127.0.0.1:8480 --token-file data/admin.token",
        "corral module new guest-book",
        "corral module dev guest-book --once",
        "sed -i 's/, {name}!/, dear {name}!/' guest-book/guest_book/module.py",
        "corral module dev guest-book --once | grep ACTIVE",
        'echo "Authorization: Bearer $(cat data/admin.token)" > header',
        GREETED,
    )
    assert "dear Ada" in said


async def test_the_scaffold_of_a_module_for_nodes_passes_its_quick_test() -> None:
    quick = "corral module test greeter -q -n 0 -k greeted"
    assert "1 passed" in await typed("corral module new greeter --host daemon", quick)
