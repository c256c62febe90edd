"""Methods of `deployments`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET, UnsetType

from corral.client.addresses import segment
from corral.client.generated import models
from corral.client.requests import Request, entity_tag, joined
from corral.client.sync_calls import SyncCalls


class Deployments:
    """Operations of `/api/v1/deployments`."""

    def __init__(self, calls: SyncCalls) -> None:
        self._calls = calls

    def list(
        self,
        *,
        limit: int | None = None,
        cursor: str | None = None,
        group: str | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        state: Sequence[str] | None = None,
    ) -> models.DeploymentPage:
        """List deployments, the newest first.

        - `limit`: Most items of a page. Default: `100`.
        - `cursor`: `next` of the page before; empty: from the start.
        - `group`: Name of a group: only what belongs to it.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `state`: Only deployments in this state; several, separated by commas: in one of these. Default: `()`.

        `GET /api/v1/deployments`, permission `deployments.read`.
        """
        return self._calls.call(
            Request[models.DeploymentPage](
                "GET",
                "/api/v1/deployments",
                models.DeploymentPage,
                query={
                    "limit": limit,
                    "cursor": cursor,
                    "group": group,
                    "ids": joined(ids),
                    "q": q,
                    "state": state,
                },
            )
        )

    def all(
        self,
        *,
        limit: int | None = None,
        group: str | None = None,
        ids: str | Sequence[str] | None = None,
        q: str | None = None,
        state: Sequence[str] | None = None,
    ) -> Iterator[models.Deployment]:
        """List deployments, the newest first: the items of all pages, each page read when it is needed.

        - `limit`: Most items of a page. Default: `100`.
        - `group`: Name of a group: only what belongs to it.
        - `ids`: Only these, separated by commas, at most 500; one that does not exist is left out.
        - `q`: Only what has this text in its id, name or title, its group or its labels (`KEY=VALUE`); small and capital letters are the same.
        - `state`: Only deployments in this state; several, separated by commas: in one of these. Default: `()`.

        `GET /api/v1/deployments`, permission `deployments.read`.
        """
        return self._calls.pages(
            lambda position: self.list(limit=limit, group=group, ids=ids, q=q, state=state, cursor=position)
        )

    def get(self, id: str) -> models.Deployment:
        """Show a deployment and how far it is.

        - `id`: Id of the deployment, `dep-…`.

        `GET /api/v1/deployments/{id}`, permission `deployments.read`.
        """
        return self._calls.call(
            Request[models.Deployment]("GET", f"/api/v1/deployments/{segment(id)}", models.Deployment)
        )

    def pause(
        self, id: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> models.Deployment:
        """Let a deployment rest; healing goes on.

        - `id`: Id of the deployment, `dep-…`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/deployments/{id}/pause`, permission `deployments.manage`.
        """
        return self._calls.call(
            Request[models.Deployment](
                "POST",
                f"/api/v1/deployments/{segment(id)}/pause",
                models.Deployment,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def resume(
        self, id: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> models.Deployment:
        """Let a paused deployment go on.

        - `id`: Id of the deployment, `dep-…`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/deployments/{id}/resume`, permission `deployments.manage`.
        """
        return self._calls.call(
            Request[models.Deployment](
                "POST",
                f"/api/v1/deployments/{segment(id)}/resume",
                models.Deployment,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def promote(
        self, id: str, *, if_match: int | str | None = None, idempotency_key: str | None = None
    ) -> models.Deployment:
        """Let all other instances follow the canaries now.

        - `id`: Id of the deployment, `dep-…`.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/deployments/{id}/promote`, permission `deployments.manage`.
        """
        return self._calls.call(
            Request[models.Deployment](
                "POST",
                f"/api/v1/deployments/{segment(id)}/promote",
                models.Deployment,
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def rollback(
        self,
        id: str,
        *,
        confirm: str | None = None,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Deployment:
        """Bring the instances back to the stable revision, and pin the group to it.

        - `id`: Id of the deployment, `dep-…`.
        - `confirm`: The name of the group or node once more: then instances and worlds are given up that CONFIRMATION_REQUIRED named.
        - `reason`: Why, for everybody who looks at the deployment.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/deployments/{id}/rollback`, permission `deployments.manage`.
        """
        return self._calls.call(
            Request[models.Deployment](
                "POST",
                f"/api/v1/deployments/{segment(id)}/rollback",
                models.Deployment,
                query={"confirm": confirm},
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def cancel(
        self,
        id: str,
        *,
        reason: str | UnsetType = UNSET,
        if_match: int | str | None = None,
        idempotency_key: str | None = None,
    ) -> models.Deployment:
        """End a deployment where it is; what it started stays.

        - `id`: Id of the deployment, `dep-…`.
        - `reason`: Why, for everybody who looks at the deployment.
        - `if_match`: Only if the revision is still this one; otherwise `PreconditionFailed`.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/deployments/{id}/cancel`, permission `deployments.manage`.
        """
        return self._calls.call(
            Request[models.Deployment](
                "POST",
                f"/api/v1/deployments/{segment(id)}/cancel",
                models.Deployment,
                json={"reason": reason},
                headers={"If-Match": entity_tag(if_match)},
                keyed=True,
                key=idempotency_key,
            )
        )

    def why(self, id: str) -> models.WhyShape:
        """Why a deployment is in its state.

        - `id`: Id of the deployment, `dep-…`.

        `GET /api/v1/deployments/{id}/why`, permission `decisions.read`.
        """
        return self._calls.call(
            Request[models.WhyShape]("GET", f"/api/v1/deployments/{segment(id)}/why", models.WhyShape)
        )
