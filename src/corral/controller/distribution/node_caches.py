"""Caches of nodes: queries to a node, and the values of its answer, which the API returns unchanged."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Final

import msgspec

from corral.controller.distribution.node_needs import Needs
from corral.controller.distribution.ports import offline
from corral.controller.instances.report_values import moment
from corral.controller.sessions.node_links import NodeLinks, answer_of, dismiss
from corral.controller.state.indexed_mirrors import TemplateMirror
from corral.domain.ids import NodeId
from corral.errors import Code, Retryable
from corral.system.entropy import Entropy, new_id
from corral.wire.v1.link_pb2 import ControllerMessage
from corral.wire.v1.plan_pb2 import CacheStatus, ConfigFormat

_ENTRIES: Final = 10_000
_TEXT: Final = 1000
_NAME: Final = 255
_FORMAT_PREFIX: Final = "CONFIG_FORMAT_"


class CachedTemplate(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    hash: str
    version: int | None
    """None: a version that the controller no longer keeps."""
    size: int
    last_used: dt.datetime | None


class CachedArtifact(msgspec.Struct, frozen=True, kw_only=True):
    platform: str
    version: str
    file: str
    size: int
    sha256: str
    cached_at: dt.datetime | None


class CachedBootstrap(msgspec.Struct, frozen=True, kw_only=True):
    """The files that a first run of a program made."""

    config_format: str
    version: str
    size: int


class CacheTrouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a node should fetch and could not."""

    subject: str
    """`template/NAME` or `artifact/PLATFORM/VERSION`."""
    code: str
    message: str


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """A node's cache, as the node reported it."""

    node: str
    total_bytes: int
    quota_bytes: int
    templates: tuple[CachedTemplate, ...] = ()
    artifacts: tuple[CachedArtifact, ...] = ()
    bootstraps: tuple[CachedBootstrap, ...] = ()
    failures: tuple[CacheTrouble, ...] = ()


class SyncAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result on one node."""

    node: str
    ok: bool
    code: str = ""
    message: str = ""


def cache_report(node: NodeId, status: CacheStatus, templates: TemplateMirror) -> CacheReport:
    """A node's report, bounded, with the numbers of the known versions."""
    return CacheReport(
        node=node,
        total_bytes=max(0, status.total_size_bytes),
        quota_bytes=max(0, status.quota_bytes),
        templates=tuple(
            CachedTemplate(
                name=entry.name[:_NAME],
                hash=entry.hash[:_NAME],
                version=version.number if (version := templates.version_of(entry.name, entry.hash)) else None,
                size=max(0, entry.size_bytes),
                last_used=moment(entry.last_used_ms),
            )
            for entry in status.templates[:_ENTRIES]
        ),
        artifacts=tuple(
            CachedArtifact(
                platform=entry.platform[:_NAME],
                version=entry.version[:_NAME],
                file=entry.jar_file[:_NAME],
                size=max(0, entry.size_bytes),
                sha256=entry.sha256[:_NAME],
                cached_at=moment(entry.cached_at_ms),
            )
            for entry in status.jars[:_ENTRIES]
        ),
        bootstraps=tuple(
            CachedBootstrap(
                config_format=_format_name(entry.config_format),
                version=entry.version[:_NAME],
                size=max(0, entry.size_bytes),
            )
            for entry in status.bootstraps[:_ENTRIES]
        ),
        failures=tuple(
            CacheTrouble(
                subject=entry.subject[:_NAME],
                code=entry.error_code[:_NAME],
                message=entry.error_message[:_TEXT],
            )
            for entry in status.failures[:_ENTRIES]
        ),
    )


def with_lacks(report: CacheReport, needs: Needs) -> CacheReport:
    """The report of a daemon that does not say what it could not fetch: all that its cache lacks is a failure."""
    held = {artifact.sha256 for artifact in report.artifacts}
    lacking = {artifact for artifact, _ in needs.artifacts if artifact.sha256 not in held}
    artifacts = {f"artifact/{each.platform}/{each.version}": Code.NOT_FOUND for each in lacking}
    templates = {f"template/{name}": Code.NOT_SUPPORTED for name, _ in needs.templates}
    failures = tuple(
        CacheTrouble(subject=subject, code=code.name, message=_LACKS[code])
        for subject, code in sorted((artifacts | templates).items())
    )
    return msgspec.structs.replace(report, failures=report.failures + failures)


_LACKS: Final = {
    Code.NOT_FOUND: "not in the cache so far; this daemon does not report the end of a download, so look again with "
    "'corral node cache'",
    Code.NOT_SUPPORTED: "this daemon fetches templates with its starts only; update it",
}


def _format_name(value: int) -> str:
    """The format as documents spell it; empty for none and for an unknown one."""
    if not value or value not in ConfigFormat.values():
        return ""
    return ConfigFormat.Name(value).removeprefix(_FORMAT_PREFIX).lower()


MAX_WAITING: Final = 16
"""The most open queries to one node."""


class PendingQuery(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    answer: asyncio.Future[CacheStatus]


class CacheQueries:
    """Queries that are sent and not yet answered."""

    def __init__(self, *, links: NodeLinks, entropy: Entropy) -> None:
        self._links = links
        self._entropy = entropy
        self._open: dict[str, PendingQuery] = {}

    async def ask(
        self, node_id: NodeId, message_of: Callable[[str], ControllerMessage], *, timeout: float
    ) -> CacheStatus:
        """The node's answer to the message made for a new request id. NODE_OFFLINE when it is not, or no
        longer, connected; TIMEOUT; RATE_LIMITED when it has too many open queries."""
        link = self._links.find(node_id)
        if link is None:
            raise offline(node_id)
        if sum(1 for each in self._open.values() if each.node_id == node_id) >= MAX_WAITING:
            raise Retryable(
                Code.RATE_LIMITED,
                f"node '{node_id}' has {MAX_WAITING} questions to answer already",
                retry_after=5.0,
            )
        request_id = new_id("cache", self._entropy)
        answer: asyncio.Future[CacheStatus] = asyncio.get_running_loop().create_future()
        self._open[request_id] = PendingQuery(node_id=node_id, answer=answer)
        try:
            if not link.send(message_of(request_id)):
                raise offline(node_id)
            async with asyncio.timeout(timeout):
                return await answer_of(answer, over=link.over, gone=offline(node_id))
        except TimeoutError:
            raise Retryable(
                Code.TIMEOUT,
                f"node '{node_id}' did not answer within {timeout:g} s",
                hint="it may be fetching still; ask for its cache later",
            ) from None
        finally:
            del self._open[request_id]

    def answered(self, node_id: NodeId, status: CacheStatus) -> bool:
        """A cache status of a node; returns whether a query was pending for it."""
        question = self._open.get(status.request_id)
        if question is None or question.node_id != node_id or question.answer.done():
            return False
        question.answer.set_result(status)
        return True

    def close(self) -> None:
        """End all queries with the term: no answer will arrive."""
        dismiss(question.answer for question in self._open.values())
