"""The cache as the controller and its people see it."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Any, Final

from corral.daemon.cache.contents import Shelves
from corral.daemon.cache.quota import Room
from corral.wire.v1 import plan_pb2
from corral.wire.v1.plan_pb2 import (
    BootstrapCacheEntry,
    CacheFailure,
    CacheStatus,
    JarCacheEntry,
    TemplateCacheEntry,
)

MOST_ENTRIES: Final = 2000
"""Of each kind, the last used: an answer has to fit into a frame."""


def cache_status(
    shelves: Shelves, room: Room, *, request_id: str = "", failures: Iterable[CacheFailure] = ()
) -> CacheStatus:
    templates = heapq.nlargest(MOST_ENTRIES, shelves.templates.all(), key=lambda one: one.used_ms)
    artifacts = heapq.nlargest(MOST_ENTRIES, shelves.artifacts.all(), key=lambda one: one.used_ms)
    bootstraps = heapq.nlargest(MOST_ENTRIES, shelves.bootstraps.all(), key=lambda one: one.used_ms)
    return CacheStatus(
        templates=[
            TemplateCacheEntry(name=one.name, hash=one.hash, size_bytes=one.size, last_used_ms=one.used_ms)
            for one in templates
        ],
        jars=[
            JarCacheEntry(
                platform=one.facts.platform,
                version=one.facts.version,
                jar_file=one.facts.file,
                size_bytes=one.facts.size,
                sha256=one.facts.sha256,
                cached_at_ms=one.facts.cached_at_ms,
            )
            for one in artifacts
        ],
        bootstraps=[
            BootstrapCacheEntry(
                config_format=config_format_number(one.key.config_format),
                version=one.key.version,
                has_cds=one.has_cds,
                size_bytes=one.size,
            )
            for one in bootstraps
        ],
        total_size_bytes=shelves.size,
        request_id=request_id,
        failures=failures,
        quota_bytes=room.quota,
    )


def config_format_number(name: str) -> Any:
    """The wire's word for a configuration format; unspecified for one the wire has none for."""
    known = dict(plan_pb2.ConfigFormat.items())
    return known.get(f"CONFIG_FORMAT_{name.upper()}", plan_pb2.CONFIG_FORMAT_UNSPECIFIED)
