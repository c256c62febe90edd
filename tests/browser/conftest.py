"""One browser and one controller for the tests of a file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import pytest
from live_site import LiveSite, open_site
from playwright.sync_api import Browser, expect, sync_playwright
from watched_pages import CHROMIUM, FLAGS, Watched, watched

from tests.component.accounts.published_provider import published_provider

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def issuer(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The provider of OpenID Connect that the controller knows; empty: none."""
    started = published_provider(tmp_path_factory.mktemp("provider"))
    yield runner.run(started.__aenter__())
    runner.run(started.__aexit__(None, None, None))


@pytest.fixture(scope="module")
def site(runner: asyncio.Runner, issuer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSite]:
    stack = contextlib.AsyncExitStack()
    try:
        yield runner.run(open_site(stack, tmp_path_factory.mktemp("site"), issuer=issuer))
    finally:
        runner.run(stack.aclose())


@pytest.fixture(scope="module")
def browser(site: LiveSite) -> Iterator[Browser]:
    """Ends before the controller does: its loop must not run when that one's does."""
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def person(browser: Browser, site: LiveSite) -> Iterator[Watched]:
    with watched(browser, site.url) as made:
        yield made
