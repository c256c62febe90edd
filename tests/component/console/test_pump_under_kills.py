"""Pumps die at any instruction; the console does not notice."""

from __future__ import annotations

import asyncio
import json
import pathlib
import sys

import pytest

import corral

ROOT = pathlib.Path(corral.__file__).parent.parent
ARENA = pathlib.Path(__file__).with_name("kill_arena.py")


async def fight(directory: pathlib.Path, mode: str, *, kills: int) -> dict[str, int]:
    arguments = [str(ROOT), str(directory), mode, "4", str(kills)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-S", str(ARENA), *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return json.loads(output)


@pytest.mark.system
@pytest.mark.trap("T46")
async def test_no_byte_is_lost_or_doubled_while_pumps_are_killed_every_millisecond(scratch):
    result = await fight(scratch, "pump", kills=250)
    assert result.pop("lines") > 1000
    assert result == {"lost": 0, "doubled": 0, "torn": 0, "misplaced": 0, "unfinished": 0}


@pytest.mark.system
async def test_the_same_kills_ruin_a_console_that_is_read_and_then_written(scratch):
    result = await fight(scratch, "copy", kills=250)
    assert result["lost"] > 0
