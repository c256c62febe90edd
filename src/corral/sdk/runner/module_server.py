"""Server of the host's calls in a module's process: the table of methods, and the module's registrations."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

import msgspec

from corral.sdk.capabilities import CapabilityBinding
from corral.sdk.commands import Commands
from corral.sdk.context import Host, ModuleContext
from corral.sdk.contracts import Contract, read_contract
from corral.sdk.errors import BadRegistration, CapabilityTypeError, CapabilityUnavailable
from corral.sdk.health import Health
from corral.sdk.instances import ExitInfo, InstanceHandle, InstanceSpec
from corral.sdk.module_classes import ALL_HOOKS, LIFECYCLE_HOOKS, DaemonModule, PlatformModule
from corral.sdk.protocol import messages as m
from corral.sdk.protocol.messages import CapabilityAnswer, CapabilityRequest, Registrations
from corral.sdk.routes import Routes
from corral.sdk.runner.failures import CallRefused, failure_text
from corral.sdk.runner.workers import Workers
from corral.sdk.runner_port import HostLink, Invoke
from corral.sdk.version import SDK_VERSION


class Registered:
    """Replaced as a whole at each start: a module that was restarted answers with its new targets."""

    def __init__(self) -> None:
        self.routes = Routes()
        self.commands = Commands()
        self._targets: dict[str, tuple[Contract, object]] = {}

    def bind(self, id: str, contract: Contract, target: object) -> None:
        """Raises BadRegistration when the target lacks a method of the contract."""
        if id in self._targets:
            raise BadRegistration(f"the capability '{id}' is bound twice")
        for method in contract.methods.values():
            method.check_provided(target)
        self._targets[id] = (contract, target)

    def declared(self) -> Registrations:
        return Registrations(
            routes=self.routes._declarations(),
            commands=self.commands._declarations(),
            bindings=tuple(contract.declaration(id) for id, (contract, _) in self._targets.items()),
        )

    async def call(self, request: CapabilityRequest, invoke: Invoke) -> CapabilityAnswer:
        contract, target = self._targets.get(request.capability, (None, None))
        if contract is None:
            raise CapabilityUnavailable(f"the capability '{request.capability}' is not bound")
        method = contract.methods.get(request.method)
        if method is None:
            known = ", ".join(contract.methods)
            raise CapabilityTypeError(
                f"{contract.name} has no method '{request.method}'", hint=f"it has: {known}"
            )
        arguments = method.unpack(request.arguments)
        bound = getattr(target, method.name)

        label = f"capability {request.capability}.{method.name}"
        value = await invoke(label, functools.partial(bound, **arguments))
        return CapabilityAnswer(value=method.pack_result(value))


async def register(module: Any, invoke: Invoke) -> Registered:
    """Raises what the module raises, and BadRegistration."""
    registered = Registered()
    if hasattr(module, "register_routes"):
        await invoke("register_routes", module.register_routes, registered.routes)
    await invoke("register_commands", module.register_commands, registered.commands)
    bindings = await invoke("capability_handles", module.capability_handles)
    for binding in _iterable(bindings):
        if not isinstance(binding, CapabilityBinding):
            raise BadRegistration(f"capability_handles gave {binding!r:.100}; CapabilityBindings are wanted")
        target = await invoke(f"factory of {binding.id}", binding.factory)
        registered.bind(binding.id, read_contract(binding.contract), target)
    return registered


def _iterable(bindings: object) -> Iterable[object]:
    if bindings is None:
        return ()
    if not isinstance(bindings, Iterable):
        raise BadRegistration("capability_handles has to return CapabilityBindings")
    return bindings


T = TypeVar("T")
Load = Callable[[str], type]
_INHERITED_CHECKS = (PlatformModule.health_check, DaemonModule.health_check)
_ARGUMENTS = {"spec": InstanceSpec, "handle": InstanceHandle, "exit": ExitInfo}


class ModuleServer:
    """One module behind the messages. `serve` and `on_notice` go to a Connection; `link` is that
    connection, given before the first call is served.

    `finish` is what ends the process; in the bench, which shares its process with a test, nothing."""

    def __init__(self, *, workers: Workers, load: Load, finish: Callable[[], Awaitable[m.Lingering]]) -> None:
        self._workers = workers
        self._load = load
        self._finish = finish
        self.link: HostLink | None = None
        self.context: ModuleContext | None = None
        self._module: Any = None
        self._registered = Registered()
        self._table: dict[str, Callable[[msgspec.Raw], Awaitable[object]]] = {
            m.CONSTRUCT: self._construct,
            m.REGISTRATIONS: self._registrations,
            m.DELIVER: self._deliver,
            m.RUN_TASK: self._run_task,
            m.ROUTE: self._route,
            m.CAPABILITY: self._capability,
            m.COMMAND: self._command,
            m.HEALTH: self._health,
            m.FINISH: self._end,
        }

    async def serve(self, method: str, raw: msgspec.Raw) -> object:
        if method.startswith(m.HOOK_PREFIX):
            return await self._hook(method.removeprefix(m.HOOK_PREFIX), raw)
        answer = self._table.get(method)
        if answer is None:
            raise CallRefused("UnknownMethod", f"the SDK {SDK_VERSION} does not know '{method}'")
        return await answer(raw)

    def on_notice(self, method: str, raw: msgspec.Raw) -> None:
        """An unknown notice comes from a newer host, and is ignored."""
        if method == m.CAPABILITY_STATES and self.context is not None:
            self.context.capabilities._update(_read(raw, m.CapabilityStates).states)

    async def invoke(self, label: str, function: Any, *arguments: object) -> Any:
        return await _invoked(self._workers.run, label, function, *arguments)

    async def _invoke_hook(self, label: str, function: Any, *arguments: object) -> Any:
        """Run a hook with priority: a late hook makes the module FAILED, and that must not result from
        waiting behind the module's own blocking work."""
        return await _invoked(self._workers.run_urgent, label, function, *arguments)

    # --- the table ------------------------------------------------------------------------------

    async def _construct(self, raw: msgspec.Raw) -> m.Constructed:
        body = _read(raw, m.Construct)
        if self._module is not None or self.link is None:
            raise CallRefused("ConstructedAlready", f"{body.module_id} was constructed already")
        context = ModuleContext(body, link=self.link, invoke=self.invoke)
        try:
            kind = await self._workers.run(f"import {body.entrypoint}", self._load, body.entrypoint)
            _check_kind(kind, context.host, body.entrypoint)
        except BaseException as error:
            raise _as("ImportFailed", error) from error
        try:
            self._module = await self._workers.run("constructor", kind)
        except BaseException as error:
            raise _as("ConstructFailed", error) from error
        self.context = context
        return m.Constructed(hooks=hooks_of(kind), sdk=SDK_VERSION)

    async def _hook(self, name: str, raw: msgspec.Raw) -> m.HookAnswer:
        context, values = self._ready(), _read(raw, m.HookArguments).values
        if name not in ALL_HOOKS:
            raise CallRefused("UnknownMethod", f"the SDK {SDK_VERSION} has no hook '{name}'")
        hook = getattr(self._module, name, None)
        if hook is None:
            return m.HookAnswer()
        if name == "on_reload":
            return await self._reload(hook, values)
        if name in LIFECYCLE_HOOKS:
            await self._invoke_hook(name, hook, context)
            return m.HookAnswer()
        arguments = {key: msgspec.convert(value, _ARGUMENTS[key]) for key, value in values.items()}
        await self._invoke_hook(name, hook, *arguments.values())
        spec = arguments.get("spec")
        return m.HookAnswer(value=_changes(spec) if isinstance(spec, InstanceSpec) else None)

    async def _reload(self, hook: Any, values: dict[str, Any]) -> m.HookAnswer:
        context = self._ready()
        before, context.config = context.config, values.get("config", {})
        try:
            await self._invoke_hook("on_reload", hook, context)
        except BaseException:
            context.config = before
            raise
        return m.HookAnswer()

    async def _registrations(self, _: msgspec.Raw) -> m.Registrations:
        self._ready()
        self._registered = await register(self._module, self._invoke_hook)
        return self._registered.declared()

    async def _deliver(self, raw: msgspec.Raw) -> m.Nothing:
        await self._ready().events._deliver(_read(raw, m.Delivery), self.invoke)
        return m.Nothing()

    async def _run_task(self, raw: msgspec.Raw) -> m.Nothing:
        await self._ready().scheduler._run(_read(raw, m.TaskRun).task, self.invoke)
        return m.Nothing()

    async def _route(self, raw: msgspec.Raw) -> object:
        return await self._registered.routes._answer(_read(raw, m.RouteRequest), self.invoke)

    async def _capability(self, raw: msgspec.Raw) -> m.CapabilityAnswer:
        return await self._registered.call(_read(raw, m.CapabilityRequest), self.invoke)

    async def _command(self, raw: msgspec.Raw) -> m.CommandAnswer:
        return await self._registered.commands._answer(_read(raw, m.CommandRequest), self.invoke)

    async def _health(self, _: msgspec.Raw) -> m.HealthAnswer:
        self._ready()
        if type(self._module).health_check in _INHERITED_CHECKS:
            return m.HealthAnswer()  # from the loop itself: that it answers is the check
        try:
            answer = await self._invoke_hook("health_check", self._module.health_check)
        except Exception as error:
            return m.HealthAnswer(healthy=False, detail=f"{type(error).__name__}: {failure_text(error)}")
        if isinstance(answer, Health):
            return m.HealthAnswer(healthy=answer.healthy, detail=answer.detail[:1000])
        return m.HealthAnswer(healthy=answer is None or bool(answer))

    async def _end(self, _: msgspec.Raw) -> m.Lingering:
        if self.context is not None:
            self.context.metrics._flush()
        return await self._finish()

    def _ready(self) -> ModuleContext:
        if self.context is None:
            raise CallRefused("NotConstructed", "nothing was constructed yet")
        return self.context


