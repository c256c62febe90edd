"""Pages of the dashboard: login, first administrator, documentation of the API, and the assets of all."""

from __future__ import annotations

from typing import Final

from corral.controller.dashboard.content_policy import content_policy
from corral.controller.dashboard.site_files import ACCOUNT, ASSETS_PATH, DOCS, SiteFile
from corral.controller.http.messages.compression import accepts_gzip
from corral.controller.http.messages.request import HttpRequest
from corral.controller.http.messages.responses import ApiResponse, Headers
from corral.controller.http.pipeline.api_context import ProcessContext
from corral.controller.http.pipeline.authentication import require_private
from corral.controller.http.pipeline.route_table import Page, Route
from corral.controller.http.resources.accounts.login import LOGIN_PAGE
from corral.errors import Code, Rejected

_KEPT: Final = b"public, max-age=31536000, immutable"
_ASKED_AGAIN: Final = b"no-cache"
_DOCS_PAGE: Final = "/docs"


async def show_root(setting: ProcessContext, request: HttpRequest) -> ApiResponse:
    del setting, request
    return ApiResponse(status=303, headers=((b"location", LOGIN_PAGE.encode()),))


async def show_login(setting: ProcessContext, request: HttpRequest) -> ApiResponse:
    return _page(ACCOUNT, setting, request, insecure=setting.allow_insecure_login)


async def show_first_admin(setting: ProcessContext, request: HttpRequest) -> ApiResponse:
    return _page(ACCOUNT, setting, request, insecure=False)


async def show_docs(setting: ProcessContext, request: HttpRequest) -> ApiResponse:
    """The page alone: the document that it shows is read with the credentials of whoever looks at it."""
    return _page(DOCS, setting, request, insecure=setting.allow_insecure_login)


async def get_asset(setting: ProcessContext, request: HttpRequest) -> ApiResponse:
    found = setting.site.assets.get(request.scope["path_params"]["name"])
    if found is None:
        raise Rejected(
            Code.NOT_FOUND,
            "the dashboard has no such file",
            hint="reload the page: it may be of an earlier version",
        )
    return _answer(found, setting, request, cache_control=_KEPT)


def _page(name: str, setting: ProcessContext, request: HttpRequest, *, insecure: bool) -> ApiResponse:
    """The page; one that says so where no login is possible, before anybody has typed a secret."""
    page = setting.site.pages[name]
    try:
        require_private(request, insecure=insecure)
    except Rejected as refused:
        page = setting.site.refusing(name, refused.message, refused.hint or "")
    return _answer(page, setting, request, cache_control=_ASKED_AGAIN)


def _answer(
    file: SiteFile, setting: ProcessContext, request: HttpRequest, *, cache_control: bytes
) -> ApiResponse:
    scheme = "https" if request.is_secure else "http"
    headers: Headers = (
        (b"cache-control", cache_control),
        (b"content-security-policy", content_policy(scheme, setting.browsers.hosts.text_of(request))),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"vary", b"Accept-Encoding"),
    )
    content_type = file.content_type.encode()
    if not accepts_gzip(request.header(b"accept-encoding")):
        headers = ((b"etag", f'"{file.hash}"'.encode()), *headers)
        return ApiResponse(body=file.content, content_type=content_type, headers=headers)
    headers = ((b"etag", f'"{file.hash}-gzip"'.encode()), (b"content-encoding", b"gzip"), *headers)
    return ApiResponse(body=file.gzipped, content_type=content_type, headers=headers)


ROUTES: Final[tuple[Route, ...]] = (
    Page(method="GET", path="/", summary="Lead to the login", handler=show_root),
    Page(
        method="GET", path=LOGIN_PAGE, summary="Page to log in, and of one's own account", handler=show_login
    ),
    Page(
        method="GET", path="/first-admin", summary="Page of the first administrator", handler=show_first_admin
    ),
    Page(method="GET", path=_DOCS_PAGE, summary="Page that documents the API", handler=show_docs),
    Page(method="GET", path=f"{ASSETS_PATH}{{name}}", summary="A file of these pages", handler=get_asset),
)
