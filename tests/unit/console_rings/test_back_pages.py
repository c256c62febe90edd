"""Pages read backwards, from files as a node has them and from the controller's ring: the bytes of pages read forwards."""

from __future__ import annotations

import asyncio
import datetime as dt
import itertools
import pathlib
import random
import shutil
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from corral.controller.consoles.lookup import PAGE_BYTES, ConsoleLookup
from corral.controller.consoles.node_queries import span_of
from corral.controller.consoles.pages import ConsoleLine, ConsolePage
from corral.controller.consoles.rings import Rings
from corral.controller.consoles.span import ConsoleSpan
from corral.daemon.console.queries import answer_to
from corral.domain.groups.instance_records import InstanceRecord, Wanted
from corral.domain.ids import GroupName, Incarnation, InstanceId, NodeId
from corral.domain.instance_states import InstanceState
from corral.runtimes.keeper.console_layout import segment_name
from corral.wire.v1.instance_pb2 import ConsoleQuery

RUN = Incarnation(1024)
ID = InstanceId("lobby-1")
NUMBERS = itertools.count()


class Node:
    """A node whose consoles are files, asked without a link between."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.directory = directory
        self.asked = 0
        self.answered_bytes = 0

    async def ask(self, node_id: NodeId, query: ConsoleQuery) -> ConsoleSpan:
        del node_id
        self.asked += 1
        span = span_of(query, answer_to(query, str(self.directory)))
        self.answered_bytes += sum(len(piece.data) for piece in span.pieces)
        return span

    def find(self, node_id: NodeId) -> Node:
        """Connected, always."""
        del node_id
        return self


ENDED = InstanceRecord(
    id=ID,
    group=GroupName("lobby"),
    node=NodeId("node-1"),
    incarnation=RUN,
    state=InstanceState.STOPPED,
    wanted=Wanted.STOP,
    created_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
    console_end=1,
)


class Console:
    """A console of an ended run on a node; its last `held` bytes are in the controller's ring, too."""

    def __init__(self, directory: pathlib.Path, parts: dict[int, bytes], *, held: int = 0) -> None:
        directory.mkdir()
        for offset, data in parts.items():
            (directory / segment_name(offset)).write_bytes(data)
        self.node = Node(directory)
        rings = Rings(is_live=lambda _: False)
        last, data = max(parts.items())
        self.end = last + len(data)
        if held:
            ring = rings.writing((ID, RUN), begin=self.end - min(held, len(data)))
            assert ring is not None
            ring.append(ring.begin, data[-held:])
        node: Any = self.node
        self.lookup = ConsoleLookup(rings=rings, history=node, links=node)

    async def backwards(self, before: int | None, *, limit: int) -> list[ConsolePage]:
        pages: list[ConsolePage] = []
        while before is None or before > 0:
            page = await self.lookup.before(ENDED, RUN, before, limit=limit)
            assert len(page.items) <= limit
            assert before is None or page.previous_offset < before, "it gets on"
            pages.insert(0, page)
            before = page.previous_offset
        return pages

    async def forwards(self, *, limit: int) -> list[ConsolePage]:
        pages: list[ConsolePage] = []
        after = 0
        while after < self.end:
            pages.append(await self.lookup.page(ENDED, RUN, after=after, limit=limit, newest=False))
            assert pages[-1].next_offset > after
            after = pages[-1].next_offset
        return pages


def whole(items: list[ConsoleLine]) -> list[tuple[int, str]]:
    """Lines, put together where they were cut; what has no beginning or no end stays for itself."""
    found: list[tuple[int, str]] = []
    open_end = False
    for item in items:
        assert not (open_end and not item.continued), "what goes on is continued"
        if open_end:
            found[-1] = (found[-1][0], found[-1][1] + item.line)
        else:
            found.append((item.offset, item.line))
        open_end = item.partial
    return found


def items_of(pages: list[ConsolePage]) -> list[ConsoleLine]:
    return [item for page in pages for item in page.items]


PIECES = st.one_of(
    st.sampled_from(
        [
            b"\n",
            b"\r\n",
            b"\r",
            b"line\n",
            "€uro ünd 🎲\n".encode(),
            b"\xff\xfe\x80\x80\x80",
            b"\xe2\x82",
            b"\xf0\x90",
        ]
    ),
    st.binary(max_size=30),
    st.builds(
        lambda text, times: text * times,
        st.sampled_from([b"x", "🎲".encode(), b"\x80", b"ab\r"]),
        st.integers(0, 40_000),
    ),
)


