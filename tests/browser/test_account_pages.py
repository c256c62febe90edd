"""Logging in, and looking after one's own account, in a real browser."""

from __future__ import annotations

import re
import time
from urllib.parse import quote

import httpx
import pyotp
import pytest
from live_site import LOGIN, OTHER, PASSWORD, PROVIDER, LiveSite
from playwright.sync_api import Browser, Locator, Page, expect
from watched_pages import Watched, watched

KEPT = "({local: Object.keys(localStorage), session: Object.keys(sessionStorage)})"


def field(within: Page | Locator, label: str) -> Locator:
    """The field with this label that is shown."""
    return within.locator("input:visible").and_(within.get_by_label(label, exact=True))


def fill_login(page: Page, name: str, password: str = PASSWORD) -> None:
    field(page, "Name").fill(name)
    field(page, "Password").fill(password)
    page.get_by_role("button", name="Log in", exact=True).click()


def expect_account(page: Page, name: str) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    expect(page).to_have_title("Your account · Corral")
    assert page.url.endswith("/login")


def expect_login(page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text("Log in")
    expect(field(page, "Name")).to_be_focused()
    expect(field(page, "Name")).to_have_value("")
    assert page.evaluate(KEPT)["local"] == []


def expect_error(page: Page, text: str) -> None:
    """One message is shown, with this text in it or in its hint."""
    found = page.locator("[role=alert]:visible:not(:empty)")
    expect(found).to_have_count(1)
    expect(found).to_contain_text(text)


def test_the_printed_address_makes_the_first_administrator_and_works_once(
    person: Watched, browser: Browser, site: LiveSite
) -> None:
    page = person.open(site.first_admin)
    expect(field(page, "Name")).to_have_value("admin")
    assert page.url == f"{site.url}/first-admin", "the code is no longer in the address bar"
    expect(field(page, "Password")).to_be_focused()
    field(page, "Password").fill(PASSWORD)
    field(page, "Password, once more").fill(OTHER)
    page.get_by_role("button", name="Create").click()
    expect_error(page, "The two passwords differ")
    expect(field(page, "Password, once more")).to_be_focused()
    for label in ("Password", "Password, once more"):
        field(page, label).fill("password1234")
    page.get_by_role("button", name="Create").click()
    expect(field(page, "Password")).to_have_attribute("aria-invalid", "true")
    for label in ("Password", "Password, once more"):
        field(page, label).fill(PASSWORD)
    page.get_by_role("button", name="Create").click()
    expect_account(page, "admin")
    assert page.evaluate(KEPT) == {"local": ["corral.csrf"], "session": []}
    expect(page.locator(".by")).to_have_text("the code of the first administrator")
    with watched(browser, site.url) as somebody:
        late = somebody.open(site.first_admin)
        for label in ("Password", "Password, once more"):
            field(late, label).fill(OTHER)
        late.get_by_role("button", name="Create").click()
        expect_error(late, "The code is unknown, used or expired")
        bare = somebody.open("/first-admin")
        expect(bare.get_by_text("opened by the address that a new controller prints")).to_be_visible()
        expect(field(bare, "Name")).to_be_hidden()


def test_somebody_logs_in_by_keyboard_and_out_in_all_tabs(person: Watched, site: LiveSite) -> None:
    user = site.user("ada")
    page = person.open("/")
    expect(page).to_have_url(f"{site.url}/login")
    expect(field(page, "Name")).to_be_focused()
    page.keyboard.type(user)
    page.keyboard.press("Tab")
    page.keyboard.type("wrong, and long enough")
    page.keyboard.press("Enter")
    expect_error(page, "Name, password or code is wrong")
    expect(field(page, "Password")).to_be_focused()
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Log in", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect_account(page, user)
    page.reload()
    expect_account(page, user)
    other = person.open()
    expect_account(other, user)
    page.get_by_role("button", name="Log out").press("Enter")
    expect_login(page)
    expect_login(other)
    assert site.sessions(user) == []
    assert PASSWORD not in page.content()


@pytest.mark.system
def test_a_second_factor_is_set_up_and_asked_for(person: Watched, site: LiveSite) -> None:
    user = site.user("bea")
    page = person.open()
    fill_login(page, user)
    expect_account(page, user)
    page.get_by_text("Set up a second factor").click()
    field(page, "Password").fill(PASSWORD)
    page.get_by_role("button", name="Begin").click()
    expect(page.locator(".uri")).to_have_text(re.compile("otpauth://totp/.+"))
    app = pyotp.parse_uri(page.locator(".uri").inner_text())
    assert isinstance(app, pyotp.TOTP)
    assert page.locator(".secret").inner_text().replace(" ", "") == app.secret
    field(page, "Code").fill(app.now())
    page.get_by_role("button", name="Confirm").click()
    codes = page.locator(".codes li")
    expect(codes).to_have_count(10)
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_text("Copied.")).to_be_visible()
    page.get_by_role("button", name="I have kept them").click()
    expect(page.get_by_text("On: logins with your password also need a code.")).to_be_visible()
    expect(codes).to_have_count(0)
    assert app.secret not in page.content()
    page.get_by_role("button", name="Log out").click()

    fill_login(page, user)
    code = field(page, "Code of your authenticator app")
    expect(code).to_be_focused()
    code.fill("000000")
    page.keyboard.press("Enter")
    expect_error(page, "password or code is wrong")
    expect(code).to_be_focused()
    code.fill(app.at(int(time.time()) + 30))  # the present one was used
    page.keyboard.press("Enter")
    expect_account(page, user)
    expect(page.locator(".by")).to_have_text("password and second factor")


@pytest.mark.system
def test_a_recovery_code_replaces_the_app_once_and_removes_the_second_factor(
    person: Watched, site: LiveSite
) -> None:
    user = site.user("cleo")
    _, codes = site.second_factor(user)
    page = person.open()
    fill_login(page, user)
    page.get_by_role("button", name="Use a recovery code").click()
    expect(field(page, "Recovery code")).to_be_focused()
    page.keyboard.type(codes[0])
    page.keyboard.press("Enter")
    expect_account(page, user)
    expect(page.locator(".by")).to_have_text("password and recovery code")
    page.get_by_text("Remove the second factor").first.click()
    form = page.locator("#factor-remove form")
    field(form, "Password").fill(PASSWORD)
    form.get_by_role("button", name="Use a recovery code").click()
    field(form, "Recovery code").fill(codes[1])
    form.get_by_role("button", name="Remove the second factor").click()
    expect(page.get_by_text("Set up a second factor")).to_be_visible()


@pytest.mark.system
def test_a_password_of_an_administrator_is_changed_at_the_first_login_and_by_its_owner_later(
    person: Watched, site: LiveSite
) -> None:
    user = site.user("dora", must_change=True)
    page = person.open()
    fill_login(page, user)
    expect(field(page, "New password")).to_be_focused()
    for label in ("New password", "New password, once more"):
        field(page, label).fill("short")
    page.keyboard.press("Enter")
    expect_error(page, "12")
    expect(field(page, "New password")).to_be_focused()
    for label in ("New password", "New password, once more"):
        field(page, label).fill(OTHER)
    page.keyboard.press("Enter")
    expect_account(page, user)
    before = site.sessions(user)
    page.get_by_text("Change the password").first.click()
    form = page.locator("#own-password form")
    field(form, "Present password").fill(PASSWORD)
    for label in ("New password", "New password, once more"):
        field(form, label).fill(PASSWORD)
    form.get_by_role("button").click()
    expect_error(page, "password or code is wrong")
    field(form, "Present password").fill(OTHER)
    form.get_by_role("button").click()
    expect(form).to_be_hidden()
    after = site.sessions(user)
    assert len(after) == 1
    assert after != before
    page.reload()
    expect_account(page, user)


@pytest.mark.system
def test_a_delayed_login_counts_down_until_it_may_be_tried_again(person: Watched, site: LiveSite) -> None:
    user = site.user("emma")
    page = person.open()
    page.clock.install()
    page.reload()
    button = page.locator("#login [type=submit]")
    for _ in range(5):
        fill_login(page, user, "wrong, and long enough")
        expect(page.get_by_text("Name, password or code is wrong")).to_be_visible()
    expect(button).to_have_text("Log in (30 s)")
    expect(button).to_be_disabled()
    expect_error(page, "the next attempt is possible in 30 s")
    page.clock.fast_forward(10_500)
    expect(button).to_have_text(re.compile(r"Log in \((19|20) s\)"))
    page.clock.fast_forward(25_000)
    expect(button).to_have_text("Log in")
    field(page, "Password").fill(PASSWORD)
    button.click()
    expect_error(page, "Too many logins with this name or from this address have failed")
    expect(button).to_be_disabled()
    site.call("POST", f"/api/v1/users/{user}/reset-delay")
    page.clock.fast_forward(40_000)
    button.click()
    expect_account(page, user)


@pytest.mark.system
def test_the_login_of_a_command_line_is_approved_or_refused(person: Watched, site: LiveSite) -> None:
    user = site.user("iris")
    page = person.open()
    fill_login(page, user)
    expect_account(page, user)
    page.get_by_text("Let a command line in").click()
    field(page, "Code that the command line shows").fill("BBBB-BBBB")
    page.keyboard.press("Enter")
    expect_error(page, "No login waits with this code")
    for button, outcome, status in (
        ("Refuse it", "It was refused.", 401),
        ("Let it in", "The command line acts as you now.", 200),
    ):
        begun = httpx.post(
            f"{site.url}/api/v1/auth/device", headers={"User-Agent": "corral/1"}, verify=False
        ).json()
        field(page, "Code that the command line shows").fill(begun["user_code"].lower())
        page.keyboard.press("Enter")
        expect(page.get_by_text("corral/1, from 127.0.0.1, begun")).to_be_focused()
        page.get_by_role("button", name=button).click()
        expect(page.get_by_text(outcome)).to_be_visible()
        body = {"device_code": begun["device_code"], "kind": "COMMAND_LINE"}
        answer = httpx.post(site.url + LOGIN, json=body, timeout=30, verify=False)
        assert answer.status_code == status, answer.text
    assert answer.json()["user"] == user


@pytest.mark.system
def test_somebody_logs_in_with_a_provider(person: Watched, site: LiveSite) -> None:
    page = person.open("/login")
    page.get_by_role("button", name=f"Log in with {PROVIDER}").click()
    page.get_by_role("button", name="u-2").click()
    expect(page).to_have_url(f"{site.url}/login")
    expect_error(page, "none of your groups has a role here")
    page.get_by_role("button", name=f"Log in with {PROVIDER}").click()
    page.get_by_role("button", name="u-1").click()
    expect_account(page, "alice (127.0.0.1)")
    expect(page.locator(".by")).to_have_text(PROVIDER)
    assert page.url == f"{site.url}/login", "the code is no longer in the address bar"
    assert page.evaluate(KEPT) == {"local": ["corral.csrf"], "session": []}
    expect(page.get_by_role("heading", name="Password")).to_be_hidden()
    expect(page.get_by_role("heading", name="Second factor")).to_be_hidden()


@pytest.mark.system
def test_whoever_came_from_the_documentation_is_back_there_after_a_login_with_a_provider(
    person: Watched, site: LiveSite
) -> None:
    page = person.open("/docs#/events")
    page.get_by_role("link", name="Log in").click()
    page.get_by_role("button", name=f"Log in with {PROVIDER}").click()
    page.get_by_role("button", name="u-1").click()
    expect(page).to_have_url(f"{site.url}/docs#/events")
    expect(page.get_by_role("heading", level=1)).to_have_text("Events")
    assert page.evaluate(KEPT) == {"local": ["corral.csrf"], "session": []}


@pytest.mark.system
def test_a_login_leads_nowhere_else_than_to_the_documentation(person: Watched, site: LiveSite) -> None:
    user = site.user("ivy")
    page = person.open("/login?back=/docs/..")
    fill_login(page, user)
    for back in (
        "https://evil.example.org/docs",
        "//evil.example.org/docs",
        "\\\\evil.example.org",
        "javascript:alert(1)//docs",
        "/docs/../api/v1/auth/me",
        "/docs?x=1",
        "/docs#/a b",
        "/docs\n",
        "/api/v1/openapi.json",
    ):
        expect(page.get_by_role("heading", level=1)).to_have_text(user)
        assert page.url.startswith(f"{site.url}/login?back=")
        page.goto(f"{site.url}/login?back={quote(back, safe='')}")
    expect(page.get_by_role("heading", level=1)).to_have_text(user)
    page.goto(f"{site.url}/login?back={quote('/docs#/schemas/NewGroup', safe='')}")
    expect(page).to_have_url(f"{site.url}/docs#/schemas/NewGroup")


@pytest.mark.system
def test_a_link_with_a_fragment_logs_nobody_in_or_out_and_says_nothing_of_its_own(
    person: Watched, site: LiveSite
) -> None:
    user = site.user("fay")
    page = person.open("/login#error=X&message=call+this+number&hint=now")
    expect_error(page, "has begun no login")
    assert "number" not in page.locator("body").inner_text()
    fill_login(page, user)
    expect_account(page, user)
    page.goto(f"{site.url}/login#aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
    expect_error(page, "has begun no login")
    expect_account(page, user)
    assert page.url == f"{site.url}/login"


def test_a_login_with_the_provider_begins_where_the_provider_sends_people_back(
    person: Watched, site: LiveSite
) -> None:
    page = person.context.new_page()
    page.goto(site.url.replace("127.0.0.1", "localhost") + "/login")
    page.get_by_role("button", name="Log in with").click()
    expect(page).to_have_url(f"{site.url}/login")


@pytest.mark.system
def test_a_session_that_was_ended_elsewhere_leads_to_the_login_at_the_next_action(
    person: Watched, browser: Browser, site: LiveSite
) -> None:
    user = site.user("gwen")
    page = person.open()
    fill_login(page, user)
    expect_account(page, user)
    with watched(browser, site.url) as elsewhere:
        second = elsewhere.open()
        fill_login(second, user)
        rows = second.locator("#sessions li")
        expect(rows).to_have_count(2)
        expect(rows.filter(has_text="this session")).to_have_count(1)
        rows.filter(has_not_text="this session").get_by_role("button", name="End").click()
        expect(rows).to_have_count(1)
        page.get_by_text("Change the password").first.click()
        form = page.locator("#own-password form")
        field(form, "Present password").fill(PASSWORD)
        for label in ("New password", "New password, once more"):
            field(form, label).fill(OTHER)
        form.get_by_role("button").click()
        expect_login(page)
        expect_error(page, "The session is not known here, or was ended")
        rows.get_by_role("button", name="End").click()
        expect_login(second)


def test_by_plain_http_from_elsewhere_there_is_a_reason_and_no_form(browser: Browser, site: LiveSite) -> None:
    """A proxy that is not trusted has passed it on."""
    with watched(browser, site.url, extra_http_headers={"X-Forwarded-For": "203.0.113.9"}) as stranger:
        for path in ("/login", "/first-admin#code"):
            page = stranger.open(path)
            expect_error(page, "Nobody can log in over plain HTTP from another host")
            expect(page.locator("input:visible")).to_have_count(0)


def test_pages_fit_on_a_phone(browser: Browser, site: LiveSite) -> None:
    user = site.user("hope")
    with watched(browser, site.url, viewport={"width": 390, "height": 844}) as phone:
        page = phone.open()
        widths = [page.evaluate("document.documentElement.scrollWidth")]
        fill_login(page, user)
        expect_account(page, user)
        for text in ("Change the password", "Set up a second factor"):
            page.get_by_text(text).first.click()
        widths.append(page.evaluate("document.documentElement.scrollWidth"))
        small = "[...document.querySelectorAll('button, input, summary')].filter((each) => each.checkVisibility())"
        low = page.evaluate(f"{small}.filter((each) => each.offsetHeight < 44).map((each) => each.outerHTML)")
    assert widths == [390, 390]
    assert low == []
