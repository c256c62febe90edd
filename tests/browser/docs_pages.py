"""The page /docs as tests open it."""

from __future__ import annotations

from live_site import PASSWORD
from playwright.sync_api import Locator, Page, expect
from watched_pages import Watched

DOCUMENT = "/api/v1/openapi.json"


def log_in(page: Page, user: str) -> None:
    page.locator("#login-name").fill(user)
    page.locator("#login-password").fill(PASSWORD)
    page.keyboard.press("Enter")


def heading(page: Page) -> Locator:
    return page.get_by_role("heading", level=1)


def open_docs(reader: Watched, place: str = "") -> Page:
    page = reader.open(f"/docs{place}")
    expect(page.locator("#view")).to_be_visible()
    return page


def expect_entry(page: Page) -> None:
    expect(heading(page)).to_have_text("API documentation")
    expect(page.get_by_role("link", name="Log in")).to_be_visible()
    expect(page.get_by_role("navigation")).to_be_hidden()