@hypothesis.settings(deadline=None, max_examples=60, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(
    pieces=st.lists(PIECES, max_size=40),
    limit=st.sampled_from([1, 2, 7, 500, 5000]),
    held=st.sampled_from([0, 100, 70_000]),
    before=st.one_of(st.none(), st.integers(1, 2_000_000)),
)
def test_reading_backwards_yields_what_reading_forwards_does(
    scratch: pathlib.Path, pieces: list[bytes], limit: int, held: int, before: int | None
) -> None:
    content = b"".join(pieces) or b"-"
    directory = scratch / f"console-{next(NUMBERS)}"
    console = Console(directory, {0: content}, held=held)
    limit = limit if content.count(b"\n") < 400 * limit else 5000
    if before is not None:
        before = min(before, len(content))
    back = items_of(asyncio.run(console.backwards(before, limit=limit)))
    forth = items_of(asyncio.run(console.forwards(limit=5000)))
    expected = [line for line in whole(forth) if before is None or line[0] < before]
    found = whole(back)
    if before is not None and found and back[-1].partial:
        cut = content[found[-1][0] : before].decode("utf-8", "replace")
        assert (found[-1][0], found[-1][1]) == (expected[-1][0], cut)
        found, expected = found[:-1], expected[:-1]
    assert found == expected
    shutil.rmtree(directory)


@pytest.mark.system
async def test_a_page_costs_the_same_at_every_depth_and_a_long_line_says_that_it_goes_on(
    scratch: pathlib.Path,
) -> None:
    generator = random.Random(7)
    lines = b"".join(b"%08d %s\n" % (n, b"y" * generator.randrange(80)) for n in range(200_000))
    content = lines + "z🎲€".encode() * (10 << 17) + b"\r\n" + lines
    console = Console(scratch / "console", {0: content})
    pages = await console.backwards(None, limit=500)
    assert console.node.asked == len(pages)
    assert console.node.answered_bytes < len(pages) * PAGE_BYTES + (1 << 20)
    assert (pages[0].items[0].offset, pages[0].items[0].continued) == (0, False)
    assert whole(items_of(pages)) == whole(items_of(await console.forwards(limit=5000)))
    cut = [page for page in pages if page.items[0].continued]
    assert len(cut) * PAGE_BYTES >= 10 << 20, "only the long line is cut"
    assert all(set(page.items[0].line) == set("z🎲€") for page in cut), "no character is cut"


async def test_gaps_are_passed_over_at_once_and_said_once(scratch: pathlib.Path) -> None:
    """Bytes before the first segment are gone, and a hole of a gigabyte lies between two others."""
    parts = {1000: b"one\ntwo", 1 << 30: b"ree\nfour\n", (1 << 30) + 5000: b"five\n"}
    console = Console(scratch / "console", parts)
    for limit in (1, 2, 500):
        pages = await console.backwards(None, limit=limit)
        told = [(item.offset, item.line, item.partial, item.continued) for item in items_of(pages)]
        assert told == [
            (1000, "one", False, True),
            (1004, "two", True, False),
            (1 << 30, "ree", False, True),
            ((1 << 30) + 4, "four", False, False),
            ((1 << 30) + 5000, "five", False, True),
        ]
        gaps = [(gap.from_offset, gap.to_offset) for page in pages for gap in page.gaps]
        assert gaps == [(0, 1000), (1007, 1 << 30), ((1 << 30) + 9, (1 << 30) + 5000)]
        assert len(pages) <= 5
    (nothing,) = await console.backwards(700, limit=5)
    assert (nothing.items, nothing.gap, nothing.previous_offset) == ([], True, 0)


@pytest.mark.parametrize(("after", "continued"), [(0, False), (4, False), (5, True), (1, True)])
async def test_a_page_from_within_a_line_says_so(scratch: pathlib.Path, after: int, continued: bool) -> None:
    console = Console(scratch / "console", {0: b"one\ntwo\n"})
    page = await console.lookup.page(ENDED, RUN, after=after, limit=5, newest=False)
    assert (page.items[0].continued, page.previous_offset) == (continued, after)
