"""The routes of all modules that serve. A module's routes come and go together."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from corral.domain.module_decisions import not_installed
from corral.domain.module_manifest import ModuleHost
from corral.domain.module_records import PackageRecord
from corral.errors import Code, Rejected, Retryable
from corral.modules.package_store import PackageStore
from corral.modules.scope import Scope
from corral.modules.services.path_patterns import PathPattern
from corral.sdk.protocol.messages import RouteDeclaration


class RouteMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes. Call the module through `scope`, which counts and watches."""

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
    """Finds routes; `put` and `drop` are the engine's."""

    def __init__(self, book: PackageStore) -> None:
        self._book = book
        self._served: dict[str, _Served] = {}

    def put(self, scope: Scope, routes: Sequence[RouteDeclaration]) -> Callable[[], None]:
        """Bind all routes of a module at once, in place of whatever it had; returns how to drop them."""
        self._served[scope.module_id] = _Served(scope, routes)
        return lambda: self.drop(scope)

    def drop(self, scope: Scope) -> None:
        """Nothing happens when another scope has taken the place."""
        served = self._served.get(scope.module_id)
        if served is not None and served.scope is scope:
            del self._served[scope.module_id]

    def of(self, module_id: str) -> list[RouteDeclaration]:
        served = self._served.get(module_id)
        return [route for _, route in served.routes] if served else []

    def find(self, module_id: str, method: str, path: str) -> RouteMatch:
        """NOT_FOUND, METHOD_NOT_ALLOWED, or MODULE_NOT_ACTIVE while a module with a part here does not
        serve. `path` is what follows `/api/v1/modules/ID`."""
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
        record = self._book.find(module_id)
        if record is None:
            return not_installed(module_id, [known.id for known in self._book.all()])
        if ModuleHost.CONTROLLER not in record.manifest.hosts:  # routes are nowhere else
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
    """There is nothing here that could be asked, now or later."""
    return Rejected(
        Code.NOT_FOUND,
        f"module '{record.id}' has no part on the {host}: nothing of it answers there",
        hint=f"`corral module info {record.id}` shows where it runs",
    )
