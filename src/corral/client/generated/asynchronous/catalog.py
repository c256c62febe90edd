"""Methods of `catalog`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment
from corral.client.async_calls import AsyncCalls
from corral.client.bodies import AsyncSource, Body
from corral.client.generated import models
from corral.client.requests import UPLOAD_SECONDS, Request, entity_tag


class AsyncCatalog:
    """Operations of `/api/v1/catalog`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(
        self, *, limit: int | None = None, cursor: str | None = None, platform: str | None = None
    ) -> models.CatalogPage:
        """List the catalog.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `platform`: Name of the program, such as `paper`.

        `GET /api/v1/catalog`, permission `catalog.read`.
        """
        return await self._calls.call(
            Request[models.CatalogPage](
                "GET",
                "/api/v1/catalog",
                models.CatalogPage,
                query={"limit": limit, "cursor": cursor, "platform": platform},
            )
        )

    def all(self, *, limit: int | None = None, platform: str | None = None) -> AsyncIterator[models.Catalog]:
        """List the catalog: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.
        - `platform`: Name of the program, such as `paper`.

        `GET /api/v1/catalog`, permission `catalog.read`.
        """
        return self._calls.pages(lambda position: self.list(limit=limit, platform=platform, cursor=position))

    async def get(self, platform: str, version: str) -> models.Catalog:
        """Show an entry of the catalog.

        - `platform`: Name of the program, such as `paper`.
        - `version`: Version of the program.

        `GET /api/v1/catalog/{platform}/{version}`, permission `catalog.read`.
        """
        return await self._calls.call(
            Request[models.Catalog](
                "GET", f"/api/v1/catalog/{segment(platform)}/{segment(version)}", models.Catalog
            )
        )

    async def put(
        self,
        platform: str,
        version: str,
        *,
        file: str,
        url: str,
        sha256: str,
        category: models.Category | UnsetType = UNSET,
        config_format: models.ConfigFormat | UnsetType = UNSET,
        description: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Catalog:
        """Enter a program that nodes download from a URL.

        - `platform`: Name of the program, such as `paper`.
        - `version`: Version of the program.
        - `file`: File name that it gets in working directories.
        - `url`: Where nodes download it; empty: it was uploaded, and they get it from the controller.
        - `sha256`: 64 lower-case hex digits.
        - `category`: `server`, `proxy` or empty; groups that name none take it over.
        - `config_format`: Label for the family of configuration files the program reads; a group that names none inherits it.
        - `description`: A word on the program, for people.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PUT /api/v1/catalog/{platform}/{version}`, permission `catalog.manage`.
        """
        return await self._calls.call(
            Request[models.Catalog](
                "PUT",
                f"/api/v1/catalog/{segment(platform)}/{segment(version)}",
                models.Catalog,
                json={
                    "file": file,
                    "url": url,
                    "sha256": sha256,
                    "category": category,
                    "config_format": config_format,
                    "description": description,
                },
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def delete(
        self,
        platform: str,
        version: str,
        *,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Take a program that nothing needs out of the catalog.

        - `platform`: Name of the program, such as `paper`.
        - `version`: Version of the program.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/catalog/{platform}/{version}`, permission `catalog.manage`.
        """
        await self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/catalog/{segment(platform)}/{segment(version)}",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def put_file(
        self,
        platform: str,
        version: str,
        content: AsyncSource,
        *,
        name: str | None = None,
        sha256: str | None = None,
        category: models.Category | None = None,
        config_format: models.ConfigFormat | None = None,
        description: str | None = None,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Catalog:
        """Enter a program by uploading it.

        - `platform`: Name of the program, such as `paper`.
        - `version`: Version of the program.
        - `name`: Its file name.
        - `sha256`: Refuse other bytes than these.
        - `category`: What kind of program it is; groups that name none take it over.
        - `config_format`: Label for the family of configuration files the program reads; a group that names none inherits it.
        - `description`: A word on the program, for people.
        - `content`: Bytes, a path, an open file, or pieces.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PUT /api/v1/catalog/{platform}/{version}/file`, permission `catalog.manage`.
        """
        return await self._calls.call(
            Request[models.Catalog](
                "PUT",
                f"/api/v1/catalog/{segment(platform)}/{segment(version)}/file",
                models.Catalog,
                query={
                    "name": name,
                    "sha256": sha256,
                    "category": category,
                    "config_format": config_format,
                    "description": description,
                },
                body=Body(content),
                content_type="application/octet-stream",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )
