"""Pages of the dashboard over real sockets: what is served, to whom, and what browsers are told about it."""

from __future__ import annotations

import gzip
import hashlib
import html
import pathlib
import re

import httpx
from http_rig import Rig, http_rig
from raw_client import raw_call

from corral.controller.http.messages.responses import SECURITY_HEADERS
from corral.controller.http.pipeline.browser_checks import AllowedHosts, BrowserChecks
from corral.domain.permissions import Role
from corral.testing.cluster import LocalCluster
from tests.component.accounts.oidc_logins import section_for

PAGES = ("/login", "/first-admin", "/docs")
ASSET = re.compile(r'"(/ui/assets/[^"]+)"')
IMPORTS = re.compile(r'from "\./([^"]+)"')
FROM_ELSEWHERE = {"X-Forwarded-For": "203.0.113.9"}
"""A proxy that is not trusted has passed it on: by plain HTTP, from nobody knows where."""


async def assets(client: httpx.AsyncClient) -> list[str]:
    texts = [(await client.get(path)).text for path in ("/login", "/docs")]
    return list(dict.fromkeys(path for text in texts for path in ASSET.findall(text)))


def policy(origin: str, sockets: str) -> str:
    own = f"{origin}/ui/assets/"
    return (
        f"default-src 'none'; script-src {own}; worker-src {own}; style-src {own}; font-src {own}; img-src {own} data:; "
        f"connect-src 'self' {sockets}; frame-src {origin}/pages-content/; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html corral-worker-url"
    )


async def test_pages_and_their_files_are_there_for_everybody(rig: Rig) -> None:
    async with rig.client("") as anybody:
        for path in PAGES:
            page = await anybody.get(path)
            assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
            assert page.text.startswith("<!doctype html>")
        found = await assets(anybody)
        kinds = {(await anybody.get(path)).headers["content-type"] for path in found}
        root = await anybody.get("/")
    assert kinds == {"text/css; charset=utf-8", "text/javascript; charset=utf-8"}
    assert (root.status_code, root.headers["location"]) == (303, "/login")


async def test_the_documentation_is_there_for_everybody_and_the_document_for_whoever_is_known(
    rig: Rig,
) -> None:
    _, viewer = await rig.token(Role.VIEWER)
    async with rig.client("") as anybody, rig.client(viewer) as known:
        page = await anybody.get("/docs")
        refused = await anybody.get("/api/v1/openapi.json")
        read = await known.get("/api/v1/openapi.json")
    assert page.status_code == 200
    assert "/api/v1/groups" not in page.text, "it holds nothing of the document"
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "UNAUTHENTICATED")
    assert "/api/v1/groups" in read.json()["paths"]


async def test_files_import_one_another_by_the_names_that_they_are_served_under(rig: Rig) -> None:
    """So that each of them can be kept for ever, and a page never runs with files of another version."""
    async with rig.client("") as anybody:
        named = await assets(anybody)
        texts = {path: (await anybody.get(path)).text for path in named}
        imported = {name for text in texts.values() for name in IMPORTS.findall(text)}
        assert len(imported) > 5
        assert imported <= {path.rpartition("/")[2] for path in named}, "a page names all that it will need"
        for path, text in texts.items():
            assert hashlib.sha256(text.encode()).hexdigest()[:16] in path


async def test_pages_are_there_while_this_controller_does_not_lead(rig: Rig) -> None:
    rig.leads = False
    async with rig.client("") as anybody:
        paths = ["/", *PAGES, *await assets(anybody)]
        assert {(await anybody.get(path)).status_code for path in paths} == {200, 303}
        assert (await anybody.post("/api/v1/auth/login", json={})).status_code == 503


async def test_each_page_and_file_has_the_policy_of_the_host_that_it_was_asked_under(rig: Rig) -> None:
    port = rig.server.address.port
    async with rig.client("") as anybody:
        for host in (f"127.0.0.1:{port}", "localhost:8480", "localhost", "LOCALHOST.:1"):
            for path in (*PAGES, *await assets(anybody)):
                answer = await anybody.get(path, headers={"Host": host})
                expected = policy(f"http://{host}", f"ws://{host}")
                assert answer.headers.get_list("content-security-policy") == [expected]


