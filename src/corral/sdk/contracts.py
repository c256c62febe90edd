"""Contracts of capabilities: a Protocol whose methods are read once and checked on both sides."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from corral.sdk.errors import BadRegistration, CapabilityTypeError
from corral.sdk.protocol.messages import BindingDeclaration, MethodDeclaration

_PLUMBING: Final = (object, typing.Protocol, typing.Generic)
_encode: Final = msgspec.msgpack.Encoder().encode
_known: Final[dict[object, Contract]] = {}


class ContractMethod:
    """One method of a contract: its parameters as a struct, its result as a decoder."""

    def __init__(self, where: str, name: str, function: Callable[..., object]) -> None:
        self.where = f"{where}.{name}"
        self.name = name
        if not inspect.iscoroutinefunction(function):
            raise BadRegistration(f"{self.where} has to be `async def`: it is a call to another process")
        signature = inspect.signature(function)
        self.signature = signature.replace(parameters=list(signature.parameters.values())[1:])
        hints = self._hints(function)
        self._arguments = msgspec.msgpack.Decoder(self._arguments_struct(hints))
        self._result = msgspec.msgpack.Decoder(hints["return"])

    def pack(self, args: tuple[object, ...], kwargs: dict[str, object]) -> msgspec.Raw:
        """Arguments of a call, encoded; TypeError as Python raises it, CapabilityTypeError for a value of the
        wrong type."""
        given = self.signature.bind(*args, **kwargs).arguments
        raw = self._encoded(given, "an argument")
        self.unpack(raw)
        return raw

    def unpack(self, raw: msgspec.Raw) -> dict[str, Any]:
        try:
            decoded = self._arguments.decode(raw)
        except (ValueError, RecursionError) as error:  # also for invalid text
            raise CapabilityTypeError(f"{self.where}: {error}") from error
        return {name: getattr(decoded, name) for name in self.signature.parameters}

    def pack_result(self, value: object) -> msgspec.Raw:
        raw = self._encoded(value, "the result")
        self.unpack_result(raw)
        return raw

    def unpack_result(self, raw: msgspec.Raw) -> Any:
        try:
            return self._result.decode(raw)
        except (ValueError, RecursionError) as error:
            raise CapabilityTypeError(f"{self.where}: the result is not what was agreed: {error}") from error

    def check_provided(self, target: object) -> None:
        """Raises BadRegistration unless `target` has this method with these parameters."""
        method = getattr(target, self.name, None)
        if not callable(method):
            raise BadRegistration(f"{type(target).__name__} has no method {self.name} ({self.where})")
        try:
            inspect.signature(method).bind(**dict.fromkeys(self.signature.parameters))
        except (TypeError, ValueError) as error:
            raise BadRegistration(
                f"{type(target).__name__}.{self.name} does not take the parameters of {self.where}: {error}"
            ) from error

    def _encoded(self, value: object, what: str) -> msgspec.Raw:
        try:
            return msgspec.Raw(_encode(value))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise CapabilityTypeError(f"{self.where}: {what} cannot be sent: {error}") from error

    def _hints(self, function: Callable[..., object]) -> dict[str, Any]:
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except Exception as error:
            raise BadRegistration(
                f"{self.where}: its types cannot be read ({error}); name types of the contract's own file, "
                "imported there and not only for the type checker"
            ) from error
        for name in (*self.signature.parameters, "return"):
            if name not in hints:
                raise BadRegistration(f"{self.where}: '{name}' has no type")
            foreign = _foreign_type(msgspec.inspect.type_info(hints[name]), set())
            if foreign is not None:
                raise BadRegistration(f"{self.where}: '{name}' holds a {foreign!r}, which cannot be sent")
        return hints

    def _arguments_struct(self, hints: Mapping[str, Any]) -> type[msgspec.Struct]:
        fields: list[Any] = []
        for parameter in self.signature.parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise BadRegistration(f"{self.where}: '{parameter}' has no name to travel under")
            if parameter.default is parameter.empty:
                fields.append((parameter.name, hints[parameter.name]))
            else:
                default = msgspec.field(default_factory=_constant(parameter.default))
                fields.append((parameter.name, hints[parameter.name], default))
        try:
            return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        except (TypeError, ValueError) as error:
            raise BadRegistration(f"{self.where}: {error}") from error


class Contract:
    """All methods of a Protocol, those it inherits included."""

    def __init__(self, contract: type) -> None:
        self.name = contract.__name__
        self.methods: dict[str, ContractMethod] = {}
        for kind in reversed(contract.__mro__):
            if kind in _PLUMBING:
                continue
            for name, member in vars(kind).items():
                if not name.startswith("_"):
                    self.methods[name] = self._method(name, member)
        if not self.methods:
            raise BadRegistration(f"the contract {self.name} has no methods")

    def _method(self, name: str, member: object) -> ContractMethod:
        if not inspect.isfunction(member):
            raise BadRegistration(f"{self.name}.{name} is no method; a contract has nothing else")
        try:
            return ContractMethod(self.name, name, member)
        except TypeError as error:  # a type that msgspec does not support
            raise BadRegistration(f"{self.name}.{name}: {error}") from error

    def declaration(self, capability: str) -> BindingDeclaration:
        methods = tuple(
            MethodDeclaration(name=method.name, parameters=tuple(method.signature.parameters))
            for method in self.methods.values()
        )
        return BindingDeclaration(id=capability, methods=methods)


def read_contract(contract: object) -> Contract:
    """Raises BadRegistration, naming method and parameter, when the contract cannot be used."""
    if not isinstance(contract, type):
        raise BadRegistration(f"{contract!r} is no contract; give a Protocol class")
    if contract not in _known:
        _known[contract] = Contract(contract)
    return _known[contract]


def _foreign_type(info: object, seen: set[int]) -> object | None:
    """A type in the contract that msgspec passes through unchanged, which is impossible between two
    processes."""
    if isinstance(info, msgspec.inspect.CustomType):
        return info.cls
    if isinstance(info, tuple | list):
        parts = tuple(info)
    elif isinstance(info, msgspec.inspect.Type | msgspec.inspect.Field) and id(info) not in seen:
        seen.add(id(info))  # a struct may contain itself
        parts = tuple(getattr(info, name) for name in info.__struct_fields__)
    else:
        return None
    return next((found for part in parts if (found := _foreign_type(part, seen)) is not None), None)


def _constant(value: object) -> Callable[[], object]:
    return lambda: value
