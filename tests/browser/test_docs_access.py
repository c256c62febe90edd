"""Who reads the documentation of the API, and what is left of the secrets that it takes."""

from __future__ import annotations

import pytest
from docs_pages import expect_entry, heading, log_in, open_docs
from live_site import LiveSite
from playwright.sync_api import Browser, expect
from watched_pages import Watched, watched

KEPT = "({local: {...localStorage}, session: {...sessionStorage}})"


@pytest.fixture(scope="module")
def issuer() -> str:
    """Nobody logs in with a provider here."""
    return ""


@pytest.fixture(scope="module")
def user(site: LiveSite) -> str:
    return site.user("ada")


def test_without_a_session_it_leads_to_the_login_and_back_to_the_same_place(
    person: Watched, site: LiveSite, user: str
) -> None:
    asked: list[str] = []
    person.context.on("request", lambda request: asked.append(request.url.removeprefix(site.url)))
    page = person.open("/docs#/operations/get_groups")
    expect_entry(page)
    assert not [path for path in asked if path.startswith("/api/")], "nothing is asked without a session"
    page.evaluate("location.hash = '#/schemas/NewGroup'")
    page.get_by_role("link", name="Log in").click()
    log_in(page, user)
    expect(heading(page)).to_have_text("NewGroup")
    assert page.url == f"{site.url}/docs#/schemas/NewGroup"
    page.reload()
    expect(heading(page)).to_have_text("NewGroup")


@pytest.mark.system
def test_a_logout_in_another_tab_takes_it_away_and_a_login_brings_it_back(person: Watched, user: str) -> None:
    other = person.open("/login")
    log_in(other, user)
    expect(heading(other)).to_have_text(user)
    page = open_docs(person, "#/operations/get_groups")
    other.get_by_role("button", name="Log out").click()
    expect_entry(page)
    assert "/api/v1/groups" not in page.content()
    log_in(other, user)
    expect(heading(page)).to_have_text("List groups")


def test_a_token_reads_it_once_and_is_kept_nowhere(person: Watched, site: LiveSite) -> None:
    token = site.call("POST", "/api/v1/tokens", {"name": "reader", "role": "VIEWER"})["token"]
    page = person.open("/docs#/operations/get_groups")
    page.get_by_text("Use an API token").click()
    field = page.get_by_label("API token", exact=True)
    field.fill("corral_wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#by-token .error")).not_to_be_empty()
    expect(field).to_be_focused()
    expect(field).to_have_value("")
    field.fill(token)
    page.keyboard.press("Enter")
    expect(heading(page)).to_have_text("List groups")
    expect(heading(page)).to_be_focused()
    assert page.evaluate(KEPT) == {"local": {}, "session": {}}
    assert token not in page.content()
    assert not person.context.cookies()
    page.reload()
    expect_entry(page)


def test_by_plain_http_from_elsewhere_there_is_a_reason_and_no_field(
    browser: Browser, site: LiveSite
) -> None:
    with watched(browser, site.url, extra_http_headers={"X-Forwarded-For": "203.0.113.9"}) as stranger:
        page = stranger.open("/docs")
        expect(page.locator("#entry > .error")).to_contain_text("Nobody can log in over plain HTTP")
        expect(page.locator("input:visible, main a:visible")).to_have_count(0)
