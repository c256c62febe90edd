"""TLS of a controller's HTTP listener, as its configuration says: none, from files, or by the cluster's authority."""

from __future__ import annotations

import functools
import pathlib
import ssl

from corral.controller.http.server.http_certificates import (
    CertificateFiles,
    CertificateSource,
    ClusterCertificates,
)
from corral.controller.http.server.served_certificate import ServedCertificate
from corral.controller.state.cluster_state import ClusterState
from corral.controller.term.cluster_init import open_authority, trusted_ca_pem
from corral.controller.term.listen_addresses import certificate_names
from corral.system.aio.tasks import Tasks
from corral.system.clock import Clock
from corral.system.controller_config import ControllerConfig


class HttpTls:
    """Opened before the listener, closed after it."""

    def __init__(self, config: ControllerConfig, *, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._tasks = Tasks()
        self._served = ServedCertificate() if config.http.tls.mode != "off" else None
        self._of_cluster: ClusterCertificates | None = None

    @property
    def context(self) -> ssl.SSLContext | None:
        """For the listener; None: plain HTTP."""
        return None if self._served is None else self._served.context

    async def open(self) -> None:
        """INVALID_CONFIG when the configured files cannot be used."""
        if self._served is None:
            return
        source = self._source(self._served)
        await source.open()
        self._tasks.spawn(source.follow(), name="http/follow-certificate")

    def _source(self, served: ServedCertificate) -> CertificateSource:
        tls = self._config.http.tls
        if tls.mode == "files":
            certificate, key = pathlib.Path(tls.certificate), pathlib.Path(tls.key)
            return CertificateFiles(served, certificate=certificate, key=key, clock=self._clock)
        self._of_cluster = ClusterCertificates(
            served,
            names=functools.partial(certificate_names, self._config.http),
            published=self._config.authority_path,
            clock=self._clock,
        )
        return self._of_cluster

    async def use_authority(self, state: ClusterState) -> None:
        """The cluster's authority is known, or may be another one. Idempotent; does nothing in the other modes."""
        if self._of_cluster is None or self._of_cluster.trusted_ca_pem == trusted_ca_pem(state):
            return
        authority = open_authority(state, key_path=self._config.cluster_key_path, clock=self._clock)
        await self._of_cluster.use(authority, trusted_ca_pem(state))

    async def close(self) -> None:
        await self._tasks.close()
