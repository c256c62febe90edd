"""What a module registered, asked for when it is started."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from corral.sdk.capabilities import CapabilityBinding
from corral.sdk.commands import Commands
from corral.sdk.contracts import Contract, read_contract
from corral.sdk.errors import BadRegistration, CapabilityTypeError, CapabilityUnavailable
from corral.sdk.invocation_port import Invoke
from corral.sdk.protocol.messages import CapabilityAnswer, CapabilityRequest, Registrations
from corral.sdk.routes import Routes


class Registered:
    """Replaced as a whole at each start: a module that was started again answers with its new targets."""

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
