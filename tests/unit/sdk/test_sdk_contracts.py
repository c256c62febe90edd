"""Contracts: what can be one, and what is checked of values and providers."""

from __future__ import annotations

import socket
from typing import Any, Protocol

import msgspec
import pytest

from corral.sdk.contracts import read_contract
from corral.sdk.errors import BadRegistration, CapabilityTypeError


class Point(msgspec.Struct):
    x: int
    tags: list[str] = []


class Base(Protocol):
    async def first(self) -> None: ...


class Good(Base, Protocol):
    async def move(self, point: Point, *, by: int = 1, names: list[str] | None = None) -> Point: ...


class Sync(Protocol):
    def move(self, point: Point) -> Point: ...


class Untyped(Protocol):
    async def move(self, point) -> Point: ...


class NoResult(Protocol):
    async def move(self, point: Point): ...


class Many(Protocol):
    async def move(self, *points: Point) -> None: ...


class Foreign(Protocol):
    async def move(self, where: socket.socket) -> None: ...


class Field(Protocol):
    size: int = 3

    async def move(self) -> None: ...


class Empty(Protocol): ...


@pytest.mark.parametrize(
    ("contract", "why"),
    [
        (Sync, "async def"),
        (Untyped, "'point' has no type"),
        (NoResult, "'return' has no type"),
        (Many, "no name"),
        (Foreign, "socket"),
        (Field, "no method"),
        (Empty, "no methods"),
        (3, "Protocol"),
    ],
)
def test_what_cannot_be_a_contract_is_refused_with_the_reason(contract, why):
    with pytest.raises(BadRegistration, match=why):
        read_contract(contract)


def test_inherited_methods_belong_to_the_contract():
    declared = read_contract(Good).declaration("acme.move")
    assert {method.name: method.parameters for method in declared.methods} == {
        "first": (),
        "move": ("point", "by", "names"),
    }


def test_arguments_arrive_as_they_were_typed_with_the_provider_s_defaults():
    move = read_contract(Good).methods["move"]
    raw = move.pack((Point(1, ["a"]),), {"by": 3})
    assert move.unpack(raw) == {"point": Point(1, ["a"]), "by": 3, "names": None}


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((3,), {}), ((Point("x"),), {}), ((Point(1),), {"by": "2"}), ((Point(1, [3]),), {}), ((object(),), {})],
)
def test_a_value_of_the_wrong_type_is_refused_before_it_is_sent(args, kwargs):
    with pytest.raises(CapabilityTypeError):
        read_contract(Good).methods["move"].pack(args, kwargs)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((Point(1), 2), {}), ((Point(1),), {"more": 1})])
def test_arguments_that_are_missing_or_too_many_are_a_type_error_as_in_python(args, kwargs):
    with pytest.raises(TypeError):
        read_contract(Good).methods["move"].pack(args, kwargs)


@pytest.mark.parametrize("value", [None, 3, {"x": "1"}, object()])
def test_a_result_of_the_wrong_type_is_the_provider_s_fault(value):
    with pytest.raises(CapabilityTypeError):
        read_contract(Good).methods["move"].pack_result(value)


def test_a_provider_has_to_take_every_parameter():
    class Partial:
        async def first(self) -> None: ...

        async def move(self, point: Any) -> Any: ...

    class Wide:
        def first(self, more: int = 3) -> None: ...

        def move(self, **given: Any) -> Any: ...

    contract = read_contract(Good)
    contract.methods["first"].check_provided(Partial())
    with pytest.raises(BadRegistration, match="does not take"):
        contract.methods["move"].check_provided(Partial())
    for method in contract.methods.values():
        method.check_provided(Wide())


def test_a_text_that_is_none_is_a_value_of_the_wrong_type():
    method = read_contract(Good).methods["move"]
    with pytest.raises(CapabilityTypeError):
        method.unpack(msgspec.Raw(b"\x81\xa5names\x91\xa1\xff"))
    with pytest.raises(CapabilityTypeError):
        method.unpack_result(msgspec.Raw(b"\x82\xa1x\x01\xa4tags\x91\xa1\xff"))
