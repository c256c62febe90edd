"""Route table: the routes of all modules that serve, and their path patterns.

Patterns are `/items/{id}` and `/files/{rest:path}`. A module's routes are added and removed together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from corral.domain.modules.lifecycle_decisions import not_installed
from corral.domain.modules.manifest import ModuleHost
from corral.domain.modules.records import PackageRecord
from corral.errors import Code, Rejected, Retryable
from corral.modules.package_store import PackageStore
from corral.modules.scope import Scope
from corral.sdk.protocol.messages import RouteDeclaration

_MAX_LENGTH: Final = 300
_MAX_SEGMENTS: Final = 20


class PathPattern:
    """One pattern. `ValueError` with the reason for an invalid one. Matching takes time linear in the
    path."""

    def __init__(self, text: str) -> None:
        if not text.startswith("/") or len(text) > _MAX_LENGTH:
            raise ValueError(f"a path begins with '/' and has at most {_MAX_LENGTH} characters")
        segments = text[1:].split("/") if text != "/" else []
        if len(segments) > _MAX_SEGMENTS:
            raise ValueError(f"a path has at most {_MAX_SEGMENTS} segments")
        self.text = text
        self.rest = ""
        self._segments: list[tuple[bool, str]] = []
        for number, segment in enumerate(segments):
            self._add(segment, last=number == len(segments) - 1)
        names = [name for is_place, name in self._segments if is_place] + ([self.rest] if self.rest else [])
        if len(names) != len(set(names)):
            raise ValueError("a name stands in it twice")

    def _add(self, segment: str, *, last: bool) -> None:
        if not (segment.startswith("{") and segment.endswith("}")):
            if not segment or segment in (".", "..") or "{" in segment or "}" in segment:
                raise ValueError(
                    f"'{segment}' cannot be a segment; '{{name}}' takes the place of a whole one"
                )
            self._segments.append((False, segment))
            return
        name, _, kind = segment[1:-1].partition(":")
        if not name.isidentifier() or kind not in ("", "path") or (kind and not last):
            raise ValueError(f"'{segment}' is neither '{{name}}' nor, at the end, '{{name:path}}'")
        if kind:
            self.rest = name
        else:
            self._segments.append((True, name))

    @property
    def first(self) -> str:
        """The first segment if it is fixed; "" if it is a parameter."""
        return "" if not self._segments or self._segments[0][0] else self._segments[0][1]

    @property
    def shape(self) -> str:
        """Equal for two patterns that match the same paths."""
        fixed = "".join("/{}" if is_place else f"/{name}" for is_place, name in self._segments)
        return fixed + ("/**" if self.rest else "")

    @property
    def rank(self) -> tuple[tuple[int, ...], int]:
        """Sort key: the most exact pattern comes first."""
        return tuple(int(is_place) for is_place, _ in self._segments) + ((2,) if self.rest else ()), -len(
            self._segments
        )

    def match(self, path: str) -> dict[str, str] | None:
        """The values by name, or None."""
        given = path[1:].split("/") if path != "/" else []
        if len(given) < len(self._segments) or (not self.rest and len(given) != len(self._segments)):
            return None
        found: dict[str, str] = {}
        for (is_place, name), segment in zip(self._segments, given, strict=False):
            if is_place and segment:
                found[name] = segment
            elif is_place or segment != name:
                return None
        if self.rest:
            found[self.rest] = "/".join(given[len(self._segments) :])
        return found


class RouteMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Target of a request. Call the module through `scope`, which counts and watches."""

    declaration: RouteDeclaration
    parameters: dict[str, str]
    scope: Scope


class _Served:
    def __init__(self, scope: Scope, routes: Sequence[RouteDeclaration]) -> None:
        self.scope = scope
        self.routes = sorted(
            ((PathPattern(route.path), route) for route in routes), key=lambda pair: pair[0].rank
        )


class RouteTable:
    """Finds routes; only the engine calls `put` and `drop`."""

    def __init__(self, store: PackageStore) -> None:
        self._store = store
        self._served: dict[str, _Served] = {}

    def put(self, scope: Scope, routes: Sequence[RouteDeclaration]) -> Callable[[], None]:
        """Bind all routes of a module at once, in place of its former ones; returns how to drop them."""
        self._served[scope.module_id] = _Served(scope, routes)
        return lambda: self.drop(scope)

    def drop(self, scope: Scope) -> None:
        """Drop the routes of a scope; no effect when another scope has replaced it."""
        served = self._served.get(scope.module_id)
        if served is not None and served.scope is scope:
            del self._served[scope.module_id]

    def of(self, module_id: str) -> list[RouteDeclaration]:
        served = self._served.get(module_id)
        return [route for _, route in served.routes] if served else []

    def find(self, module_id: str, method: str, path: str) -> RouteMatch:
        """NOT_FOUND, METHOD_NOT_ALLOWED, or MODULE_NOT_ACTIVE while a module with a part here does not serve.
        `path` is what follows `/api/v1/modules/ID`."""
        served = self._served.get(module_id)
        if served is None:
            raise self._absent(module_id)
        allowed: list[str] = []
        for pattern, route in served.routes:
            parameters = pattern.match(path)
            if parameters is None:
                continue
            if route.method == method:
                return RouteMatch(declaration=route, parameters=parameters, scope=served.scope)
            allowed.append(route.method)
        if allowed:
            raise Rejected(
                Code.METHOD_NOT_ALLOWED,
                f"module '{module_id}' does not take {method} at '{path[:200]}'",
                hint=f"allowed: {', '.join(sorted(set(allowed)))}",
            )
        raise Rejected(Code.NOT_FOUND, f"module '{module_id}' has no route '{path[:200]}'")

    def _absent(self, module_id: str) -> Exception:
        record = self._store.find(module_id)
        if record is None:
            return not_installed(module_id, [known.id for known in self._store.all()])
        if ModuleHost.CONTROLLER not in record.manifest.hosts:  # only controllers serve routes
            return without_part(record, ModuleHost.CONTROLLER)
        return not_active(record)


def not_active(record: PackageRecord) -> Retryable:
    why = f" ({record.reason})" if record.reason else ""
    return Retryable(
        Code.MODULE_NOT_ACTIVE,
        f"module '{record.id}' is {record.phase.name}{why}",
        hint=f"see `corral module info {record.id}`",
        retry_after=1.0,
    )


def without_part(record: PackageRecord, host: ModuleHost) -> Rejected:
    """The error for a module without a part on this host: no retry will help."""
    return Rejected(
        Code.NOT_FOUND,
        f"module '{record.id}' has no part on the {host}: nothing of it answers there",
        hint=f"`corral module info {record.id}` shows where it runs",
    )
