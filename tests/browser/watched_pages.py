"""Pages in a real browser, of which no fault passes unnoticed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]
"""The last one: nothing leaves this machine."""
REPORT_VIOLATIONS = (
    "addEventListener('securitypolicyviolation', (event) => "
    "console.error(`policy: ${event.effectiveDirective} ${event.blockedURI}`))"
)
REFUSED_CALL = re.compile(r"Failed to load resource: the server responded with a status of 4\d\d .*")
"""Browsers log each refusal of the API; the page shows it."""


class Watched:
    """A browser context of one person, with what went wrong on the pages of one origin."""

    def __init__(self, context: BrowserContext, origin: str) -> None:
        self.context = context
        self._origin = origin
        self.faults: list[str] = []
        context.add_init_script(REPORT_VIOLATIONS)
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self.faults.append(f"uncaught: {error.error}"))

    def _on_console(self, message: ConsoleMessage) -> None:
        place = message.location["url"]
        refused_call = REFUSED_CALL.fullmatch(message.text) and place.startswith(
            (f"{self._origin}/api/v1/auth/", f"{self._origin}/api/v1/openapi.json")
        )
        if message.type == "error" and place.startswith(self._origin) and not refused_call:
            self.faults.append(f"{message.text} ({place})")

    def open(self, address: str = "/login") -> Page:
        """A new tab on a path of the controller, or on an address."""
        page = self.context.new_page()
        page.goto(self._origin + address if address.startswith("/") else address)
        return page


@contextmanager
def watched(browser: Browser, origin: str, **options: Any) -> Iterator[Watched]:
    """A person with a fresh profile; a fault on a page of this origin fails the test."""
    context = browser.new_context(**options)
    context.set_default_timeout(30_000)
    try:
        person = Watched(context, origin)
        yield person
        assert not person.faults
    finally:
        context.close()
