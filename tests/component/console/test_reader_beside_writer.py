"""A reader beside a writer that floods, rotates and gives up its oldest segments all the time."""

from __future__ import annotations

import asyncio
import os
import struct
import threading

from corral.runtimes.console.log import ConsoleLog
from corral.runtimes.keeper.console_pump import Pump

TOTAL = 12_000_000
SLOT = 8


def expected(offset: int, size: int) -> bytes:
    """Each eight bytes say where they are."""
    first = offset // SLOT
    numbers = range(first, (offset + size) // SLOT + 1)
    data = struct.pack(f">{len(numbers)}Q", *numbers)
    return data[offset - first * SLOT :][:size]


def flood(directory, source: int, sink: int) -> None:
    pump = Pump(str(directory), source, segment_bytes=1 << 20, quota_bytes=256 * 1024)
    for start in range(0, TOTAL, 32768):
        os.write(sink, expected(start, min(32768, TOTAL - start)))
        pump.drain()
    pump.close()


async def test_every_byte_that_is_read_is_the_right_one_and_the_rest_is_told_as_gaps(scratch):
    source, sink = os.pipe()
    writer = threading.Thread(target=flood, args=(scratch, source, sink))
    writer.start()
    offset = read = skipped = 0
    with ConsoleLog(scratch) as log:
        while offset < TOTAL:
            block = log.read(offset, 50_000)
            if block.gap_before is not None:
                assert (block.gap_before.from_offset, block.gap_before.to_offset) == (offset, block.offset)
                assert block.gap_before.reason == "retention"
                skipped += block.offset - offset
            else:
                assert block.offset == offset
            assert block.data == expected(block.offset, len(block.data))
            assert log.first_offset <= log.end_offset <= TOTAL
            list(log.lines(log.first_offset, log.first_offset + 100))
            read += len(block.data)
            offset = block.end
            await asyncio.sleep(0)
        assert log.read(TOTAL, 10).data == b""
    await asyncio.to_thread(writer.join)
    assert read + skipped == TOTAL
    os.close(source)
    os.close(sink)
