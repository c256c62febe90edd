from __future__ import annotations

import asyncio

import pytest

from corral.daemon.probes.log_probe import Growth, LogProbe
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.errors import Code, Rejected
from corral.runtimes.keeper import console_layout as layout
from corral.testing.counted_calls import counted_calls
from corral.testing.reaper import Reaper
from corral.testing.runtime_nodes import ProcessHarness
from corral.testing.waiting import eventually


def log(pattern: str) -> ProbeSpec:
    return ProbeSpec(kind=ProbeKind.LOG, pattern=pattern)


async def becomes_ready(found) -> None:
    async with asyncio.timeout(60):
        await found.until_ready()


async def not_ready(found, seen: str, times: int = 1) -> None:
    """It looked at what there is, and waits."""
    waiting = asyncio.create_task(found.until_ready())
    await eventually(lambda: found.last_seen.count(seen) == times, state=lambda: found.last_seen)
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_line_written_before_the_probe_began_is_found(console, readiness):
    console.write(b"loading\nDone (1.5s)!\nmore\n")
    await becomes_ready(readiness(log(r"^Done \(.*\)!$")))


async def test_a_line_that_comes_later_is_found_by_the_growth_of_its_console(console, readiness):
    console.write(b"loading\n")
    with counted_calls() as count:
        for number in range(5):  # on a busy machine the look of every second may come before
            found = readiness(log(f"Done {number}$"))
            waiting = asyncio.create_task(found.until_ready())
            await eventually(
                lambda found=found: "matched" in found.last_seen, state=lambda found=found: found.last_seen
            )
            console.write(b"Do")
            console.write(b"ne %d\r\n" % number)
            await waiting
            assert found.ready
    assert count.of(Growth.note) > 0
    assert found.last_seen == ""


async def test_a_console_that_appears_later_is_followed(scratch, readiness):
    directory = scratch / "later"
    found = readiness(log("Done"), console=directory)
    waiting = asyncio.create_task(found.until_ready())
    await asyncio.sleep(0)
    directory.mkdir()
    (directory / "00000000000000000000.log").write_bytes(b"Done\n")
    async with asyncio.timeout(60):
        await waiting


async def test_a_line_over_two_segments_is_one_line(console, readiness):
    console.write(b"loading\nDo")
    console.rotate()
    console.write(b"ne\n")
    await becomes_ready(readiness(log("^Done$")))


async def test_a_prompt_without_a_line_end_counts_once_it_waits(console, readiness):
    console.write(b"ready> ")
    await becomes_ready(readiness(log("^ready> $")))


async def test_lines_are_matched_one_by_one(console, readiness):
    console.write(b"a\nb\r\nc\n")
    await not_ready(readiness(log(r"a\s+b")), "none of 3 lines matched")
    await becomes_ready(readiness(log("^b$"), log("^c$"), log(r"\Aa\z")))


async def test_each_of_several_patterns_must_be_seen(console, readiness):
    console.write(b"one\n")
    found = readiness(log("one"), log("two"))
    waiting = asyncio.create_task(found.until_ready())
    seen = "log probe 'two': none of 1 line matched, the last one was 'one'"
    await eventually(lambda: found.last_seen.startswith(seen), state=lambda: found.last_seen)
    assert not waiting.done()
    console.write(b"two\n")
    async with asyncio.timeout(60):
        await waiting


async def test_a_probe_that_never_succeeds_tells_what_it_saw_and_names_buffering(console, readiness):
    found = readiness(log("Done"))
    await not_ready(found, "there was no output at all")
    assert "line_buffered: true" in found.last_seen
    console.write(b"\x1b[31mred\x07\n")
    buffered = readiness(log("Done"), line_buffered=True)
    await not_ready(buffered, "none of 1 line matched")
    assert (
        buffered.last_seen == "log probe 'Done': none of 1 line matched, the last one was '\\x1b[31mred\\x07'"
    )


@pytest.mark.trap("T17")
async def test_a_huge_line_and_bytes_that_are_no_text_are_passed_over(console, readiness):
    console.write(b"x" * 10_000_000)
    found = readiness(log("Done"))
    with counted_calls() as count:
        waiting = asyncio.create_task(found.until_ready())
        await eventually(lambda: "lines" in found.last_seen)
        console.write(b"\n\xff\xfe\x00 Done\n")
        async with asyncio.timeout(60):
            await waiting
    assert count.of(LogProbe._look) == 0, "it was read in the loop"


@pytest.mark.trap("T42")
async def test_an_exponential_pattern_costs_nobody_anything(console, readiness):
    console.write(b"a" * 30 + b"b\n")  # minutes for an engine that goes back
    found = readiness(log("(a+)+$"), log("(x+x+)+y"))
    await not_ready(found, "none of 1 line matched", times=2)
    console.write((b"a" * 60_000 + b"b\n") * 30)
    await not_ready(found, "none of 31 lines matched", times=2)
    console.write(b"aaa\nxxy\n")
    await becomes_ready(found)


async def test_a_pattern_that_is_none_is_refused_at_once(readiness):
    with pytest.raises(Rejected) as caught:
        readiness(log("(open"))
    assert caught.value.code is Code.INVALID_PATTERN


async def test_waiting_for_growth_costs_no_processor_time(console, readiness):
    console.write(b"quiet\n")
    found = readiness(log("Done"))
    waiting = asyncio.create_task(found.until_ready())
    await eventually(lambda: "1 line" in found.last_seen)
    with counted_calls() as count:
        await asyncio.sleep(2)
    assert count.calls < 10_000  # who spins makes hundreds of thousands
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_two_hundred_that_wait_cost_next_to_nothing(scratch, readiness):
    consoles = [scratch / f"console-{n}" for n in range(200)]
    for directory in consoles:
        directory.mkdir()
        (directory / layout.segment_name(0)).write_bytes(b"quiet\n")
    found = [readiness(log("Done"), console=directory) for directory in consoles]
    async with asyncio.TaskGroup() as group:
        for one in found:
            group.create_task(one.until_ready())
        await eventually(lambda: all("1 line" in one.last_seen for one in found))
        with counted_calls() as count:
            await asyncio.sleep(2)
        assert count.calls < 400_000
        for directory in consoles:
            with (directory / layout.segment_name(0)).open("ab") as segment:
                segment.write(b"Done\n")


async def test_a_real_process_is_ready_when_it_says_so(scratch, reaper: Reaper, readiness):
    data = scratch / "node"
    data.mkdir()
    async with ProcessHarness(data) as house:
        spec = house.spec("/bin/sh", "-c", "echo starting; read line; echo got $line; read forever")
        handle = await house.provider.start(spec)
        found = readiness(log("^got start$"), console=f"{spec.run_directory}/console")
        waiting = asyncio.create_task(found.until_ready())
        await eventually(lambda: "'starting'" in found.last_seen, state=lambda: found.last_seen)
        await house.provider.send_command(handle, "start")
        async with asyncio.timeout(60):
            await waiting
        await house.provider.kill(handle)
        await house.provider.wait_empty(handle)
