"""Methods of `modules`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment, segments
from corral.client.bodies import Body, Source, form
from corral.client.generated import models
from corral.client.requests import UPLOAD_SECONDS, Request, entity_tag, joined
from corral.client.sync_calls import Download, SyncCalls


class Modules:
    """Operations of `/api/v1/modules`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def why(self, id: str) -> models.WhyShape:
        """Why a module is in its phase.

        - `id`: Id of the module, as its manifest has it.

        `GET /api/v1/modules/{id}/why`, permission `decisions.read`.
        """
        return self._calls.call(
            Request[models.WhyShape]("GET", f"/api/v1/modules/{segment(id)}/why", models.WhyShape)
        )

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        phase: models.ModulePhase | None = None,
        intent: models.ModuleIntent | None = None,
        host: models.ModuleHost | None = None,
    ) -> models.ModulePage:
        """List modules.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `phase`: Only modules in this phase.
        - `intent`: Only modules of which this is wanted.
        - `host`: Only modules that have a part for this host.

        `GET /api/v1/modules`, permission `modules.read`.
        """
        return self._calls.call(
            Request[models.ModulePage](
                "GET",
                "/api/v1/modules",
                models.ModulePage,
                query={
                    "limit": limit,
                    "cursor": cursor,
                    "ids": joined(ids),
                    "q": q,
                    "phase": phase,
                    "intent": intent,
                    "host": host,
                },
            )
        )

    def all(
        self,
        *,
        limit: int | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        phase: models.ModulePhase | None = None,
        intent: models.ModuleIntent | None = None,
        host: models.ModuleHost | None = None,
    ) -> Iterator[models.Module]:
        """List modules: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `phase`: Only modules in this phase.
        - `intent`: Only modules of which this is wanted.
        - `host`: Only modules that have a part for this host.

        `GET /api/v1/modules`, permission `modules.read`.
        """
        return self._calls.pages(
            lambda position: self.list(
                limit=limit, ids=ids, q=q, phase=phase, intent=intent, host=host, cursor=position
            )
        )

    def install(
        self,
        *,
        file: Source,
        activate: bool | None = None,
        replace: bool | None = None,
        allow_downgrade: bool | None = None,
        rollback: bool | None = None,
        dry_run: bool | None = None,
        signature: Source | None = None,
        settings: Source | None = None,
        idempotency_key: str | None = None,
    ) -> models.InstalledModule | models.ExaminedModule:
        """Install a module, or upgrade it: a form with `file`, and `signature` where there is one; or the digest of an archive that was examined.

        - `activate`: False: install and hold it. Default: `true`.
        - `replace`: Also other content under the same version. Default: `false`.
        - `allow_downgrade`: Also a lower version. Default: `false`.
        - `rollback`: False: leave a new version that fails where it is. Default: `true`.
        - `dry_run`: Examine it and do nothing. Default: `false`.
        - `file`: The part `file` of the form: bytes, a path, an open file, or pieces.
        - `signature`: The part `signature` of the form: bytes, a path, an open file, or pieces.
        - `settings`: The part `settings` of the form: bytes, a path, an open file, or pieces.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules`, permission `modules.manage`.
        """
        body, content_type = form({"file": file, "signature": signature, "settings": settings})
        return self._calls.call(
            Request[models.InstalledModule | models.ExaminedModule](
                "POST",
                "/api/v1/modules",
                models.InstalledModule | models.ExaminedModule,
                query={
                    "activate": activate,
                    "replace": replace,
                    "allow_downgrade": allow_downgrade,
                    "rollback": rollback,
                    "dry_run": dry_run,
                },
                body=body,
                content_type=content_type,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def install_examined(
        self,
        *,
        sha256: str,
        activate: bool | None = None,
        replace: bool | None = None,
        allow_downgrade: bool | None = None,
        rollback: bool | None = None,
        dry_run: bool | None = None,
        settings: Mapping[str, Any] | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> models.InstalledModule | models.ExaminedModule:
        """Install a module, or upgrade it: a form with `file`, and `signature` where there is one; or the digest of an archive that was examined.

        - `activate`: False: install and hold it. Default: `true`.
        - `replace`: Also other content under the same version. Default: `false`.
        - `allow_downgrade`: Also a lower version. Default: `false`.
        - `rollback`: False: leave a new version that fails where it is. Default: `true`.
        - `dry_run`: Examine it and do nothing. Default: `false`.
        - `sha256`: SHA-256 of an archive that this caller had examined with `dry_run` before, 64 hexadecimal digits.
        - `settings`: Settings of the module; null: those of the installed version, else the defaults.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.InstalledModule | models.ExaminedModule](
                "POST",
                "/api/v1/modules",
                models.InstalledModule | models.ExaminedModule,
                query={
                    "activate": activate,
                    "replace": replace,
                    "allow_downgrade": allow_downgrade,
                    "rollback": rollback,
                    "dry_run": dry_run,
                },
                json={"sha256": sha256, "settings": settings},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def leaked(self) -> models.Leaks:
        """List processes of modules that did not end by themselves.

        `GET /api/v1/modules/leaked`, permission `modules.read`.
        """
        return self._calls.call(Request[models.Leaks]("GET", "/api/v1/modules/leaked", models.Leaks))

    def force_cleanup(self, *, idempotency_key: str | None = None) -> models.Leaks:
        """Kill what is left of modules that are gone.

        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules/force-cleanup`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.Leaks](
                "POST",
                "/api/v1/modules/force-cleanup",
                models.Leaks,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def storage_drop(self, id: str, *, idempotency_key: str | None = None) -> None:
        """Delete the data of a module that is not installed any more.

        - `id`: Id of the module, as its manifest has it.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules/{id}/storage/drop`, permission `modules.manage`.
        """
        self._calls.call(
            Request[None](
                "POST",
                f"/api/v1/modules/{segment(id)}/storage/drop",
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def get(self, id: str) -> models.Module:
        """Show a module.

        - `id`: Id of the module, as its manifest has it.

        `GET /api/v1/modules/{id}`, permission `modules.read`.
        """
        return self._calls.call(
            Request[models.Module]("GET", f"/api/v1/modules/{segment(id)}", models.Module)
        )

    def delete(self, id: str, *, idempotency_key: str | None = None) -> None:
        """Uninstall a module; its data stays until it is dropped.

        - `id`: Id of the module, as its manifest has it.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/modules/{id}`, permission `modules.manage`.
        """
        self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/modules/{segment(id)}",
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def activate(self, id: str, *, idempotency_key: str | None = None) -> models.Module:
        """Run a module, now and from now on.

        - `id`: Id of the module, as its manifest has it.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules/{id}/activate`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.Module](
                "POST",
                f"/api/v1/modules/{segment(id)}/activate",
                models.Module,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def deactivate(self, id: str, *, idempotency_key: str | None = None) -> models.Module:
        """Stop a module until an operator activates it.

        - `id`: Id of the module, as its manifest has it.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules/{id}/deactivate`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.Module](
                "POST",
                f"/api/v1/modules/{segment(id)}/deactivate",
                models.Module,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def pause(self, id: str, *, reason: str, idempotency_key: str | None = None) -> models.Module:
        """Hold a module, with a reason.

        - `id`: Id of the module, as its manifest has it.
        - `reason`: Why the module is held back; it is shown with the module.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules/{id}/pause`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.Module](
                "POST",
                f"/api/v1/modules/{segment(id)}/pause",
                models.Module,
                json={"reason": reason},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def resume(self, id: str, *, idempotency_key: str | None = None) -> models.Module:
        """Let a paused module run again.

        - `id`: Id of the module, as its manifest has it.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules/{id}/resume`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.Module](
                "POST",
                f"/api/v1/modules/{segment(id)}/resume",
                models.Module,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def recover(
        self, id: str, *, node: str | None = None, idempotency_key: str | None = None
    ) -> models.Module:
        """Try a failed module again, here and on every node where it failed.

        - `id`: Id of the module, as its manifest has it.
        - `node`: On this node alone; one that is away receives it later.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules/{id}/recover`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.Module](
                "POST",
                f"/api/v1/modules/{segment(id)}/recover",
                models.Module,
                query={"node": node},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def reload(self, id: str, *, idempotency_key: str | None = None) -> models.Module:
        """Let a module take its settings in again, without a restart.

        - `id`: Id of the module, as its manifest has it.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules/{id}/reload`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.Module](
                "POST",
                f"/api/v1/modules/{segment(id)}/reload",
                models.Module,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def put_config(
        self, id: str, body: Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> models.Module:
        """Set all settings of a module; what is left out goes back to the default.

        - `id`: Id of the module, as its manifest has it.
        - `body`: What is sent; left out of it is what is UNSET.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PUT /api/v1/modules/{id}/config`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.Module](
                "PUT",
                f"/api/v1/modules/{segment(id)}/config",
                models.Module,
                json=body,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def config(self, id: str) -> models.Configuration:
        """Show a module's settings and their schema.

        - `id`: Id of the module, as its manifest has it.

        `GET /api/v1/modules/{id}/config`, permission `modules.manage`.
        """
        return self._calls.call(
            Request[models.Configuration](
                "GET", f"/api/v1/modules/{segment(id)}/config", models.Configuration
            )
        )

    def health(self, id: str) -> models.ModuleHealth:
        """Ask a module how it is.

        - `id`: Id of the module, as its manifest has it.

        `GET /api/v1/modules/{id}/health`, permission `modules.read`.
        """
        return self._calls.call(
            Request[models.ModuleHealth]("GET", f"/api/v1/modules/{segment(id)}/health", models.ModuleHealth)
        )

    def nodes(self, id: str, *, limit: int | None = None, cursor: str | None = None) -> models.NodeStatePage:
        """List the states of a module on its nodes.

        - `id`: Id of the module, as its manifest has it.
        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/modules/{id}/nodes`, permission `modules.read`.
        """
        return self._calls.call(
            Request[models.NodeStatePage](
                "GET",
                f"/api/v1/modules/{segment(id)}/nodes",
                models.NodeStatePage,
                query={"limit": limit, "cursor": cursor},
            )
        )

    def all_nodes(self, id: str, *, limit: int | None = None) -> Iterator[models.NodeStateShape]:
        """List the states of a module on its nodes: the items of all pages, each page read when it is needed.

        - `id`: Id of the module, as its manifest has it.
        - `limit`: Most items of a page. Default: `100`.

        `GET /api/v1/modules/{id}/nodes`, permission `modules.read`.
        """
        return self._calls.pages(lambda position: self.nodes(id, limit=limit, cursor=position))

    def frontend(
        self, id: str, path: str, *, v: str | None = None, if_none_match: str | None = None
    ) -> Download:
        """A file of a module's pages.

        - `id`: Id of the module, as its manifest has it.
        - `path`: Path of the module's route or file.
        - `v`: Hash of the content, or of the archive: keep it.
        - `if_none_match`: `*`: only if there is none.

        `GET /api/v1/modules/{id}/frontend/{path}`, permission `modules.read`.
        """
        return self._calls.download(
            Request[None](
                "GET",
                f"/api/v1/modules/{segment(id)}/frontend/{segments(path)}",
                query={"v": v},
                headers={"If-None-Match": entity_tag(if_none_match)},
            )
        )

    def openapi(self, id: str) -> models.OpenApi:
        """The routes that a module has at present.

        - `id`: Id of the module, as its manifest has it.

        `GET /api/v1/modules/{id}/openapi.json`, permission `modules.read`.
        """
        return self._calls.call(
            Request[models.OpenApi]("GET", f"/api/v1/modules/{segment(id)}/openapi.json", models.OpenApi)
        )

    def get_route(self, id: str, path: str, *, query: Mapping[str, Any] | None = None) -> Download:
        """A route of a module, which may ask for more permission.

        - `id`: Id of the module, as its manifest has it.
        - `path`: Path of the module's route or file.
        - `query`: Parameters of the module's route.

        `GET /api/v1/modules/{id}/{path}`, permission `modules.read`.
        """
        return self._calls.download(
            Request[None]("GET", f"/api/v1/modules/{segment(id)}/{segments(path)}", query=query)
        )

    def post_route(
        self,
        id: str,
        path: str,
        *,
        content: Source | None = None,
        content_type: str = "application/octet-stream",
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Download:
        """A route of a module, which may ask for more permission.

        - `id`: Id of the module, as its manifest has it.
        - `path`: Path of the module's route or file.
        - `content`: Bytes, a path, an open file, or pieces.
        - `content_type`: Content type of the body.
        - `query`: Parameters of the module's route.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/modules/{id}/{path}`, permission `modules.read`.
        """
        return self._calls.download(
            Request[None](
                "POST",
                f"/api/v1/modules/{segment(id)}/{segments(path)}",
                query=query,
                body=Body(content) if content is not None else None,
                content_type=content_type,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def put_route(
        self,
        id: str,
        path: str,
        *,
        content: Source | None = None,
        content_type: str = "application/octet-stream",
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Download:
        """A route of a module, which may ask for more permission.

        - `id`: Id of the module, as its manifest has it.
        - `path`: Path of the module's route or file.
        - `content`: Bytes, a path, an open file, or pieces.
        - `content_type`: Content type of the body.
        - `query`: Parameters of the module's route.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PUT /api/v1/modules/{id}/{path}`, permission `modules.read`.
        """
        return self._calls.download(
            Request[None](
                "PUT",
                f"/api/v1/modules/{segment(id)}/{segments(path)}",
                query=query,
                body=Body(content) if content is not None else None,
                content_type=content_type,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def patch_route(
        self,
        id: str,
        path: str,
        *,
        content: Source | None = None,
        content_type: str = "application/octet-stream",
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Download:
        """A route of a module, which may ask for more permission.

        - `id`: Id of the module, as its manifest has it.
        - `path`: Path of the module's route or file.
        - `content`: Bytes, a path, an open file, or pieces.
        - `content_type`: Content type of the body.
        - `query`: Parameters of the module's route.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PATCH /api/v1/modules/{id}/{path}`, permission `modules.read`.
        """
        return self._calls.download(
            Request[None](
                "PATCH",
                f"/api/v1/modules/{segment(id)}/{segments(path)}",
                query=query,
                body=Body(content) if content is not None else None,
                content_type=content_type,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    def delete_route(
        self,
        id: str,
        path: str,
        *,
        content: Source | None = None,
        content_type: str = "application/octet-stream",
        query: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> Download:
        """A route of a module, which may ask for more permission.

        - `id`: Id of the module, as its manifest has it.
        - `path`: Path of the module's route or file.
        - `content`: Bytes, a path, an open file, or pieces.
        - `content_type`: Content type of the body.
        - `query`: Parameters of the module's route.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/modules/{id}/{path}`, permission `modules.read`.
        """
        return self._calls.download(
            Request[None](
                "DELETE",
                f"/api/v1/modules/{segment(id)}/{segments(path)}",
                query=query,
                body=Body(content) if content is not None else None,
                content_type=content_type,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )
