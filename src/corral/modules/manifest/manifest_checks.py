"""Checks of a manifest beyond its types: each check yields all that it finds, none stops at the first."""

from __future__ import annotations

import keyword
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

from corral.domain.events import EventType, event_type
from corral.domain.file_paths import check_path
from corral.domain.modules.manifest import (
    ANY_EVENT,
    MANIFEST_VERSION,
    MAX_HOOK_DEADLINE_MS,
    RESERVED_IDS,
    Extension,
    FrontendPart,
    Manifest,
    ModuleHost,
)
from corral.domain.permissions import Permission
from corral.domain.versions import parse_range, parse_version
from corral.errors import CorralError, Rejected, Retryable, nearest
from corral.modules.manifest.settings import check_schema

ID: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
ID_RULE: Final = "use 1 to 63 of a-z, 0-9 and '-', beginning with a letter"
_CAPABILITY: Final = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z0-9][a-z0-9_-]*)*")
_CAPABILITY_MAX: Final = 128
_EVENT: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PLATFORM: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")
FOUND_FIRST: Final = sys.stdlib_module_names | {"msgspec"}
"""Packages that modules import from here before their own archive."""

T = TypeVar("T")


class ManifestFinding(NamedTuple):
    path: str
    why: str


Findings = Iterator[ManifestFinding]


def check_manifest(manifest: Manifest) -> Findings:
    """All problems of a manifest whose types are right."""
    yield from _identity(manifest)
    yield from _backends(manifest)
    yield from _provides(manifest)
    yield from _requires(manifest)
    yield from _events(manifest)
    yield from _limits(manifest)
    if manifest.frontend is not None:
        yield from _frontend(manifest.frontend)
    for at, extension in enumerate(manifest.extensions):
        yield from _extension(extension, f"extensions[{at}]")
    yield from _twice([each.id for each in manifest.extensions], "extensions[{}].id")
    yield from _attempt("config", check_schema, manifest.config)


def _identity(manifest: Manifest) -> Findings:
    if manifest.manifest_version != MANIFEST_VERSION:
        yield ManifestFinding(
            "manifestVersion", f"{manifest.manifest_version} is not known; write {MANIFEST_VERSION}"
        )
    if not ID.fullmatch(manifest.id):
        yield ManifestFinding("id", f"{manifest.id[:80]!r} is not a module id; {ID_RULE}")
    elif manifest.id in RESERVED_IDS:
        yield ManifestFinding("id", f"'{manifest.id}' is reserved; choose another")
    yield from _attempt("version", parse_version, manifest.version)
    yield from _attempt("api", parse_range, manifest.api)
    yield from _length("title", manifest.title, 100)
    yield from _length("description", manifest.description, 2000)


def _backends(manifest: Manifest) -> Findings:
    if not manifest.hosts:
        yield ManifestFinding("hosts", "it is empty; name 'controller', 'daemon' or both")
    yield from _twice(list(manifest.hosts), "hosts[{}]")
    for host in ModuleHost:
        path = f"backend.{host}"
        backend = manifest.backend.controller if host is ModuleHost.CONTROLLER else manifest.backend.daemon
        if backend is None:
            if host in manifest.hosts:
                yield ManifestFinding(path, f"it is missing, but hosts names '{host}'")
            continue
        if host not in manifest.hosts:
            yield ManifestFinding(path, f"hosts does not name '{host}'; add it there, or remove this")
        if why := _entrypoint_problem(backend.entrypoint):
            yield ManifestFinding(f"{path}.entrypoint", why)
        if not 1 <= backend.hook_deadline_ms <= MAX_HOOK_DEADLINE_MS:
            yield ManifestFinding(
                f"{path}.hookDeadlineMs", f"it must be between 1 and {MAX_HOOK_DEADLINE_MS}"
            )


def _entrypoint_problem(text: str) -> str:
    module, _, name = text.partition(":")
    words = [*module.split("."), name]
    if not all(word.isascii() and word.isidentifier() and not keyword.iskeyword(word) for word in words):
        return f"{text[:80]!r} is not an entrypoint; write it as package.module:Class"
    if words[0] == "corral":
        return "the package 'corral' is not the module's own"
    if words[0] in FOUND_FIRST:
        return f"'{words[0]}' is a package of Python or the SDK, which is found first; rename yours"
    return ""


def _provides(manifest: Manifest) -> Findings:
    provides = manifest.capabilities.provides
    for at, provision in enumerate(provides):
        path = f"capabilities.provides[{at}]"
        yield from _capability(provision.id, f"{path}.id")
        yield from _attempt(f"{path}.version", parse_version, provision.version)
        for key, text in (
            ("deprecatedSince", provision.deprecated_since),
            ("removedIn", provision.removed_in),
        ):
            if text:
                yield from _attempt(f"{path}.{key}", parse_version, text)
    yield from _twice([each.id for each in provides], "capabilities.provides[{}].id")


def _requires(manifest: Manifest) -> Findings:
    requires = manifest.capabilities.requires
    for at, requirement in enumerate(requires):
        path = f"capabilities.requires[{at}]"
        yield from _capability(requirement.id, f"{path}.id")
        yield from _attempt(f"{path}.versionRange", parse_range, requirement.version_range)
        if requirement.from_ == "node" and ModuleHost.DAEMON not in manifest.hosts:
            yield ManifestFinding(
                f"{path}.from", "a node's capabilities are for modules with 'daemon' among their hosts"
            )
    yield from _twice([each.id for each in requires], "capabilities.requires[{}].id")


def _capability(id: str, path: str) -> Findings:
    if len(id) > _CAPABILITY_MAX or not _CAPABILITY.fullmatch(id):
        yield ManifestFinding(path, f"{id[:80]!r} is not a capability id; write it as in 'player.journey'")


def _events(manifest: Manifest) -> Findings:
    for at, type in enumerate(manifest.events.publishes):
        if not _EVENT.fullmatch(type):
            yield ManifestFinding(
                f"events.publishes[{at}]",
                f"{type[:80]!r} is not an event type; write it as in 'PLAYER_JOINED'",
            )
    for at, type in enumerate(manifest.events.subscribes):
        if type == ANY_EVENT:
            if ModuleHost.DAEMON in manifest.hosts:
                yield ManifestFinding(
                    f"events.subscribes[{at}]", "a module with 'daemon' among its hosts lists each type"
                )
            continue
        module, slash, own = type.rpartition("/")
        if slash and ID.fullmatch(module) and _EVENT.fullmatch(own):
            continue
        if event_type(type) is None:
            guess = nearest(type, EventType.__members__)
            way = f"did you mean '{guess}'?" if guess else "a module's own are written as MODULE/TYPE"
            yield ManifestFinding(f"events.subscribes[{at}]", f"unknown event type {type[:80]!r}; {way}")
    yield from _twice(manifest.events.publishes, "events.publishes[{}]")
    yield from _twice(manifest.events.subscribes, "events.subscribes[{}]")


def _limits(manifest: Manifest) -> Findings:
    storage, limits = manifest.storage.limits, manifest.limits
    yield from _between("storage.limits.documentsMb", storage.documents_mb, 1, 1_048_576)
    yield from _between("storage.limits.keyValueMb", storage.key_value_mb, 1, 65_536)
    for path, value, low, high in (
        ("limits.memoryMb", limits.memory_mb, 32, 1_048_576),
        ("limits.processes", limits.processes, 1, 100_000),
        ("limits.cpuWeight", limits.cpu_weight, 1, 10_000),
    ):
        if value:  # 0: the host's configured value
            yield from _between(path, value, low, high)


def _frontend(frontend: FrontendPart) -> Findings:
    yield from _path("frontend.entry", frontend.entry)
    if not frontend.title:
        yield ManifestFinding("frontend.title", "it is empty")
    yield from _length("frontend.title", frontend.title, 100)
    yield from _length("frontend.icon", frontend.icon, 200)
    yield from _length("frontend.nav", frontend.nav, 200)
    known = [each.value for each in Permission]
    for at, permission in enumerate(frontend.permissions):
        if permission not in known:
            guess = nearest(permission, known)
            way = f"did you mean '{guess}'?" if guess else f"known: {', '.join(known)}"
            yield ManifestFinding(
                f"frontend.permissions[{at}]", f"unknown permission {permission[:80]!r}; {way}"
            )


def _extension(extension: Extension, path: str) -> Findings:
    if not ID.fullmatch(extension.id):
        yield ManifestFinding(f"{path}.id", f"{extension.id[:80]!r} is not an extension id; {ID_RULE}")
    if extension.activation not in ("always", "requested"):
        yield ManifestFinding(f"{path}.activation", "it must be 'always' or 'requested'")
    for at, other in enumerate(extension.conflicts):
        if not ID.fullmatch(other) or other == extension.id:
            yield ManifestFinding(f"{path}.conflicts[{at}]", f"{other[:80]!r} is not another extension's id")
    if not extension.variants:
        yield ManifestFinding(f"{path}.variants", "it is empty")
    for at, variant in enumerate(extension.variants):
        place = f"{path}.variants[{at}]"
        if not ID.fullmatch(variant.id):
            yield ManifestFinding(f"{place}.id", f"{variant.id[:80]!r} is not a variant id; {ID_RULE}")
        for number, platform in enumerate(variant.platforms):
            if not _PLATFORM.fullmatch(platform):
                yield ManifestFinding(f"{place}.platforms[{number}]", f"{platform[:80]!r} is not a platform")
        yield from _attempt(f"{place}.versionRange", parse_range, variant.version_range)
        yield from _path(f"{place}.file", variant.file)
        yield from _path(f"{place}.installPath", variant.install_path)
        if not _SHA256.fullmatch(variant.sha256):
            yield ManifestFinding(f"{place}.sha256", "it must be 64 hexadecimal digits in lower case")
    yield from _twice([each.id for each in extension.variants], path + ".variants[{}].id")


def _path(path: str, text: str) -> Findings:
    try:
        check_path(text)
    except Rejected as refused:
        yield ManifestFinding(path, refused.message)


def _attempt(path: str, check: Callable[[T], object], value: T) -> Findings:
    try:
        check(value)
    except Retryable:
        raise  # not a problem of the manifest
    except CorralError as refused:
        inner = f"{path}.{refused.field}" if refused.field else path
        yield ManifestFinding(inner, str(refused))


def _length(path: str, text: str, most: int) -> Findings:
    if len(text) > most:
        yield ManifestFinding(path, f"it is longer than {most} characters")


def _between(path: str, value: int, low: int, high: int) -> Findings:
    if not low <= value <= high:
        yield ManifestFinding(path, f"it must be between {low} and {high}")


def _twice(ids: Iterable[str], path: str) -> Findings:
    """Duplicates; the path has a placeholder for the index."""
    seen: Counter[str] = Counter()
    for at, id in enumerate(ids):
        seen[id] += 1
        if seen[id] == 2:
            yield ManifestFinding(path.format(at), f"'{id[:80]}' stands there twice")
