"""Methods of `nodes`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment
from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import UPLOAD_SECONDS, Request, entity_tag, joined


class AsyncNodes:
    """Operations of `/api/v1/nodes`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def join_tokens(
        self, *, limit: int | None = None, cursor: str | None = None
    ) -> models.JoinTokenPage:
        """List join tokens.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/nodes/join-tokens`, permission `nodes.enrol`.
        """
        return await self._calls.call(
            Request[models.JoinTokenPage](
                "GET",
                "/api/v1/nodes/join-tokens",
                models.JoinTokenPage,
                query={"limit": limit, "cursor": cursor},
            )
        )

    def all_join_tokens(self, *, limit: int | None = None) -> AsyncIterator[models.JoinToken]:
        """List join tokens: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.

        `GET /api/v1/nodes/join-tokens`, permission `nodes.enrol`.
        """
        return self._calls.pages(lambda position: self.join_tokens(limit=limit, cursor=position))

    async def create_join_token(
        self,
        *,
        node_id: str | UnsetType | None = UNSET,
        ttl_seconds: int | UnsetType = UNSET,
        replace: bool | UnsetType = UNSET,
        labels: Mapping[str, str] | UnsetType = UNSET,
        idempotency_key: str | None = None,
    ) -> models.NewJoinToken:
        """Create a join token; its text is shown once.

        - `node_id`: The only node id it may be used for; null: the host chooses.
        - `ttl_seconds`: How long it can be used, in seconds; an hour by default. Default: `3600`.
        - `replace`: true: a host that joins with it takes the place of the one that has this id. Default: `false`.
        - `labels`: Labels that the node gets when it joins; they count before its own claims.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/join-tokens`, permission `nodes.enrol`.
        """
        return await self._calls.call(
            Request[models.NewJoinToken](
                "POST",
                "/api/v1/nodes/join-tokens",
                models.NewJoinToken,
                json={"node_id": node_id, "ttl_seconds": ttl_seconds, "replace": replace, "labels": labels},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def delete_join_token(
        self, id: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> None:
        """Revoke a join token.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/nodes/join-tokens/{id}`, permission `nodes.enrol`.
        """
        await self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/nodes/join-tokens/{segment(id)}",
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        state: Sequence[str] | None = None,
        admission: models.Admission | None = None,
        label: Sequence[str] | None = None,
        sort: Literal[
            "-cpu_usage",
            "-enrolled_at",
            "-free_disk_mb",
            "-id",
            "-instances",
            "-memory_mb",
            "-state",
            "-used_memory_mb",
            "cpu_usage",
            "enrolled_at",
            "free_disk_mb",
            "id",
            "instances",
            "memory_mb",
            "state",
            "used_memory_mb",
        ]
        | None = None,
    ) -> models.NodePage:
        """List nodes.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `state`: Only nodes in this state; several, separated by commas: in one of these. Default: `()`.
        - `admission`: Only nodes that take new instances (`open`), or do not.
        - `label`: `KEY=VALUE`; given several times, all must fit. Default: `()`.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/nodes`, permission `nodes.read`.
        """
        return await self._calls.call(
            Request[models.NodePage](
                "GET",
                "/api/v1/nodes",
                models.NodePage,
                query={
                    "limit": limit,
                    "cursor": cursor,
                    "ids": joined(ids),
                    "q": q,
                    "state": state,
                    "admission": admission,
                    "label": label,
                    "sort": sort,
                },
            )
        )

    def all(
        self,
        *,
        limit: int | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        state: Sequence[str] | None = None,
        admission: models.Admission | None = None,
        label: Sequence[str] | None = None,
        sort: Literal[
            "-cpu_usage",
            "-enrolled_at",
            "-free_disk_mb",
            "-id",
            "-instances",
            "-memory_mb",
            "-state",
            "-used_memory_mb",
            "cpu_usage",
            "enrolled_at",
            "free_disk_mb",
            "id",
            "instances",
            "memory_mb",
            "state",
            "used_memory_mb",
        ]
        | None = None,
    ) -> AsyncIterator[models.Node]:
        """List nodes: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `state`: Only nodes in this state; several, separated by commas: in one of these. Default: `()`.
        - `admission`: Only nodes that take new instances (`open`), or do not.
        - `label`: `KEY=VALUE`; given several times, all must fit. Default: `()`.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/nodes`, permission `nodes.read`.
        """
        return self._calls.pages(
            lambda position: self.list(
                limit=limit,
                ids=ids,
                q=q,
                state=state,
                admission=admission,
                label=label,
                sort=sort,
                cursor=position,
            )
        )

    async def list_summaries(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        state: Sequence[str] | None = None,
        admission: models.Admission | None = None,
        label: Sequence[str] | None = None,
        sort: Literal[
            "-cpu_usage",
            "-enrolled_at",
            "-free_disk_mb",
            "-id",
            "-instances",
            "-memory_mb",
            "-state",
            "-used_memory_mb",
            "cpu_usage",
            "enrolled_at",
            "free_disk_mb",
            "id",
            "instances",
            "memory_mb",
            "state",
            "used_memory_mb",
        ]
        | None = None,
    ) -> models.NodeSummaryPage:
        """List nodes.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `state`: Only nodes in this state; several, separated by commas: in one of these. Default: `()`.
        - `admission`: Only nodes that take new instances (`open`), or do not.
        - `label`: `KEY=VALUE`; given several times, all must fit. Default: `()`.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/nodes`, permission `nodes.read`.
        """
        return await self._calls.call(
            Request[models.NodeSummaryPage](
                "GET",
                "/api/v1/nodes",
                models.NodeSummaryPage,
                query={
                    "limit": limit,
                    "cursor": cursor,
                    "ids": joined(ids),
                    "q": q,
                    "state": state,
                    "admission": admission,
                    "label": label,
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
        state: Sequence[str] | None = None,
        admission: models.Admission | None = None,
        label: Sequence[str] | None = None,
        sort: Literal[
            "-cpu_usage",
            "-enrolled_at",
            "-free_disk_mb",
            "-id",
            "-instances",
            "-memory_mb",
            "-state",
            "-used_memory_mb",
            "cpu_usage",
            "enrolled_at",
            "free_disk_mb",
            "id",
            "instances",
            "memory_mb",
            "state",
            "used_memory_mb",
        ]
        | None = None,
    ) -> AsyncIterator[models.NodeSummary]:
        """List nodes: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page: 500, of summaries 5000. Default: `100`.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `state`: Only nodes in this state; several, separated by commas: in one of these. Default: `()`.
        - `admission`: Only nodes that take new instances (`open`), or do not.
        - `label`: `KEY=VALUE`; given several times, all must fit. Default: `()`.
        - `sort`: The order, descending with `-`. What has no such value comes last, equals are in the order of ids.

        `GET /api/v1/nodes`, permission `nodes.read`.
        """
        return self._calls.pages(
            lambda position: self.list_summaries(
                limit=limit,
                ids=ids,
                q=q,
                state=state,
                admission=admission,
                label=label,
                sort=sort,
                cursor=position,
            )
        )

    async def get(self, id: str) -> models.Node:
        """Show a node.

        - `id`: Id of the node; for a join token its own id, `join-…`.

        `GET /api/v1/nodes/{id}`, permission `nodes.read`.
        """
        return await self._calls.call(
            Request[models.Node]("GET", f"/api/v1/nodes/{segment(id)}", models.Node)
        )

    async def update(
        self,
        id: str,
        *,
        labels: Mapping[str, str | None] | UnsetType = UNSET,
        as_claimed: Sequence[str] | UnsetType = UNSET,
        memory_mb: int | UnsetType | None = UNSET,
        cpus: int | UnsetType | None = UNSET,
        runtimes: Sequence[str] | UnsetType | None = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Node:
        """Set labels and limits of a node, which override what it reports.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `labels`: By key: the value; null: the node has no such label, whatever it claims.
        - `as_claimed`: Keys of labels that are left to the node again. Default: `()`.
        - `memory_mb`: At most so much memory counts, in MiB; null: as claimed.
        - `cpus`: At most so many cores count; null: as claimed.
        - `runtimes`: Only these runtimes count; null: all that are claimed.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `PATCH /api/v1/nodes/{id}`, permission `nodes.manage`.
        """
        return await self._calls.call(
            Request[models.Node](
                "PATCH",
                f"/api/v1/nodes/{segment(id)}",
                models.Node,
                json={
                    "labels": labels,
                    "as_claimed": as_claimed,
                    "memory_mb": memory_mb,
                    "cpus": cpus,
                    "runtimes": runtimes,
                },
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def delete(
        self,
        id: str,
        *,
        confirm: str | None = None,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Forget a node that is not connected.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `DELETE /api/v1/nodes/{id}`, permission `nodes.manage`.
        """
        await self._calls.call(
            Request[None](
                "DELETE",
                f"/api/v1/nodes/{segment(id)}",
                query={"confirm": confirm},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def delete_dry_run(
        self, id: str, *, confirm: str | None = None, if_match: int | str | None = None
    ) -> models.DryRun:
        """Forget a node that is not connected.

        Answers what it would do, and does nothing.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `DELETE /api/v1/nodes/{id}`, permission `nodes.manage`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "DELETE",
                f"/api/v1/nodes/{segment(id)}",
                models.DryRun,
                query={"confirm": confirm, "dry_run": True},
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def cordon(
        self,
        id: str,
        *,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Node:
        """No new instances on a node.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `reason`: Why it is done; it is shown with the node.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/{id}/cordon`, permission `nodes.manage`.
        """
        return await self._calls.call(
            Request[models.Node](
                "POST",
                f"/api/v1/nodes/{segment(id)}/cordon",
                models.Node,
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def uncordon(
        self,
        id: str,
        *,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Node:
        """New instances on a node again.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `reason`: Why it is done; it is shown with the node.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/{id}/uncordon`, permission `nodes.manage`.
        """
        return await self._calls.call(
            Request[models.Node](
                "POST",
                f"/api/v1/nodes/{segment(id)}/uncordon",
                models.Node,
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def revoke(
        self,
        id: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Node:
        """Refuse a node's certificates from now on.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why it is done; it is shown with the node.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/{id}/revoke`, permission `nodes.manage`.
        """
        return await self._calls.call(
            Request[models.Node](
                "POST",
                f"/api/v1/nodes/{segment(id)}/revoke",
                models.Node,
                query={"confirm": confirm},
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def drain(
        self,
        id: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        deadline_seconds: int | UnsetType | None = UNSET,
        force: bool | UnsetType = UNSET,
        shutdown: bool | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Node:
        """Move everything away from a node, and stop the rest at the deadline.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why; shown with the node. Empty: as it is, where the node is emptied already.
        - `deadline_seconds`: After how many seconds what is left is stopped, players or not; null: never. Left out: 3600, or as it is, where the node is emptied already.
        - `force`: Stop everything at once; not together with a deadline. Default: `false`.
        - `shutdown`: End the daemon when the node is empty. Left out: false, or as it is, where the node is emptied already.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/{id}/drain`, permission `nodes.drain`.
        """
        return await self._calls.call(
            Request[models.Node](
                "POST",
                f"/api/v1/nodes/{segment(id)}/drain",
                models.Node,
                query={"confirm": confirm},
                json={
                    "reason": reason,
                    "deadline_seconds": deadline_seconds,
                    "force": force,
                    "shutdown": shutdown,
                },
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def drain_dry_run(
        self,
        id: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        deadline_seconds: int | UnsetType | None = UNSET,
        force: bool | UnsetType = UNSET,
        shutdown: bool | UnsetType = UNSET,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """Move everything away from a node, and stop the rest at the deadline.

        Answers what it would do, and does nothing.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why; shown with the node. Empty: as it is, where the node is emptied already.
        - `deadline_seconds`: After how many seconds what is left is stopped, players or not; null: never. Left out: 3600, or as it is, where the node is emptied already.
        - `force`: Stop everything at once; not together with a deadline. Default: `false`.
        - `shutdown`: End the daemon when the node is empty. Left out: false, or as it is, where the node is emptied already.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `POST /api/v1/nodes/{id}/drain`, permission `nodes.drain`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "POST",
                f"/api/v1/nodes/{segment(id)}/drain",
                models.DryRun,
                query={"confirm": confirm, "dry_run": True},
                json={
                    "reason": reason,
                    "deadline_seconds": deadline_seconds,
                    "force": force,
                    "shutdown": shutdown,
                },
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def shutdown(
        self,
        id: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        deadline_seconds: int | UnsetType | None = UNSET,
        force: bool | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Node:
        """Drain a node, then end its daemon.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why; shown with the node. Empty: as it is, where the node is emptied already.
        - `deadline_seconds`: After how many seconds what is left is stopped, players or not; null: never. Left out: 3600, or as it is, where the node is emptied already.
        - `force`: Stop everything at once; not together with a deadline. Default: `false`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/{id}/shutdown`, permission `nodes.shutdown`.
        """
        return await self._calls.call(
            Request[models.Node](
                "POST",
                f"/api/v1/nodes/{segment(id)}/shutdown",
                models.Node,
                query={"confirm": confirm},
                json={"reason": reason, "deadline_seconds": deadline_seconds, "force": force},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def shutdown_dry_run(
        self,
        id: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        deadline_seconds: int | UnsetType | None = UNSET,
        force: bool | UnsetType = UNSET,
        if_match: int | str | None = None,
    ) -> models.DryRun:
        """Drain a node, then end its daemon.

        Answers what it would do, and does nothing.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why; shown with the node. Empty: as it is, where the node is emptied already.
        - `deadline_seconds`: After how many seconds what is left is stopped, players or not; null: never. Left out: 3600, or as it is, where the node is emptied already.
        - `force`: Stop everything at once; not together with a deadline. Default: `false`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.

        `POST /api/v1/nodes/{id}/shutdown`, permission `nodes.shutdown`.
        """
        return await self._calls.call(
            Request[models.DryRun](
                "POST",
                f"/api/v1/nodes/{segment(id)}/shutdown",
                models.DryRun,
                query={"confirm": confirm, "dry_run": True},
                json={"reason": reason, "deadline_seconds": deadline_seconds, "force": force},
                headers={"If-Match": entity_tag(if_match)},
                harmless=True,
            )
        )

    async def undrain(
        self,
        id: str,
        *,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Node:
        """New instances on a drained node again.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `reason`: Why it is done; it is shown with the node.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/{id}/undrain`, permission `nodes.drain`.
        """
        return await self._calls.call(
            Request[models.Node](
                "POST",
                f"/api/v1/nodes/{segment(id)}/undrain",
                models.Node,
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def command(
        self, id: str, *, command: str, idempotency_key: str | None = None
    ) -> models.CommandOutput:
        """Ask a node what only it can tell, or run a command of the command line kept to it.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `command`: One line for the input of the instance, or a console command of a module; without the line's end.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/{id}/command`, permission `commands.execute`.
        """
        return await self._calls.call(
            Request[models.CommandOutput](
                "POST",
                f"/api/v1/nodes/{segment(id)}/command",
                models.CommandOutput,
                json={"command": command},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def cache(self, id: str) -> models.CacheReport:
        """Show what a connected node holds in its cache.

        - `id`: Id of the node; for a join token its own id, `join-…`.

        `GET /api/v1/nodes/{id}/cache`, permission `nodes.read`.
        """
        return await self._calls.call(
            Request[models.CacheReport]("GET", f"/api/v1/nodes/{segment(id)}/cache", models.CacheReport)
        )

    async def cache_prewarm(
        self, id: str, *, group: str | UnsetType | None = UNSET, idempotency_key: str | None = None
    ) -> models.CacheReport:
        """Let a node fetch what a group needs; answered when it has, or could not.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `group`: Without: what all groups need.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/{id}/cache/prewarm`, permission `nodes.manage`.
        """
        return await self._calls.call(
            Request[models.CacheReport](
                "POST",
                f"/api/v1/nodes/{segment(id)}/cache/prewarm",
                models.CacheReport,
                json={"group": group},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    async def cache_prewarm_all(
        self, *, group: str | UnsetType | None = UNSET, idempotency_key: str | None = None
    ) -> models.SyncShape:
        """Let every connected node fetch what a group needs.

        - `group`: Without: what all groups need.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/nodes/cache/prewarm`, permission `nodes.manage`.
        """
        return await self._calls.call(
            Request[models.SyncShape](
                "POST",
                "/api/v1/nodes/cache/prewarm",
                models.SyncShape,
                json={"group": group},
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    async def why(self, id: str) -> models.WhyShape:
        """Why a node runs what it runs, and refuses what it refuses.

        - `id`: Id of the node; for a join token its own id, `join-…`.

        `GET /api/v1/nodes/{id}/why`, permission `decisions.read`.
        """
        return await self._calls.call(
            Request[models.WhyShape]("GET", f"/api/v1/nodes/{segment(id)}/why", models.WhyShape)
        )

    async def modules(
        self, id: str, *, limit: int | None = None, cursor: str | None = None
    ) -> models.ModuleOnNodePage:
        """List the modules of a node.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.

        `GET /api/v1/nodes/{id}/modules`, permission `modules.read`.
        """
        return await self._calls.call(
            Request[models.ModuleOnNodePage](
                "GET",
                f"/api/v1/nodes/{segment(id)}/modules",
                models.ModuleOnNodePage,
                query={"limit": limit, "cursor": cursor},
            )
        )

    def all_modules(self, id: str, *, limit: int | None = None) -> AsyncIterator[models.ModuleOnNode]:
        """List the modules of a node: the items of all pages, each page read when it is needed.

        - `id`: Id of the node; for a join token its own id, `join-…`.
        - `limit`: Most items of a page. Default: `100`.

        `GET /api/v1/nodes/{id}/modules`, permission `modules.read`.
        """
        return self._calls.pages(lambda position: self.modules(id, limit=limit, cursor=position))