async def _invoked(run: Callable[..., Awaitable[Any]], label: str, function: Any, *arguments: object) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*arguments)
    value = await run(label, function, *arguments)
    return await value if inspect.isawaitable(value) else value


def load_class(entrypoint: str) -> type:
    """Import `package.module:Class`."""
    module_name, _, path = entrypoint.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = getattr(found, name)
    if not isinstance(found, type):
        raise TypeError(f"{entrypoint} is no class")
    return found


def hooks_of(kind: type) -> tuple[str, ...]:
    """Hooks that the class defines, not merely inherits from the SDK."""
    return tuple(
        name
        for name in ALL_HOOKS
        if (mine := getattr(kind, name, None)) is not None
        and all(mine is not getattr(base, name, None) for base in (PlatformModule, DaemonModule))
    )


def _check_kind(kind: type, host: Host, entrypoint: str) -> None:
    expected: type = PlatformModule if host is Host.CONTROLLER else DaemonModule
    if not issubclass(kind, expected):
        raise BadRegistration(
            f"{entrypoint} has to derive from corral.sdk.{expected.__name__} to run on a {host}"
        )


def _as(code: str, error: BaseException) -> CallRefused:
    return CallRefused(code, f"{type(error).__name__}: {failure_text(error)}")


def _changes(spec: InstanceSpec) -> dict[str, Any]:
    return {"jvm_args": list(spec.jvm_args), "args": list(spec.args), "env": dict(spec.env)}


def _read(raw: msgspec.Raw, kind: type[T]) -> T:
    return msgspec.msgpack.decode(raw, type=kind)
