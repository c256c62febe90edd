"""Patterns that explode in other engines, through every way that takes one from outside: answered, and others have their turn."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from corral.controller.consoles.node_queries import span_of
from corral.controller.consoles.searches import SearchPlace, matches_of
from corral.daemon.config_files.patches import apply_patches
from corral.daemon.console.queries import answer_to
from corral.daemon.probes.probe_runner import ReadinessProbes
from corral.domain.groups.group import PatchOp, PatchSpec
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.domain.ids import Incarnation
from corral.domain.modules.document_filters import matches, parse_filter
from corral.domain.patterns import compile_bytes
from corral.testing.waiting import eventually
from corral.wire.v1.instance_pb2 import ConsoleQuery

LONG = "a" * 12_000
"""An engine that goes back would not be through with it within anybody's life."""


@pytest.mark.trap("T42")
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*z$", "(a?){100}a{100}z"])
async def test_search_probe_patch_and_query_answer_any_pattern(
    pattern: str, console: Any, readiness: Callable[..., ReadinessProbes], scratch: pathlib.Path
) -> None:
    text = f"{LONG}!"
    console.write(f"{text}\n{LONG}z\n".encode())
    (scratch / "server.cfg").write_text(text)

    def search() -> list[str]:
        """As a node and then the controller do it."""
        query = ConsoleQuery(instance_id="lobby-1", incarnation=1, pattern=pattern)
        span = span_of(query, answer_to(query, str(console.directory)))
        place = SearchPlace(backwards=False, every_run=False, incarnation=Incarnation(1), offset=0)
        return [item.line for item in matches_of(span, place, compile_bytes(pattern))]

    def patch() -> str:
        edit = PatchSpec(file="server.cfg", path=pattern, op=PatchOp.REGEX, value="x")
        apply_patches(scratch, [edit], values={})
        return (scratch / "server.cfg").read_text()

    async with asyncio.timeout(60):
        assert text not in await asyncio.to_thread(search)
        assert await asyncio.to_thread(patch) == text
        wanted = parse_filter({"text": {"regex": pattern}})
        assert not matches(wanted, "x", {"text": text})
        probe = readiness(ProbeSpec(kind=ProbeKind.LOG, pattern=f"^(?:{pattern})!never"))
        waiting = asyncio.create_task(probe.until_ready())
        await eventually(lambda: "matched" in probe.last_seen, state=lambda: probe.last_seen)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert not probe.ready
