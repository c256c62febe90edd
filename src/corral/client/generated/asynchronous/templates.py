"""Methods of `templates`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from corral.client.addresses import segments
from corral.client.async_calls import AsyncCalls, AsyncDownload
from corral.client.bodies import AsyncSource, Body
from corral.client.generated import models
from corral.client.requests import UPLOAD_SECONDS, Request, entity_tag


class AsyncTemplates:
    """Operations of `/api/v1/templates`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        prefix: str | None = None,
        group: str | None = None,
    ) -> models.TemplatePage:
        """List templates.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `prefix`: Only names that begin like this.
        - `group`: The part of the name before the `/`.

        `GET /api/v1/templates`, permission `templates.read`.
        """
        return await self._calls.call(
            Request[models.TemplatePage](
                "GET",
                "/api/v1/templates",
                models.TemplatePage,
                query={"limit": limit, "cursor": cursor, "prefix": prefix, "group": group},
            )
        )

    def all(
        self, *, limit: int | None = None, prefix: str | None = None, group: str | None = None
    ) -> AsyncIterator[models.Template]:
        """List templates: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.
        - `prefix`: Only names that begin like this.
        - `group`: The part of the name before the `/`.

        `GET /api/v1/templates`, permission `templates.read`.
        """
        return self._calls.pages(
            lambda position: self.list(limit=limit, prefix=prefix, group=group, cursor=position)
        )

    async def import_(
        self, content: AsyncSource, *, name: str, note: str | None = None, idempotency_key: str | None = None
    ) -> models.ChangedTemplate:
        """Upload a version of the template that the query names.

        - `note`: A word on this change, for people; shown in the list of versions.
        - `name`: NAME or GROUP/NAME.
        - `content`: Bytes, a path, an open file, or pieces.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/templates/import`, permission `templates.manage`.
        """
        return await self._calls.call(
            Request[models.ChangedTemplate](
                "POST",
                "/api/v1/templates/import",
                models.ChangedTemplate,
                query={"note": note, "name": name},
                body=Body(content),
                content_type="application/octet-stream",
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    async def get(self, name: str) -> models.Template:
        """Show a template.

        - `name`: Name of the template.

        `GET /api/v1/templates/{name}`, permission `templates.read`.
        """
        return await self._calls.call(
            Request[models.Template]("GET", f"/api/v1/templates/{segments(name)}", models.Template)
        )

    async def put(
        self,
        name: str,
        content: AsyncSource,
        *,
        note: str | None = None,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.ChangedTemplate:
        """Upload a version of a template as tar.gz, tar or zip; its settings stay.

        - `name`: Name of the template.
        - `note`: A word on this change, for people; shown in the list of versions.
        - `content`: Bytes, a path, an open file, or pieces.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PUT /api/v1/templates/{name}`, permission `templates.manage`.
        """
        return await self._calls.call(
            Request[models.ChangedTemplate](
                "PUT",
                f"/api/v1/templates/{segments(name)}",
                models.ChangedTemplate,
                query={"note": note},
                body=Body(content),
                content_type="application/octet-stream",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    async def update(
        self,
        name: str,
        body: models.SettingsPatch | Mapping[str, Any],
        *,
        note: str | None = None,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.ChangedTemplate:
        """Change settings of a template (RFC 7396), as a new version with the same files.

        - `name`: Name of the template.
        - `note`: A word on this change, for people; shown in the list of versions.
        - `body`: What is sent; left out of it is what is UNSET.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PATCH /api/v1/templates/{name}`, permission `templates.manage`.
        """
        return await self._calls.call(
            Request[models.ChangedTemplate](
                "PATCH",
                f"/api/v1/templates/{segments(name)}",
                models.ChangedTemplate,
                query={"note": note},
                json=body,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def delete(
        self, name: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> None:
        """Delete a template that nothing needs.

        - `name`: Name of the template.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/templates/{name}`, permission `templates.manage`.
        """
        await self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/templates/{segments(name)}",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def versions(
        self, name: str, *, limit: int | None = None, cursor: str | None = None
    ) -> models.VersionPage:
        """List the versions of a template that are kept, the newest first.

        - `name`: Name of the template.
        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/templates/{name}/-/versions`, permission `templates.read`.
        """
        return await self._calls.call(
            Request[models.VersionPage](
                "GET",
                f"/api/v1/templates/{segments(name)}/-/versions",
                models.VersionPage,
                query={"limit": limit, "cursor": cursor},
            )
        )

    def all_versions(self, name: str, *, limit: int | None = None) -> AsyncIterator[models.Version]:
        """List the versions of a template that are kept, the newest first: the items of all pages, each page read when it is needed.

        - `name`: Name of the template.
        - `limit`: Most items of a page. Default: `100`.

        `GET /api/v1/templates/{name}/-/versions`, permission `templates.read`.
        """
        return self._calls.pages(lambda position: self.versions(name, limit=limit, cursor=position))

    async def diff(self, name: str, *, from_: int | None = None, to: int | None = None) -> models.Diff:
        """Compare two versions of a template.

        - `name`: Name of the template.
        - `from_`: By default the one before `to`.
        - `to`: By default the current one.

        `GET /api/v1/templates/{name}/-/diff`, permission `templates.read`.
        """
        return await self._calls.call(
            Request[models.Diff](
                "GET",
                f"/api/v1/templates/{segments(name)}/-/diff",
                models.Diff,
                query={"from": from_, "to": to},
            )
        )

    async def rollback(
        self,
        name: str,
        *,
        version: int,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.ChangedTemplate:
        """Make an earlier version of a template the current one.

        - `name`: Name of the template.
        - `version`: Number of the version that becomes the current one.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/templates/{name}/-/rollback`, permission `templates.manage`.
        """
        return await self._calls.call(
            Request[models.ChangedTemplate](
                "POST",
                f"/api/v1/templates/{segments(name)}/-/rollback",
                models.ChangedTemplate,
                json={"version": version},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def export(
        self, name: str, *, version: int | None = None, format: Literal["tar.gz", "zip"] | None = None
    ) -> AsyncDownload:
        """Download a version of a template.

        - `name`: Name of the template.
        - `version`: Number of a version; without it the current one.
        - `format`: The archive's format. Default: `tar.gz`.

        `GET /api/v1/templates/{name}/-/export`, permission `templates.content`.
        """
        return self._calls.download(
            Request[None](
                "GET",
                f"/api/v1/templates/{segments(name)}/-/export",
                query={"version": version, "format": format},
            )
        )

    async def sync(
        self,
        name: str,
        *,
        nodes: Sequence[str] | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.SyncShape:
        """Push the current version of a template into the caches of nodes.

        - `name`: Name of the template.
        - `nodes`: Without: all.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/templates/{name}/-/sync`, permission `templates.manage`.
        """
        return await self._calls.call(
            Request[models.SyncShape](
                "POST",
                f"/api/v1/templates/{segments(name)}/-/sync",
                models.SyncShape,
                json={"nodes": nodes},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    async def files(
        self,
        name: str,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        version: int | None = None,
        prefix: str | None = None,
    ) -> models.FilePage:
        """List the files of a version of a template.

        - `name`: Name of the template.
        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `version`: Number of a version; without it the current one.
        - `prefix`: Only names that begin like this.

        `GET /api/v1/templates/{name}/-/files`, permission `templates.read`.
        """
        return await self._calls.call(
            Request[models.FilePage](
                "GET",
                f"/api/v1/templates/{segments(name)}/-/files",
                models.FilePage,
                query={"limit": limit, "cursor": cursor, "version": version, "prefix": prefix},
            )
        )

    def all_files(
        self, name: str, *, limit: int | None = None, version: int | None = None, prefix: str | None = None
    ) -> AsyncIterator[models.File]:
        """List the files of a version of a template: the items of all pages, each page read when it is needed.

        - `name`: Name of the template.
        - `limit`: Most items of a page. Default: `100`.
        - `version`: Number of a version; without it the current one.
        - `prefix`: Only names that begin like this.

        `GET /api/v1/templates/{name}/-/files`, permission `templates.read`.
        """
        return self._calls.pages(
            lambda position: self.files(name, limit=limit, version=version, prefix=prefix, cursor=position)
        )

    def get_file(self, name: str, path: str, *, version: int | None = None) -> AsyncDownload:
        """Download a file of a template.

        - `name`: Name of the template.
        - `path`: Path of the file, relative to the top and written with `/`.
        - `version`: Number of a version; without it the current one.

        `GET /api/v1/templates/{name}/-/files/{path}`, permission `templates.content`.
        """
        return self._calls.download(
            Request[None](
                "GET",
                f"/api/v1/templates/{segments(name)}/-/files/{segments(path)}",
                query={"version": version},
            )
        )

    async def put_file(
        self,
        name: str,
        path: str,
        content: AsyncSource,
        *,
        note: str | None = None,
        mode: Literal["444", "555", "644", "755"] | None = None,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.ChangedTemplate:
        """Put a file into a template, as a new version.

        - `name`: Name of the template.
        - `path`: Path of the file, relative to the top and written with `/`.
        - `note`: A word on this change, for people; shown in the list of versions.
        - `mode`: Without: as it was, or 644. Without w: read-only.
        - `content`: Bytes, a path, an open file, or pieces.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PUT /api/v1/templates/{name}/-/files/{path}`, permission `templates.manage`.
        """
        return await self._calls.call(
            Request[models.ChangedTemplate](
                "PUT",
                f"/api/v1/templates/{segments(name)}/-/files/{segments(path)}",
                models.ChangedTemplate,
                query={"note": note, "mode": mode},
                body=Body(content),
                content_type="application/octet-stream",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    async def delete_file(
        self,
        name: str,
        path: str,
        *,
        note: str | None = None,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.ChangedTemplate:
        """Take a file out of a template, as a new version.

        - `name`: Name of the template.
        - `path`: Path of the file, relative to the top and written with `/`.
        - `note`: A word on this change, for people; shown in the list of versions.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/templates/{name}/-/files/{path}`, permission `templates.manage`.
        """
        return await self._calls.call(
            Request[models.ChangedTemplate](
                "DELETE",
                f"/api/v1/templates/{segments(name)}/-/files/{segments(path)}",
                models.ChangedTemplate,
                query={"note": note},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )
