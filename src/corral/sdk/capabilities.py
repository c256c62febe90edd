"""Capabilities that modules provide to each other, by an id and a contract."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from corral.sdk.contracts import Contract, ContractMethod, read_contract
from corral.sdk.errors import CapabilityUnavailable
from corral.sdk.protocol.messages import CALL_CAPABILITY, CapabilityAnswer, CapabilityRequest, CapabilityState
from corral.sdk.runner_port import HostLink

C = TypeVar("C")
_LONGEST: Final = 60.0
"""Longest wait for a call whose deadline is the host's: longer than the host's own."""


class CapabilityBinding(Generic[C]):
    """A capability that the module provides. `contract` is a Protocol with typed `async def` methods;
    `factory` makes the object that serves the calls, when the module is started.

    ```python
    class Journey(Protocol):
        async def last_seen(self, *, player: str) -> str: ...

    def capability_handles(self):
        return [CapabilityBinding("acme.player.journey", Journey, lambda: self.journey)]
    ```
    """

    def __init__(self, id: str, contract: Callable[..., C], factory: Callable[[], C]) -> None:
        self.id = id
        self.contract = contract
        self.factory = factory


class CapabilityHandle(Generic[C]):
    """Handle of a required capability. It stays the same while providers come and go.

    ```python
    journey = ctx.capabilities.require("acme.player.journey", Journey)
    seen = await journey.call.last_seen(player="ada")
    if (target := journey.get()) is not None:
        await target.last_seen(player="ada")
    ```
    """

    def __init__(self, owner: Capabilities, id: str, contract: Contract, deadline: float | None) -> None:
        self._owner = owner
        self._proxy = _Proxy(owner, id, contract, deadline)
        self.id = id

    @property
    def available(self) -> bool:
        """Is there a provider now?"""
        return self._owner._state(self.id).available

    @property
    def version(self) -> str:
        """Version of the provider; empty when there is none."""
        return self._owner._state(self.id).version

    @property
    def provider(self) -> str:
        """Id of the module that provides it; empty when there is none."""
        return self._owner._state(self.id).provider

    @property
    def call(self) -> C:
        """The contract's methods. They raise CapabilityUnavailable when there is no provider,
        CapabilityTypeError for a value of the wrong type, HostTimeout after the deadline."""
        return cast("C", self._proxy)

    def get(self) -> C | None:
        """`call`, or None when there is no provider."""
        return self.call if self.available else None


class Capabilities:
    """`ctx.capabilities`: those that the manifest requires.

    ```python
    journey = ctx.capabilities.require("acme.player.journey", Journey, deadline=2.0)
    maybe = ctx.capabilities.find("acme.chat", Chat)  # None unless the manifest names it
    ```
    """

    def __init__(self, link: HostLink, declared: Iterable[str], states: Iterable[CapabilityState]) -> None:
        self._link = link
        self._states = {id: CapabilityState(id=id, available=False) for id in declared}
        self._update(states)

    def require(
        self, id: str, contract: Callable[..., C], *, deadline: float | None = None
    ) -> CapabilityHandle[C]:
        """A handle, also before there is a provider. Raises CapabilityUnavailable when the manifest does not
        require it, BadRegistration when the contract is invalid. `deadline`: seconds for each call."""
        if id not in self._states:
            raise CapabilityUnavailable(
                f"the manifest does not require the capability '{id}'",
                hint=f"add it to capabilities.requires; there: {', '.join(sorted(self._states)) or 'nothing'}",
            )
        return CapabilityHandle(self, id, read_contract(contract), deadline)

    def find(
        self, id: str, contract: Callable[..., C], *, deadline: float | None = None
    ) -> CapabilityHandle[C] | None:
        """Like `require`, None when the manifest does not require it."""
        return self.require(id, contract, deadline=deadline) if id in self._states else None

    def _state(self, id: str) -> CapabilityState:
        return self._states[id]

    def _update(self, states: Iterable[CapabilityState]) -> None:
        for state in states:
            self._states[state.id] = state

    async def _call(self, id: str, method: ContractMethod, raw: msgspec.Raw, deadline: float | None) -> Any:
        if not self._states[id].available:
            raise CapabilityUnavailable(f"nobody provides the capability '{id}' at present")
        request = CapabilityRequest(
            capability=id, method=method.name, arguments=raw, deadline_ms=round((deadline or 0) * 1000)
        )
        limit = _LONGEST if deadline is None else deadline + 1.0  # the host's own error comes first
        answer = await self._link.call(CALL_CAPABILITY, request, CapabilityAnswer, deadline=limit)
        return method.unpack_result(answer.value)


class _Proxy:
    """Stands for the provider; its attributes are the contract's methods only."""

    def __init__(self, owner: Capabilities, id: str, contract: Contract, deadline: float | None) -> None:
        for name, method in contract.methods.items():
            setattr(self, name, _caller(owner, id, method, deadline))

    def __getattr__(self, name: str) -> Callable[..., object]:
        known = ", ".join(sorted(vars(self)))
        raise AttributeError(f"the contract has no method '{name}'; it has: {known}")


def _caller(
    owner: Capabilities, id: str, method: ContractMethod, deadline: float | None
) -> Callable[..., Coroutine[Any, Any, Any]]:
    async def call(*args: object, **kwargs: object) -> Any:
        return await owner._call(id, method, method.pack(args, kwargs), deadline)

    call.__name__ = method.name
    call.__qualname__ = method.where
    return call
