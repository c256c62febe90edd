"""Pages and routes of modules: files from their archives, and whatever else they answer themselves."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from corral.controller.http.authentication import authorise
from corral.controller.http.call import Call, NoQuery, Query
from corral.controller.http.module_openapi import describe_module
from corral.controller.http.openapi import OpenApiShape
from corral.controller.http.resources.module_schemas import ONE
from corral.controller.http.resources.modules import the_module
from corral.controller.http.responses import Answer
from corral.controller.http.route_table import Asset, Read, Relay, Route
from corral.controller.modules.module_service import Modules
from corral.controller.state.cluster_state import ClusterState
from corral.domain.module_manifest import FrontendPart
from corral.domain.permissions import Permission
from corral.errors import Code, Rejected

_KEPT: Final = b"private, max-age=31536000, immutable"
_ASKED_AGAIN: Final = b"private, no-cache"
_POLICY: Final = (
    b"sandbox allow-scripts allow-forms; default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    b"img-src 'self' data:; font-src 'self'; connect-src 'none'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'self'"
)
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")


class AssetQuery(Query, frozen=True, kw_only=True):
    v: (
        Annotated[
            str, msgspec.Meta(max_length=128, description="Hash of the content, or of the archive: keep it.")
        ]
        | None
    ) = None


async def get_asset(state: ClusterState, modules: Modules, call: Call[None, AssetQuery]) -> Answer:
    record = the_module(state, call.path).record
    if record.manifest.frontend is None:
        raise Rejected(Code.NOT_FOUND, f"module '{record.id}' has no pages")
    for permission in _needed(record.manifest.frontend):
        authorise(call.caller, permission)
    file = await modules.read_frontend(record.id, call.path["path"])
    same = call.query.v is not None and call.query.v in (file.etag, record.sha256)
    return Answer(
        body=file.content,
        content_type=file.content_type.encode("latin-1"),
        headers=(
            (b"etag", f'"{file.etag}"'.encode()),
            (b"cache-control", _KEPT if same else _ASKED_AGAIN),
            (b"content-security-policy", _POLICY),
            (b"x-frame-options", b"SAMEORIGIN"),
        ),
    )


def _needed(part: FrontendPart) -> list[Permission]:
    try:
        return [Permission(name) for name in part.permissions]
    except ValueError:
        raise Rejected(Code.FORBIDDEN, "the page asks for a permission that does not exist") from None


async def get_description(state: ClusterState, modules: Modules, call: Call[None, NoQuery]) -> OpenApiShape:
    record = the_module(state, call.path).record
    return describe_module(record, modules.engine.routes.of(record.id))


def _relay(method: str) -> Relay:
    return Relay(
        method=method,
        path=f"{ONE}/{{path}}",
        permission=Permission.MODULES_READ,
        summary="A route of a module, which may ask for more permission",
        rest=True,
    )


_LAST: Final[tuple[Route, ...]] = tuple(_relay(method) for method in _METHODS)

ROUTES: Final[tuple[Route, ...]] = (
    Asset(
        method="GET",
        path=f"{ONE}/frontend/{{path}}",
        permission=Permission.MODULES_READ,
        summary="A file of a module's pages",
        query=AssetQuery,
        handler=get_asset,
        rest=True,
    ),
    Read(
        method="GET",
        path=f"{ONE}/openapi.json",
        permission=Permission.MODULES_READ,
        summary="The routes that a module has at present",
        response=OpenApiShape,
        handler=get_description,
    ),
    *_LAST,
)
"""The relays match everything beneath a module: they come last."""
