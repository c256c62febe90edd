"""A page on another port of the same host gets the cookie of a session, because cookies ignore ports, and can do nothing
with it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator

import httpx
import pytest
from live_site import LOGIN, PASSWORD, LiveSite
from playwright.sync_api import Browser, BrowserContext, Page, expect

TRY = """async ([address, options]) => {
  try {
    const answer = await fetch(address, { credentials: "include", ...options });
    return answer.type === "opaque" ? "opaque" : `${answer.status}: ${await answer.text()}`;
  } catch (error) {
    return error.name;
  }
}"""
"""What a page learns from a request."""


class WebMap(http.server.ThreadingHTTPServer):
    """A web server of somebody else on this host. It keeps the cookies that browsers send to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _MapRequest)
        self.cookies: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _MapRequest(http.server.BaseHTTPRequestHandler):
    server: WebMap

    def do_GET(self) -> None:
        self.server.cookies += self.headers.get_all("Cookie", [])
        body = b"<!doctype html><title>Map</title><p>map</p>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture(scope="module")
def issuer() -> str:
    """Nobody logs in with a provider here."""
    return ""


@pytest.fixture
def web_map() -> Iterator[WebMap]:
    with WebMap() as server:
        thread = threading.Thread(target=server.serve_forever, name="web-map")
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def logged_in(browser: Browser, site: LiveSite) -> Iterator[BrowserContext]:
    """The browser of an operator who is logged in and has the page open."""
    site.user("ada")
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.url}/login")
    page.locator("#login-name").fill("ada")
    page.locator("#login-password").fill(PASSWORD)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("ada")
    yield context
    context.close()


def tried(page: Page, address: str, **options: object) -> str:
    found: str = page.evaluate(TRY, [address, options])
    return found


def test_a_page_on_another_port_has_the_cookie_and_can_neither_read_nor_write_nor_log_in_nor_frame(
    logged_in: BrowserContext, web_map: WebMap, site: LiveSite
) -> None:
    page = logged_in.new_page()
    page.goto(web_map.url)
    (cookie,) = {each for each in web_map.cookies if each.startswith("corral-")}
    sessions = site.sessions("ada")
    me, groups = f"{site.url}/api/v1/auth/me", f"{site.url}/api/v1/groups"

    # Reading: neither the answer nor, by a header of its own, the right to one.
    assert tried(page, me) == "TypeError"
    assert tried(page, me, mode="no-cors") == "opaque"
    assert tried(page, me, headers={"X-Corral-CSRF": "x" * 52}) == "TypeError"

    # Writing, also in the forms that need no permission beforehand.
    group = '{"name": "planted", "command": ["x"]}'
    assert tried(page, groups, method="POST", body=group, mode="no-cors") == "opaque"
    assert (
        tried(page, groups, method="POST", body=group, headers={"Content-Type": "application/json"})
        == "TypeError"
    )
    assert tried(page, f"{site.url}/api/v1/auth/logout", method="POST", mode="no-cors") == "opaque"
    page.evaluate(
        """(address) => {
          const form = Object.assign(document.createElement("form"), { action: address, method: "post", target: "_blank" });
          form.enctype = "text/plain";
          const input = Object.assign(document.createElement("input"), { name: '{"name": "planted", "x": "', value: '"}' });
          form.append(input);
          document.body.append(form);
        }""",
        groups,
    )
    with logged_in.expect_page() as opened:
        page.evaluate("document.forms[0].submit()")
    expect(opened.value.locator("body")).to_contain_text("ORIGIN_REFUSED")
    assert [item["name"] for item in site.call("GET", "/api/v1/groups")["items"]] == []

    # Logging somebody in.
    login = f'{{"name": "ada", "password": "{PASSWORD}"}}'
    assert tried(page, f"{site.url}{LOGIN}", method="POST", body=login, mode="no-cors") == "opaque"
    assert site.sessions("ada") == sessions

    # Framing the page, and holding on to its window.
    page.evaluate(
        """(address) => new Promise((resolve) => {
          const frame = Object.assign(document.createElement("iframe"), { src: address, onload: resolve });
          document.body.append(frame);
        })""",
        f"{site.url}/login",
    )
    assert page.frames[1].url == "chrome-error://chromewebdata/"
    with logged_in.expect_page() as opened:
        page.evaluate("(address) => { window.other = open(address) }", f"{site.url}/login")
    expect(opened.value.get_by_role("heading", level=1)).to_have_text("ada")
    assert page.evaluate("other.closed"), "the two windows know nothing of each other"
    assert opened.value.evaluate("opener === null")

    # The server behind the page has the cookie itself.
    name, _, value = cookie.partition("=")
    for headers in (
        {},
        {"X-Corral-CSRF": ""},
        {"X-Corral-CSRF": value},
        {"Authorization": f"Bearer corral_{value}"},
    ):
        with httpx.Client(headers={"Cookie": f"{name}={value}", **headers}, verify=False) as thief:
            for method, address in (("GET", me), ("GET", groups), ("POST", groups)):
                assert thief.request(method, address).status_code == 401
    assert site.sessions("ada") == sessions


def test_what_the_page_is_not_made_of_does_not_run_on_it(browser: Browser, site: LiveSite) -> None:
    """The policy holds in the browser, whatever else goes wrong on the page."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.url}/login")
    refused = page.evaluate(
        """async () => {
          const refused = [];
          addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
          const next = () => new Promise((resolve) => addEventListener("securitypolicyviolation", resolve, { once: true }));
          const attempts = {
            inline: () => document.head.append(Object.assign(document.createElement("style"), { textContent: "p {}" })),
            markup: () => { try { document.body.innerHTML = "<b>x</b>"; } catch { /* as it should be */ } },
            elsewhere: () => fetch("http://localhost:9/").catch(() => {}),
            module: () => {
              const link = Object.assign(document.createElement("link"), { rel: "stylesheet" });
              link.href = "/api/v1/modules/m/style.css";
              document.head.append(link);
            },
            submit: () => document.querySelector("#login form").submit(),
          };
          for (const attempt of Object.values(attempts)) {
            const seen = next();
            attempt();
            await seen;
          }
          return refused;
        }"""
    )
    context.close()
    assert refused == [
        "style-src-elem",
        "require-trusted-types-for",
        "connect-src",
        "style-src-elem",
        "form-action",
    ]
