"""The command line that all campaigns have: how long, on which store, with which seed."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import pathlib
import shutil
import signal
import tempfile
import time
from collections.abc import Awaitable, Sequence
from typing import Protocol

from corral.testing.postgres_server import PostgresServer


class Campaign(Protocol):
    def __call__(
        self, directory: pathlib.Path, *, store: str, seed: int, seconds: float
    ) -> Awaitable[tuple[Sequence[str], Sequence[object]]]:
        """Run it; lines for people, and what was violated."""


def run_campaign(campaign: Campaign, *, description: str | None, minutes: float) -> int:
    """Run a campaign as the command line asks; its exit code. The directory is kept when something was violated."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--minutes", type=float, default=minutes)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args()
    print(f"seed {asked.seed}, store {asked.store}, {asked.minutes:g} minutes", flush=True)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="corral-campaign-"))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing is left running by an end in between
    with contextlib.ExitStack() as stack:
        store = "sqlite"
        if asked.store == "postgres":
            server = stack.enter_context(PostgresServer())
            store = server.url()
        lines, violations = asyncio.run(_run(campaign, directory, store, asked.seed, asked.minutes * 60))
    for line in (*lines, *(f"VIOLATION {each}" for each in violations)):
        print(line)
    if violations:
        print(f"everything is kept in {directory}")
        return 1
    shutil.rmtree(directory)
    return 0


async def _run(
    campaign: Campaign, directory: pathlib.Path, store: str, seed: int, seconds: float
) -> tuple[Sequence[str], Sequence[object]]:
    return await campaign(directory, store=store, seed=seed, seconds=seconds)
