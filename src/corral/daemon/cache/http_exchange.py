"""The exchange of a download: a GET of its target, with the errors of downloads."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence

from corral.daemon.cache.download_targets import DownloadTarget
from corral.errors import Code, Rejected, Retryable
from corral.system.http_exchange import HttpAnswer, HttpFault, OutwardRequest, http_exchange


@contextlib.asynccontextmanager
async def exchange(
    target: DownloadTarget,
    addresses: Sequence[str],
    headers: Mapping[str, str],
    *,
    timeout: float,
    tls: ssl.SSLContext,
) -> AsyncIterator[HttpAnswer]:
    """Send the request and read the head of the answer, within the timeout; the caller reads the body in here."""
    credentials = {"Authorization": target.authorization} if target.authorization else {}
    request = OutwardRequest(
        scheme=target.scheme,
        host=target.host,
        port=target.port,
        host_header=target.host_header,
        path=target.path,
        headers={**credentials, **headers},
    )
    try:
        async with http_exchange(request, addresses, timeout=timeout, tls=tls) as answer:
            yield answer
    except HttpFault as fault:
        kind = Retryable if fault.retryable else Rejected
        raise kind(Code.CACHE_DOWNLOAD_FAILED, f"{target.shown}: {fault}") from None
