"""The documentation of the API in a real browser."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from described_api import MARKUP, TEXT
from docs_pages import DOCUMENT, expect_entry, heading, log_in, open_docs
from live_site import LiveSite
from playwright.sync_api import Browser, Page, expect
from watched_pages import Watched, watched

CONTRASTS = (pathlib.Path(__file__).parent / "contrasts.js").read_text()
UNNAMED = """[...document.querySelectorAll("a, button, input, summary, [role=region], nav, aside")]
  .filter((each) => each.checkVisibility() && !(each.ariaLabel || each.labels?.length || each.textContent.trim()))
  .map((each) => each.outerHTML)"""
PLACES = (
    "#/",
    "#/operations/post_groups",
    "#/operations/get_instances_id_console_ws",
    "#/operations/post_modules",
    "#/schemas/GroupShape",
    "#/events",
    "#/events/INSTANCE_RUNNING",
    "#/nothing/here",
)


@pytest.fixture(scope="module")
def issuer() -> str:
    """Nobody logs in with a provider here."""
    return ""


@pytest.fixture(scope="module")
def user(site: LiveSite) -> str:
    return site.user("ada")


@pytest.fixture(scope="module")
def logged_in(browser: Browser, site: LiveSite, user: str) -> Any:
    """What the browser of somebody keeps who has logged in: once for all tests, for logins are limited."""
    with watched(browser, site.url) as person:
        page = person.open("/login")
        log_in(page, user)
        expect(heading(page)).to_have_text(user)
        return person.context.storage_state()


@pytest.fixture
def reader(browser: Browser, site: LiveSite, logged_in: Any) -> Iterator[Watched]:
    """Somebody who is logged in."""
    with watched(browser, site.url, storage_state=logged_in) as made:
        yield made


def open_described(reader: Watched, place: str = "") -> Page:
    """The page with another document than the controller's."""
    answer = {"body": TEXT, "content_type": "application/json"}
    reader.context.route(f"**{DOCUMENT}", lambda route: route.fulfill(**answer))
    return open_docs(reader, place)


@pytest.mark.system
def test_a_session_that_is_over_is_told(reader: Watched) -> None:
    page = open_docs(reader)
    page.evaluate("localStorage.setItem('corral.csrf', 'x'.repeat(52))")
    page.reload()
    expect_entry(page)
    expect(page.locator("#entry > .error")).to_contain_text(re.compile("session|log in", re.IGNORECASE))


def test_a_refusal_that_may_pass_is_told_and_tried_again(reader: Watched) -> None:
    error = {"code": "NOT_LEADER", "message": f"not now {MARKUP}", "status": 409, "hint": "wait"}
    page = open_docs(reader)
    page.route(f"**{DOCUMENT}", lambda route: route.fulfill(status=409, body=json.dumps({"error": error})))
    page.reload()
    expect(page.locator("#failure .error")).to_contain_text(MARKUP)
    page.unroute(f"**{DOCUMENT}")
    page.get_by_role("button", name="Try again").click()
    expect(heading(page)).to_have_text("Corral API")


def test_what_is_looked_for_is_found_by_path_word_id_and_permission(reader: Watched) -> None:
    page = open_docs(reader)
    field, links = page.get_by_label("Filter"), page.locator("#list a")
    page.keyboard.press("/")
    expect(field).to_be_focused()
    for text in (
        "/GROUPS/{name}/scale",
        "scale group post",
        "post_groups_name_scale",
        "groups.manage /scale",
    ):
        field.fill(text)
        expect(links.first).to_have_attribute("href", "#/operations/post_groups_name_scale")
    field.fill("instance_running")
    expect(page.locator("#found")).to_have_text(re.compile("[1-9] found"))
    expect(page.get_by_role("link", name="INSTANCE_RUNNING")).to_be_visible()
    field.fill("no such thing at all")
    expect(page.locator("#found")).to_have_text("Nothing found")
    expect(links).to_have_count(0)
    page.keyboard.press("Escape")
    expect(field).to_have_value("")
    expect(page.locator("#list summary").first).to_be_visible()


