"""Methods of `cluster`. Generated from the route table of the API by tools/generate_client.py; do not edit."""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from corral.client.async_calls import AsyncCalls
from corral.client.generated import models
from corral.client.requests import UPLOAD_SECONDS, Request


class AsyncCluster:
    """Operations of `/api/v1/cluster`, `/api/v1/openapi.json`."""

    def __init__(self, calls: AsyncCalls) -> None:
        self._calls = calls

    async def get(self) -> models.Cluster:
        """Who leads, and what the cluster holds.

        `GET /api/v1/cluster`, permission `cluster.read`.
        """
        return await self._calls.call(Request[models.Cluster]("GET", "/api/v1/cluster", models.Cluster))

    async def raise_epoch(self, *, idempotency_key: str | None = None) -> models.Epoch:
        """Lift the epoch above every one that a restore may have left behind.

        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/cluster/raise-epoch`, permission `cluster.manage`.
        """
        return await self._calls.call(
            Request[models.Epoch](
                "POST",
                "/api/v1/cluster/raise-epoch",
                models.Epoch,
                keyed=True,
                key=idempotency_key,
                waits=UPLOAD_SECONDS,
            )
        )

    async def shutdown(
        self, *, reason: str | UnsetType = UNSET, idempotency_key: str | None = None
    ) -> models.ShutDownShape:
        """End the controller that leads, in order; instances and daemons go on.

        - `reason`: Why it is done; it is in the audit and in the controller's log.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/cluster/shutdown`, permission `cluster.manage`.
        """
        return await self._calls.call(
            Request[models.ShutDownShape](
                "POST",
                "/api/v1/cluster/shutdown",
                models.ShutDownShape,
                json={"reason": reason},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def repair_sequence(self, *, idempotency_key: str | None = None) -> models.SequenceShape:
        """Set the counter of starts just above the highest number that a record uses.

        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/cluster/repair-sequence`, permission `cluster.manage`.
        """
        return await self._calls.call(
            Request[models.SequenceShape](
                "POST",
                "/api/v1/cluster/repair-sequence",
                models.SequenceShape,
                keyed=True,
                key=idempotency_key,
            )
        )

    async def certificates(
        self, *, name: str, csr_pem: str, idempotency_key: str | None = None
    ) -> models.IssuedCertificate:
        """Issue an administrator's certificate; it ends with the token that asked for it.

        - `name`: Name that the certificate is issued to.
        - `csr_pem`: Certificate signing request in PEM form.
        - `idempotency_key`: The same key takes effect once; made unless given.

        `POST /api/v1/cluster/certificates`, permission `cluster.manage`.
        """
        return await self._calls.call(
            Request[models.IssuedCertificate](
                "POST",
                "/api/v1/cluster/certificates",
                models.IssuedCertificate,
                json={"name": name, "csr_pem": csr_pem},
                keyed=True,
                key=idempotency_key,
            )
        )

    async def openapi(self) -> models.OpenApi:
        """This description.

        `GET /api/v1/openapi.json`, permission `self.read`.
        """
        return await self._calls.call(Request[models.OpenApi]("GET", "/api/v1/openapi.json", models.OpenApi))
