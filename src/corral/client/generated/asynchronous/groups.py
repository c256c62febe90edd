"""Methods of `groups`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment
from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import UPLOAD_SECONDS, Request, entity_tag, joined, waiting


class AsyncGroups:
    """Operations of `/api/v1/apply`, `/api/v1/groups`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        sort: Literal[
            "-created_at",
            "-instances",
            "-name",
            "-priority",
            "-ready",
            "-updated_at",
            "created_at",
            "instances",
            "name",
            "priority",
            "ready",
            "updated_at",
        ]
        | None = None,
    ) -> models.GroupPage:
        """List groups.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/groups`, permission `groups.read`.
        """
        return await self._calls.call(
            Request[models.GroupPage](
                "GET",
                "/api/v1/groups",
                models.GroupPage,
                query={"limit": limit, "cursor": cursor, "ids": joined(ids), "q": q, "sort": sort},
            )
        )

    def all(
        self,
        *,
        limit: int | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        sort: Literal[
            "-created_at",
            "-instances",
            "-name",
            "-priority",
            "-ready",
            "-updated_at",
            "created_at",
            "instances",
            "name",
            "priority",
            "ready",
            "updated_at",
        ]
        | None = None,
    ) -> AsyncIterator[models.Group]:
        """List groups: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/groups`, permission `groups.read`.
        """
        return self._calls.pages(
            lambda position: self.list(limit=limit, ids=ids, q=q, sort=sort, cursor=position)
        )

    async def list_summaries(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        sort: Literal[
            "-created_at",
            "-instances",
            "-name",
            "-priority",
            "-ready",
            "-updated_at",
            "created_at",
            "instances",
            "name",
            "priority",
            "ready",
            "updated_at",
        ]
        | None = None,
    ) -> models.GroupSummaryPage:
        """List groups.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/groups`, permission `groups.read`.
        """
        return await self._calls.call(
            Request[models.GroupSummaryPage](
                "GET",
                "/api/v1/groups",
                models.GroupSummaryPage,
                query={
                    "limit": limit,
                    "cursor": cursor,
                    "ids": joined(ids),
                    "q": q,
                    "sort": sort,
                    "view": "summary",
                },
            )
        )

    def all_summaries(
        self,
        *,
        limit: int | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        sort: Literal[
            "-created_at",
            "-instances",
            "-name",
            "-priority",
            "-ready",
            "-updated_at",
            "created_at",
            "instances",
            "name",
            "priority",
            "ready",
            "updated_at",
        ]
        | None = None,
    ) -> AsyncIterator[models.GroupSummary]:
        """List groups: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/groups`, permission `groups.read`.
        """
        return self._calls.pages(
            lambda position: self.list_summaries(limit=limit, ids=ids, q=q, sort=sort, cursor=position)
        )

    async def create(
        self, body: models.NewGroup | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> models.Group:
        """Create a group; its instances follow at once.

        - `body`: What is sent; left out of it is what is UNSET.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Group](
                "POST", "/api/v1/groups", models.Group, json=body, keyed=True, key=idempotency_key
            )
        )

    async def create_dry_run(self, body: models.NewGroup | Mapping[str, Any]) -> models.DryRun:
        """Create a group; its instances follow at once.

        Answers what it would do, and does nothing.

        - `body`: What is sent; left out of it is what is UNSET.

        `POST /api/v1/groups`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "POST", "/api/v1/groups", models.DryRun, query={"dry_run": True}, json=body, harmless=True
            )
        )

    async def get(self, name: str) -> models.Group:
        """Show a group.

        - `name`: Name of the group.

        `GET /api/v1/groups/{name}`, permission `groups.read`.
        """
        return await self._calls.call(
            Request[models.Group]("GET", f"/api/v1/groups/{segment(name)}", models.Group)
        )

    async def update(
        self,
        name: str,
        body: models.GroupPatch | Mapping[str, Any],
        *,
        confirm: str | None = None,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Group:
        """Change some fields of a group (RFC 7396); what runs goes on as it was started.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `body`: What is sent; left out of it is what is UNSET.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PATCH /api/v1/groups/{name}`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Group](
                "PATCH",
                f"/api/v1/groups/{segment(name)}",
                models.Group,
                query={"confirm": confirm},
                json=body,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def update_dry_run(
        self,
        name: str,
        body: models.GroupPatch | Mapping[str, Any],
        *,
        confirm: str | None = None,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """Change some fields of a group (RFC 7396); what runs goes on as it was started.

        Answers what it would do, and does nothing.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `body`: What is sent; left out of it is what is UNSET.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `PATCH /api/v1/groups/{name}`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "PATCH",
                f"/api/v1/groups/{segment(name)}",
                models.DryRun,
                query={"confirm": confirm, "dry_run": True},
                json=body,
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def delete(
        self,
        name: str,
        *,
        confirm: str | None = None,
        cascade: bool | None = None,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Delete a group; with `cascade` it goes when its last instance has ended.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `cascade`: Stop its instances first. Default: `false`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/groups/{name}`, permission `groups.manage`.
        """
        await self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/groups/{segment(name)}",
                query={"confirm": confirm, "cascade": cascade},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def delete_dry_run(
        self,
        name: str,
        *,
        confirm: str | None = None,
        cascade: bool | None = None,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """Delete a group; with `cascade` it goes when its last instance has ended.

        Answers what it would do, and does nothing.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `cascade`: Stop its instances first. Default: `false`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `DELETE /api/v1/groups/{name}`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "DELETE",
                f"/api/v1/groups/{segment(name)}",
                models.DryRun,
                query={"confirm": confirm, "cascade": cascade, "dry_run": True},
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def maintenance(
        self,
        name: str,
        *,
        enabled: bool,
        confirm: str | None = None,
        message: str | UnsetType = UNSET,
        bypass: Sequence[str] | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Group:
        """Close a group to players, or open it; its instances run on.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `enabled`: true: closed to players; false: open.
        - `message`: What players are told; left out: as it is in the document.
        - `bypass`: Players, by name or id, who may join all the same; left out: as it is in the document.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/{name}/maintenance`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Group](
                "POST",
                f"/api/v1/groups/{segment(name)}/maintenance",
                models.Group,
                query={"confirm": confirm},
                json={"enabled": enabled, "message": message, "bypass": bypass},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def maintenance_dry_run(
        self,
        name: str,
        *,
        enabled: bool,
        confirm: str | None = None,
        message: str | UnsetType = UNSET,
        bypass: Sequence[str] | UnsetType = UNSET,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """Close a group to players, or open it; its instances run on.

        Answers what it would do, and does nothing.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `enabled`: true: closed to players; false: open.
        - `message`: What players are told; left out: as it is in the document.
        - `bypass`: Players, by name or id, who may join all the same; left out: as it is in the document.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `POST /api/v1/groups/{name}/maintenance`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "POST",
                f"/api/v1/groups/{segment(name)}/maintenance",
                models.DryRun,
                query={"confirm": confirm, "dry_run": True},
                json={"enabled": enabled, "message": message, "bypass": bypass},
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def document(self, name: str) -> dict[str, Any]:
        """The document of a group as it was written, without defaults and the fields of its parents.

        - `name`: Name of the group.

        `GET /api/v1/groups/{name}/document`, permission `groups.read`.
        """
        return await self._calls.call(
            Request[dict[str, Any]]("GET", f"/api/v1/groups/{segment(name)}/document", dict[str, Any])
        )

    async def put_document(
        self,
        name: str,
        body: models.GroupDocument | Mapping[str, Any],
        *,
        confirm: str | None = None,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Group:
        """Replace the document of a group: what is left out is as in its parent, or the default.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `body`: What is sent; left out of it is what is UNSET.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PUT /api/v1/groups/{name}/document`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Group](
                "PUT",
                f"/api/v1/groups/{segment(name)}/document",
                models.Group,
                query={"confirm": confirm},
                json=body,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def put_document_dry_run(
        self,
        name: str,
        body: models.GroupDocument | Mapping[str, Any],
        *,
        confirm: str | None = None,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """Replace the document of a group: what is left out is as in its parent, or the default.

        Answers what it would do, and does nothing.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `body`: What is sent; left out of it is what is UNSET.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `PUT /api/v1/groups/{name}/document`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "PUT",
                f"/api/v1/groups/{segment(name)}/document",
                models.DryRun,
                query={"confirm": confirm, "dry_run": True},
                json=body,
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def scale(
        self,
        name: str,
        *,
        count: int,
        for_seconds: int | UnsetType | None = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Group:
        """How many instances a group shall have.

        - `name`: Name of the group.
        - `count`: How many instances the group shall have, from `min` to `max`.
        - `for_seconds`: Where the load decides (mode `DYNAMIC`), and needed there: for so long at least `count` instances are kept, at most 7 days. null elsewhere.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/{name}/scale`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Group](
                "POST",
                f"/api/v1/groups/{segment(name)}/scale",
                models.Group,
                json={"count": count, "for_seconds": for_seconds},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def scale_dry_run(
        self,
        name: str,
        *,
        count: int,
        for_seconds: int | UnsetType | None = UNSET,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """How many instances a group shall have.

        Answers what it would do, and does nothing.

        - `name`: Name of the group.
        - `count`: How many instances the group shall have, from `min` to `max`.
        - `for_seconds`: Where the load decides (mode `DYNAMIC`), and needed there: for so long at least `count` instances are kept, at most 7 days. null elsewhere.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `POST /api/v1/groups/{name}/scale`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "POST",
                f"/api/v1/groups/{segment(name)}/scale",
                models.DryRun,
                query={"dry_run": True},
                json={"count": count, "for_seconds": for_seconds},
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def unpause(
        self, name: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> models.Group:
        """Try a crash-looping group again now.

        - `name`: Name of the group.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/{name}/unpause`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Group](
                "POST",
                f"/api/v1/groups/{segment(name)}/unpause",
                models.Group,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def restart(
        self,
        name: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        options: models.UpdateOptions | UnsetType = UNSET,
        at_once: bool | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Group:
        """Replace every instance of a group by a deployment; with `at_once` restart all at the same time.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why, for everybody who looks at the deployment.
        - `options`: Fields of `update` that this deployment has otherwise than the document.
        - `at_once`: true: no deployment; all instances are restarted at the same time, under their ids. Default: `false`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/{name}/restart`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Group](
                "POST",
                f"/api/v1/groups/{segment(name)}/restart",
                models.Group,
                query={"confirm": confirm},
                json={"reason": reason, "options": options, "at_once": at_once},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def restart_dry_run(
        self,
        name: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        options: models.UpdateOptions | UnsetType = UNSET,
        at_once: bool | UnsetType = UNSET,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """Replace every instance of a group by a deployment; with `at_once` restart all at the same time.

        Answers what it would do, and does nothing.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why, for everybody who looks at the deployment.
        - `options`: Fields of `update` that this deployment has otherwise than the document.
        - `at_once`: true: no deployment; all instances are restarted at the same time, under their ids. Default: `false`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `POST /api/v1/groups/{name}/restart`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "POST",
                f"/api/v1/groups/{segment(name)}/restart",
                models.DryRun,
                query={"confirm": confirm, "dry_run": True},
                json={"reason": reason, "options": options, "at_once": at_once},
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def hold(
        self,
        name: str,
        *,
        reason: str,
        when_empty: bool | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Group:
        """Stop every instance of a group and keep all stopped.

        - `name`: Name of the group.
        - `reason`: Why, for everybody who meets the hold: shown with the group, in refused starts and in events.
        - `when_empty`: true: each instance is stopped when it has no players. false: all at once, by their ladders. Default: `false`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/{name}/hold`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Group](
                "POST",
                f"/api/v1/groups/{segment(name)}/hold",
                models.Group,
                json={"reason": reason, "when_empty": when_empty},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def hold_dry_run(
        self,
        name: str,
        *,
        reason: str,
        when_empty: bool | UnsetType = UNSET,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """Stop every instance of a group and keep all stopped.

        Answers what it would do, and does nothing.

        - `name`: Name of the group.
        - `reason`: Why, for everybody who meets the hold: shown with the group, in refused starts and in events.
        - `when_empty`: true: each instance is stopped when it has no players. false: all at once, by their ladders. Default: `false`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `POST /api/v1/groups/{name}/hold`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "POST",
                f"/api/v1/groups/{segment(name)}/hold",
                models.DryRun,
                query={"dry_run": True},
                json={"reason": reason, "when_empty": when_empty},
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def release(
        self, name: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> models.Group:
        """Let a held group run again.

        - `name`: Name of the group.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/{name}/release`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Group](
                "POST",
                f"/api/v1/groups/{segment(name)}/release",
                models.Group,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def release_dry_run(self, name: str, *, if_match: int | str | None = None) -> models.DryRun:
        """Let a held group run again.

        Answers what it would do, and does nothing.

        - `name`: Name of the group.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `POST /api/v1/groups/{name}/release`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "POST",
                f"/api/v1/groups/{segment(name)}/release",
                models.DryRun,
                query={"dry_run": True},
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def deploy(
        self,
        name: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        options: models.UpdateOptions | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Deployment:
        """Bring the instances of a group to its present document, templates and programs.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why, for everybody who looks at the deployment.
        - `options`: Fields of `update` that this deployment has otherwise than the document.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/{name}/deploy`, permission `deployments.manage`.
        """
        return await self._calls.call(
            Request[models.Deployment](
                "POST",
                f"/api/v1/groups/{segment(name)}/deploy",
                models.Deployment,
                query={"confirm": confirm},
                json={"reason": reason, "options": options},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def deploy_dry_run(
        self,
        name: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        options: models.UpdateOptions | UnsetType = UNSET,
    ) -> models.DryRun:
        """Bring the instances of a group to its present document, templates and programs.

        Answers what it would do, and does nothing.

        - `name`: Name of the group.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why, for everybody who looks at the deployment.
        - `options`: Fields of `update` that this deployment has otherwise than the document.

        `POST /api/v1/groups/{name}/deploy`, permission `deployments.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "POST",
                f"/api/v1/groups/{segment(name)}/deploy",
                models.DryRun,
                query={"confirm": confirm, "dry_run": True},
                json={"reason": reason, "options": options},
                harmless=True,
            )
        )

    async def revisions(
        self, name: str, *, limit: int | None = None, cursor: str | None = None
    ) -> models.RevisionPage:
        """List the revisions of a group, the newest first.

        - `name`: Name of the group.
        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/groups/{name}/revisions`, permission `groups.read`.
        """
        return await self._calls.call(
            Request[models.RevisionPage](
                "GET",
                f"/api/v1/groups/{segment(name)}/revisions",
                models.RevisionPage,
                query={"limit": limit, "cursor": cursor},
            )
        )

    def all_revisions(self, name: str, *, limit: int | None = None) -> AsyncIterator[models.Revision]:
        """List the revisions of a group, the newest first: the items of all pages, each page read when it is needed.

        - `name`: Name of the group.
        - `limit`: Most items of a page. Default: `100`.

        `GET /api/v1/groups/{name}/revisions`, permission `groups.read`.
        """
        return self._calls.pages(lambda position: self.revisions(name, limit=limit, cursor=position))

    async def get_revision(self, name: str, number: int) -> models.RevisionDocument:
        """Show a revision of a group with its document and the contents that this named.

        - `name`: Name of the group.
        - `number`: Number of the revision.

        `GET /api/v1/groups/{name}/revisions/{number}`, permission `groups.read`.
        """
        return await self._calls.call(
            Request[models.RevisionDocument](
                "GET",
                f"/api/v1/groups/{segment(name)}/revisions/{segment(str(number))}",
                models.RevisionDocument,
            )
        )

    async def resolved(self, name: str) -> models.ResolvedGroup:
        """The document of a group with the fields of its parents and all defaults, and where each value was written.

        - `name`: Name of the group.

        `GET /api/v1/groups/{name}/resolved`, permission `groups.read`.
        """
        return await self._calls.call(
            Request[models.ResolvedGroup](
                "GET", f"/api/v1/groups/{segment(name)}/resolved", models.ResolvedGroup
            )
        )

    async def registry(
        self, name: str, *, limit: int | None = None, cursor: str | None = None
    ) -> models.Registry:
        """The instances of a group that take players, for proxies.

        - `name`: Name of the group.
        - `limit`: Most instances of a page. Default: `1000`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/groups/{name}/registry`, permission `groups.read`.
        """
        return await self._calls.call(
            Request[models.Registry](
                "GET",
                f"/api/v1/groups/{segment(name)}/registry",
                models.Registry,
                query={"limit": limit, "cursor": cursor},
            )
        )

    async def apply(
        self,
        *,
        documents: Sequence[models.DocumentInput],
        owner: str | UnsetType = UNSET,
        prune: bool | UnsetType = UNSET,
        force: bool | UnsetType = UNSET,
        dry_run: bool | UnsetType = UNSET,
        confirm: Sequence[str] | UnsetType = UNSET,
        new_templates: Sequence[str] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Apply:
        """Apply a set of group documents, all of them or none.

        - `documents`: Group documents, each with the name of one group; in all at most 8 MiB.
        - `owner`: Whose set it is: its groups are marked with it. Empty: owners stay as they are.
        - `prune`: Delete groups of this owner that are not in the set. Default: `false`.
        - `force`: Undo edits that were made since the last apply, and take groups over from other owners. Default: `false`.
        - `dry_run`: Change nothing: only answer what would change, and what would follow at once. Default: `false`.
        - `confirm`: Names of groups whose instances and worlds may be given up, as CONFIRMATION_REQUIRED listed them. Default: `()`.
        - `new_templates`: Only with `dry_run`: templates that are to be uploaded before the set is applied; here they count as present. Default: `()`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/apply`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Apply](
                "POST",
                "/api/v1/apply",
                models.Apply,
                json={
                    "documents": documents,
                    "owner": owner,
                    "prune": prune,
                    "force": force,
                    "dry_run": dry_run,
                    "confirm": confirm,
                    "new_templates": new_templates,
                },
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    async def reload(
        self,
        *,
        prune: bool | UnsetType = UNSET,
        confirm: Sequence[str] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Reload:
        """Read the directory of group documents again; a report by file.

        - `prune`: Delete groups of the directory whose file is gone. Default: `false`.
        - `confirm`: Names of groups whose instances and worlds may be given up, as CONFIRMATION_REQUIRED listed them. Default: `()`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/reload`, permission `groups.manage`.
        """
        return await self._calls.call(
            Request[models.Reload](
                "POST",
                "/api/v1/groups/reload",
                models.Reload,
                json={"prune": prune, "confirm": confirm},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    async def start(
        self,
        name: str,
        *,
        wait: Literal["ready", "running"] | None = None,
        timeout: int | None = None,
        idempotency_key: str | None = None,
    ) -> models.Instance:
        """Start one more instance of this group.

        - `name`: Name of the group.
        - `wait`: Answer when it is RUNNING, or when it is ready; a run that dies before it is ready is no longer waited for, also if its node restarts it.
        - `timeout`: How long to wait. Default: `30`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/{name}/start`, permission `instances.manage`.
        """
        return await self._calls.call(
            Request[models.Instance](
                "POST",
                f"/api/v1/groups/{segment(name)}/start",
                models.Instance,
                query={"wait": wait, "timeout": timeout},
                keyed=True,
                key=idempotency_key,
                waits=waiting(wait, timeout, 30),
            )
        )

    async def worlds(
        self,
        name: str,
        *,
        instance: str,
        node: str,
        reason: str | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.Instance:
        """Reserve the place of a static instance on a node, stopped, so that its files can be put there.

        - `name`: Name of the group.
        - `instance`: Its id: `GROUP-NUMBER`, or one of the group's `static_names`.
        - `node`: Id of the node that has its files, and where it runs from then on.
        - `reason`: The reason, kept in the audit and in the instance's record; it is shown as long as the instance is held stopped.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/groups/{name}/worlds`, permission `instances.manage`.
        """
        return await self._calls.call(
            Request[models.Instance](
                "POST",
                f"/api/v1/groups/{segment(name)}/worlds",
                models.Instance,
                json={"instance": instance, "node": node, "reason": reason},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def why(self, name: str) -> models.WhyShape:
        """Why a group has as many instances as it has.

        - `name`: Name of the group.

        `GET /api/v1/groups/{name}/why`, permission `decisions.read`.
        """
        return await self._calls.call(
            Request[models.WhyShape]("GET", f"/api/v1/groups/{segment(name)}/why", models.WhyShape)
        )