def test_it_is_used_by_keys_alone(reader: Watched) -> None:
    page = open_docs(reader)
    page.keyboard.press("/")
    page.keyboard.type("crashes/{id}")
    page.keyboard.press("ArrowDown")
    expect(page.locator("#list summary").first).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#list a").first).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#/operations/get_crashes_id$"))
    expect(heading(page)).to_be_focused()
    expect(page.locator("#list a[aria-current=page]")).to_have_count(1)
    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("Filter")).to_be_focused()
    page.keyboard.press("Enter")
    expect(heading(page)).to_be_focused()
    page.evaluate("document.activeElement.blur()")
    page.locator("#skip").focus()
    page.keyboard.press("Enter")
    expect(heading(page)).to_be_focused()
    assert page.url.endswith("#/operations/get_crashes_id"), "the place stays in the address"


@pytest.mark.system
def test_every_operation_schema_and_event_has_an_address_that_shows_it(
    reader: Watched, site: LiveSite
) -> None:
    """All of the real document: none makes the page fail."""
    page = open_docs(reader)
    document = site.call("GET", DOCUMENT)
    operations = [each for path in document["paths"].values() for each in path.values()]
    titles = {f"#/operations/{each['operationId']}": each["summary"].replace("`", "") for each in operations}
    titles |= {f"#/schemas/{name}": name for name in document["components"]["schemas"]}
    mapping = document["components"]["schemas"]["EventFrame"]["discriminator"]["mapping"]
    titles |= {f"#/events/{type}": type for type in mapping}
    assert len(titles) > 800
    shown = page.evaluate(
        """async (places) => {
          const shown = {};
          for (const place of places) {
            const changed = new Promise((resolve) => addEventListener("hashchange", resolve, { once: true }));
            location.hash = place;
            await changed;
            for (const each of document.querySelectorAll("#view details")) {
              each.open = true;
              each.dispatchEvent(new Event("toggle"));
            }
            shown[place] = document.querySelector("#view h1").textContent;
          }
          return shown;
        }""",
        list(titles),
    )
    assert shown == titles


def test_an_operation_says_all_that_its_caller_needs(reader: Watched, site: LiveSite) -> None:
    page = open_docs(reader, "#/operations/patch_groups_name")
    expect(page).to_have_title(re.compile(r" · Corral API$"))
    expect(page.locator(".address")).to_contain_text("/api/v1/groups/{name}")
    expect(page.locator(".access")).to_contain_text("groups.manage")
    expect(page.locator(".access")).to_contain_text("a session or an API token")
    for title in ("Parameters", "Request body", "Answers", "Refusals"):
        expect(page.get_by_role("heading", name=title, level=2)).to_be_visible()
    parameter = page.locator(".fields > li").filter(has=page.get_by_text("If-Match", exact=True))
    expect(parameter).to_contain_text("Only if the revision is still this ETag.")
    expect(parameter).to_contain_text(r'^(\*|"[0-9]+")$')
    expect(page.get_by_text("application/merge-patch+json").first).to_be_visible()
    curl = page.get_by_role("region", name="curl")
    expect(curl).to_contain_text(f"{site.url}/api/v1/groups/")
    expect(curl).to_contain_text("-X PATCH")
    expect(curl).to_contain_text("-H @data/admin.header")
    page.get_by_role("button", name="Copy: path").click()
    expect(page.get_by_text("Copied")).to_be_visible()
    page.get_by_label("Filter").focus()
    page.keyboard.press("Control+V")
    expect(page.get_by_label("Filter")).to_have_value("/api/v1/groups/{name}")


def test_the_overview_keeps_the_token_off_command_lines_and_shows_a_refusal_that_there_is(
    reader: Watched, site: LiveSite
) -> None:
    page = open_docs(reader)
    curl = page.get_by_role("region", name="curl")
    expect(curl).to_contain_text("(umask 077; printf 'Authorization: Bearer %s\\n'")
    expect(curl).to_contain_text(f"curl -H @data/admin.header '{site.url}/api/v1/auth/me'")
    shown = page.get_by_role("region", name="Body of a refusal")
    expect(shown).to_contain_text("node 'web1' does not exist")
    for field in ("field", "digest", "errors"):
        expect(shown).not_to_contain_text(f'"{field}"')


def test_bounds_defaults_and_choices_of_parameters_are_shown(reader: Watched) -> None:
    page = open_docs(reader, "#/operations/get_groups")
    rows = page.locator(".fields > li")
    limit = rows.filter(has=page.locator("code.name", has_text=re.compile("^limit$")))
    expect(limit).to_contain_text("1 to 5000")
    expect(limit).to_contain_text("Default 100")
    view = rows.filter(has=page.locator("code.name", has_text=re.compile("^view$")))
    expect(view).to_contain_text("One of full summary")
    page.goto(re.sub("#.*", "#/operations/get_instances_id_console_ws", page.url))
    after = rows.filter(has=page.locator("code.name", has_text=re.compile("^after$")))
    expect(after).to_contain_text("0 to 2^63 − 1")
    expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    expect(page.get_by_role("region", name="curl")).to_have_count(0)


def test_a_tree_is_built_as_far_as_it_is_opened(reader: Watched) -> None:
    page = open_docs(reader, "#/operations/get_groups")
    deep = page.locator(".fields .fields")
    expect(deep).to_have_count(0)
    page.get_by_text("2 fields", exact=True).first.click()
    expect(deep).to_have_count(1)
    expect(deep.locator("code.name").first).to_have_text("items")
    deep.get_by_role("link", name="GroupShape").click()
    expect(heading(page)).to_have_text("GroupShape")
    used = page.locator("section").filter(has=page.get_by_role("heading", name="Used by"))
    expect(used.get_by_role("link", name="Show a group")).to_be_visible()
    page.go_back()
    expect(heading(page)).to_have_text("List groups")


def test_a_long_answer_is_folded_and_a_long_body_is_not(reader: Watched) -> None:
    page = open_docs(reader, "#/operations/post_groups")
    answer = page.locator(".answer").filter(has=page.get_by_role("link", name="GroupShape"))
    expect(answer.locator("code.name")).to_have_count(0)
    answer.locator("summary", has_text="fields").click()
    expect(answer.locator("code.name").first).to_have_text("name")
    body = page.locator("section").filter(has=page.get_by_role("heading", name="Request body"))
    expect(body.locator("code.name").first).to_be_visible()


def test_events_are_listed_with_their_data(reader: Watched) -> None:
    page = open_docs(reader, "#/events")
    page.get_by_role("row").get_by_role("link", name="INSTANCE_CRASHED").click()
    expect(heading(page)).to_have_text("INSTANCE_CRASHED")
    expect(page.get_by_role("heading", name="Data")).to_be_visible()
    expect(page.locator("code.name").first).to_have_text("group")
    expect(page.get_by_role("region", name="Frame")).to_contain_text('"type": "INSTANCE_CRASHED"')


def test_the_document_is_saved_as_the_controller_sends_it(reader: Watched, site: LiveSite) -> None:
    page = open_docs(reader)
    with page.expect_download() as saved:
        page.get_by_role("button", name="Save openapi.json").click()
    text = pathlib.Path(saved.value.path()).read_text()
    assert json.loads(text) == site.call("GET", DOCUMENT), "numbers of 64 bits included"


def test_texts_of_a_document_are_texts_and_never_markup(reader: Watched) -> None:
    page = open_described(reader, "#/operations/put_things_id")
    expect(heading(page)).to_have_text(f"Change {MARKUP}")
    expect(page.locator(".text").first).to_contain_text("a□b□c")
    page.evaluate("document.querySelectorAll('#list details').forEach((each) => { each.open = true; })")
    for place, title in (
        ("#/", "Corral API"),
        (f"#/schemas/{quote(MARKUP, safe='')}", MARKUP),
        ("#/schemas/__proto__", "__proto__"),
        ("#/schemas/Missing", "Missing"),
        ("#/schemas/constructor", "Not found"),
        ("#/schemas/%E0%A4%A", "Not found"),
    ):
        page.evaluate("(place) => { location.hash = place }", place)
        expect(heading(page)).to_have_text(title)
    expect(page.locator("#list")).to_contain_text(MARKUP)
    expect(page.locator("img, #frame script")).to_have_count(0)
    assert "harmed" not in page.title().replace(MARKUP, "")


def test_a_schema_that_contains_itself_ends(reader: Watched) -> None:
    page = open_described(reader, "#/schemas/Whole")
    expect(page.get_by_text("Contains itself:")).to_have_count(2)
    page.locator("summary", has_text="variants").click()
    expect(page.get_by_text("Contains itself:")).to_have_count(3)
    page.evaluate("location.hash = '#/schemas/Endless'")
    expect(heading(page)).to_have_text("Endless")
    expect(page.get_by_role("region", name="Example")).to_have_text(re.compile(r"^[\[\]\s]+$"))


def test_what_operations_share_is_shown_with_each_of_them(reader: Watched) -> None:
    page = open_described(reader, "#/operations/put_things_id")
    rows = page.get_by_role("row")
    expect(rows.filter(has_text="404")).to_contain_text("NOT_FOUND: there is no such thing")
    expect(rows.filter(has_text="404")).to_contain_text("Retry-After")
    expect(rows.filter(has_text="409")).to_contain_text("CONFLICT GONE")
    many = page.locator(".fields > li").filter(has=page.locator("code.name", has_text="many"))
    expect(many).to_contain_text("at most 3 items")
    expect(many).to_contain_text("One of x y")
    expect(many).to_contain_text("deprecated")
    expect(page.locator(".links").get_by_role("link")).to_have_attribute("href", "#/operations/put_things_id")
    curl = page.get_by_role("region", name="curl")
    expect(curl).to_contain_text("/api/v1/things/a'\\''b%20c'")
    expect(curl).to_contain_text("""-d '{"given":"by the document, isn'\\''t it"}'""")
    expect(page.get_by_role("region", name="Request body", exact=True)).to_contain_text("by the document")


@pytest.mark.system
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_it_can_be_read_on_phones_and_desks_by_day_and_night(
    browser: Browser, site: LiveSite, logged_in: Any, width: int, scheme: str
) -> None:
    options: dict[str, Any] = {
        "storage_state": logged_in,
        "viewport": {"width": width, "height": 844},
        "color_scheme": scheme,
        "reduced_motion": "reduce",
    }
    with watched(browser, site.url, **options) as reader:
        page = open_docs(reader)
        for place in PLACES:
            page.evaluate("(place) => { location.hash = place }", place)
            expect(page.locator("h1:visible")).to_have_count(1)
            for each in page.locator("#view details.inside > summary").all()[:3]:
                each.click()
            assert page.evaluate("document.documentElement.scrollWidth") == width, place
            assert page.evaluate(CONTRASTS) == [], place
            assert page.evaluate(UNNAMED) == [], place


@pytest.mark.system
def test_on_a_phone_the_contents_open_and_close_and_fingers_hit_what_they_aim_at(
    browser: Browser, site: LiveSite, logged_in: Any
) -> None:
    options: dict[str, Any] = {"storage_state": logged_in, "viewport": {"width": 390, "height": 844}}
    with watched(browser, site.url, has_touch=True, **options) as phone:
        page = open_docs(phone, "#/operations/get_groups")
        menu, contents = page.get_by_role("button", name="Contents"), page.get_by_role("navigation")
        expect(contents).to_be_hidden()
        menu.tap()
        expect(menu).to_have_attribute("aria-expanded", "true")
        expect(contents).to_be_visible()
        small = "[...document.querySelectorAll('button, input, summary, nav a')].filter((each) => each.checkVisibility())"
        low = page.evaluate(f"{small}.filter((each) => each.offsetHeight < 44).map((each) => each.outerHTML)")
        assert low == []
        page.keyboard.press("Escape")
        expect(contents).to_be_hidden()
        expect(menu).to_be_focused()
        menu.tap()
        contents.get_by_role("link", name="Show a group").first.tap()
        expect(contents).to_be_hidden()
        expect(heading(page)).to_have_text("Show a group")
        expect(heading(page)).to_be_focused()