async def test_a_policy_cannot_name_an_ipv6_address_and_has_the_own_origin_instead(rig: Rig) -> None:
    async with rig.client("") as anybody:
        answer = await anybody.get("/login", headers={"Host": "[::1]:8480"})
    found = answer.headers["content-security-policy"]
    assert "script-src 'self'; " in found
    assert "connect-src 'self'; " in found
    assert "[" not in found


async def test_the_policy_has_the_scheme_that_a_trusted_proxy_tells(cluster: LocalCluster) -> None:
    controller = await cluster.controller(http__trusted_proxies=["127.0.0.1"])
    headers = {**FROM_ELSEWHERE, "X-Forwarded-Proto": "https", "Host": "localhost"}
    async with httpx.AsyncClient(base_url=controller.url, verify=False) as browser:
        answer = await browser.get("/login", headers=headers)
    assert answer.headers["content-security-policy"] == policy("https://localhost", "wss://localhost")
    assert 'name="corral-refusal" content=""' in answer.text


async def test_pages_cannot_be_framed_sniffed_or_opened_by_others(rig: Rig) -> None:
    async with rig.client("") as anybody:
        for path in (*PAGES, *await assets(anybody)):
            headers = (await anybody.get(path)).headers
            assert headers["cross-origin-opener-policy"] == "same-origin"
            for name, value in SECURITY_HEADERS:
                if name not in (b"cache-control", b"content-security-policy"):
                    assert headers.get_list(name.decode()) == [value.decode()]
            assert "set-cookie" not in headers


async def test_pages_are_not_there_under_other_hosts(rig: Rig) -> None:
    async with rig.client("") as anybody:
        paths = ["/", *PAGES, *await assets(anybody), "/ui/assets/none-such"]
    for host in ["evil.example.org", "", "localhost:x", "a@localhost", "localhost;script-src *"]:
        for path in paths:
            async with raw_call(rig, "GET", path, Host=host) as call:
                status, headers, body = await call.answer()
            assert (status, body["error"]["code"]) == (421, "MISDIRECTED_REQUEST"), host
            assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'", host


async def test_pages_are_there_under_each_host_that_is_configured(data: pathlib.Path) -> None:
    browsers = BrowserChecks(AllowedHosts(["corral.example.org"]))
    async with http_rig(data, browsers=browsers) as rig, rig.client("") as anybody:
        answer = await anybody.get("/login", headers={"Host": "corral.example.org"})
        assert answer.status_code == 200
        assert (
            "script-src http://corral.example.org/ui/assets/; " in answer.headers["content-security-policy"]
        )
        assert (await anybody.get("/login")).status_code == 421


async def test_head_tells_the_same_without_the_content(rig: Rig) -> None:
    async with rig.client("") as anybody:
        for path in (*PAGES, *await assets(anybody)):
            got, head = await anybody.get(path), await anybody.head(path)
            assert (head.status_code, head.content) == (200, b"")
            for name in (
                "content-length",
                "etag",
                "cache-control",
                "content-security-policy",
                "content-type",
            ):
                assert head.headers[name] == got.headers[name]
        refused = await anybody.post("/login", json={})
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD, OPTIONS")


async def test_a_page_is_asked_for_again_and_an_asset_is_kept_for_ever(rig: Rig) -> None:
    async with rig.client("") as browser:
        for path in (*PAGES, *await assets(browser)):
            first = await browser.get(path)
            kept = path.startswith("/ui/assets/")
            expected = "public, max-age=31536000, immutable" if kept else "no-cache"
            assert first.headers["cache-control"] == expected
            again = await browser.get(path, headers={"If-None-Match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
            changed = await browser.get(path, headers={"If-None-Match": '"something-else"'})
            assert changed.status_code == 200


async def test_who_accepts_gzip_gets_the_same_in_fewer_bytes(rig: Rig) -> None:
    async with rig.client("") as browser:
        for path in (*PAGES, *await assets(browser)):
            plain = await browser.get(path, headers={"Accept-Encoding": "identity"})
            assert "content-encoding" not in plain.headers
            async with browser.stream("GET", path, headers={"Accept-Encoding": "br, gzip;q=0.5"}) as stream:
                raw = b"".join([piece async for piece in stream.aiter_raw()])
                assert stream.headers["content-encoding"] == "gzip"
            assert gzip.decompress(raw) == plain.content
            assert len(raw) == int(stream.headers["content-length"]) < len(plain.content) * 2 / 3
            assert stream.headers["etag"] != plain.headers["etag"]
            assert plain.headers["vary"] == stream.headers["vary"] == "Accept-Encoding"
            never = await browser.get(path, headers={"Accept-Encoding": "gzip;q=0, *"})
            assert "content-encoding" not in never.headers


async def test_no_other_file_is_served(rig: Rig) -> None:
    for name in [
        "account.js",
        "account.html",
        "docs.js",
        "docs.html",
        "..%2Faccount.html",
        "%2e%2e/site/account.html",
        "../../../app.py",
        "%2Fetc%2Fpasswd",
        "account.js%00",
        "",
        "x" * 5000,
        "ACCOUNT.CSS",
        "account-0000000000000000.js",
    ]:
        async with raw_call(rig, "GET", f"/ui/assets/{name}", Host="localhost") as call:
            status, headers, body = await call.answer()
        assert (status, body["error"]["code"]) == (404, "NOT_FOUND"), name
        assert headers["cache-control"] == "no-store", name


async def test_parameters_of_a_page_are_left_to_the_page(rig: Rig) -> None:
    async with rig.client("") as anybody:
        assert (await anybody.get("/login?from=mail&from=twice")).status_code == 200


async def test_a_page_by_plain_http_from_elsewhere_says_that_nobody_can_log_in(rig: Rig) -> None:
    async with rig.client("") as stranger:
        refused = await stranger.post("/api/v1/auth/login", json={}, headers=FROM_ELSEWHERE)
        error = refused.json()["error"]
        assert error["code"] == "INSECURE_LOGIN"
        for path in PAGES:
            plain, refusing = await stranger.get(path), await stranger.get(path, headers=FROM_ELSEWHERE)
            assert 'name="corral-refusal" content=""' in plain.text
            told = html.unescape(refusing.text)
            assert f'name="corral-refusal" content="{error["message"]}"' in told
            assert f'name="corral-refusal-hint" content="{error["hint"]}"' in told
            assert refusing.headers["etag"] != plain.headers["etag"]


async def test_a_configuration_that_allows_it_allows_it_for_all_but_the_first_administrator(
    data: pathlib.Path,
) -> None:
    async with http_rig(data, allow_insecure_login=True) as rig, rig.client("") as stranger:
        login, first, docs = [await stranger.get(path, headers=FROM_ELSEWHERE) for path in PAGES]
        assert 'name="corral-refusal" content=""' in login.text
        assert 'name="corral-refusal" content=""' in docs.text
        assert 'name="corral-refusal" content="nobody' in first.text


async def test_the_name_of_the_provider_is_text_and_nothing_else(data: pathlib.Path) -> None:
    section = section_for(
        "https://id.example.org",
        data,
        display_name='"><script>alert(1)</script>&',
    )
    async with (
        http_rig(data, oidc=section, public_url="http://127.0.0.1:1") as rig,
        rig.client("") as anybody,
    ):
        page = (await anybody.get("/login")).text
    assert 'name="corral-provider" content="&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;"' in page
    assert 'name="corral-provider-origin" content="http://127.0.0.1:1"' in page
    assert page.count("<script") == 1


def test_the_site_has_no_inline_script_or_style_and_nothing_of_others() -> None:
    folder = pathlib.Path(__file__).parents[3] / "src/corral/controller/dashboard/site"
    for path in folder.glob("*.html"):
        assert not re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=", path.read_text()), (
            path.name
        )
    for path in folder.iterdir():
        text = path.read_text()
        assert not re.findall(r"https?://|innerHTML|insertAdjacentHTML|document\.write|eval\(", text), (
            path.name
        )
