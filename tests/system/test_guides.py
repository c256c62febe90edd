"""Every guide, and the README, typed as it is printed, each on a machine of its own."""

from __future__ import annotations

import asyncio

import pytest
from guide_machine import PROJECT, guide_machine
from guide_pages import PAGES
from guide_reader import GuideReader

pytestmark = pytest.mark.system

ON_SYSTEMD = "docs/guides/systemd.md"  # has a test of its own, on a machine that boots systemd
NOTHING_LEFT = """! corral module list | grep {module} && \\
[ "$(ls data/controller/artifacts/*.zip | wc -l)" = 1 ] && [ -z "$(find data/daemon -path '*modules/artifacts/*.zip')" ]"""
"""Only the demo's own module is there, which has no part for nodes."""
AFTERWARDS = {
    "docs/guides/write-a-module.md": NOTHING_LEFT.format(module="guest-book"),
    "docs/guides/write-a-daemon-module.md": NOTHING_LEFT.format(module="greeter"),
}
"""What is checked beyond what the page itself shows."""


@pytest.mark.trap("T96")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "page", [name for page in PAGES if (name := str(page.relative_to(PROJECT))) != ON_SYSTEMD]
)
async def test_every_command_of_a_guide_does_what_the_guide_says(page: str) -> None:
    def read() -> None:
        with guide_machine() as machine:
            reader = GuideReader(machine.shell(), PROJECT / page)
            reader.read()
            if page in AFTERWARDS:
                reader.check(AFTERWARDS[page])

    await asyncio.to_thread(read)
