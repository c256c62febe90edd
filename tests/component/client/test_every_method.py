"""Every described operation has a method in both clients, or a reason why not; and every method can be called: what the
controller answers is decoded, or is a refusal, never an answer that the client cannot read."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import inspect
import pathlib
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from callers import Caller

from corral.client import ApiError, AsyncClient, InvalidAnswer, Unreachable, models
from corral.client.sync_calls import Download, EventStream

ROOT = pathlib.Path(__file__).parents[3]
ENDS_THE_TERM = {("cluster", "raise_epoch"), ("cluster", "repair_sequence")}
LAST = [("auth", "logout"), ("auth", "password")]
NAMES = {
    "id": "lobby-1",
    "name": "lobby",
    "path": "a.txt",
    "group": "lobby",
    "source": "controller",
    "number": 1,
}
VALUES: dict[str, Any] = {
    "command": "node list",
    "role": "VIEWER",
    "level": "INFO",
    "document": {},
    "body": {},
    "content": b"x",
    "file": b"x",
    "documents": [],
    "metrics": {"tps": 1.0},
    "csr_pem": "x",
    "platform": "paper",
    "version": "1.20",
    "pattern": "x",
    "digest": "0" * 64,
}


@functools.cache
def generator() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("generate_client", ROOT / "tools" / "generate_client.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def methods(corral: Any) -> Iterator[tuple[str, str, Any]]:
    for resource, value in vars(corral).items():
        if resource.startswith("_") or not type(value).__module__.startswith("corral.client.generated"):
            continue
        for name, _ in inspect.getmembers(type(value), inspect.isfunction):
            if not name.startswith("_"):
                yield resource, name, getattr(value, name)


async def test_every_described_operation_has_a_method_in_both_clients_or_a_reason(caller):
    described = generator().document()
    there = {
        line.split("`")[1]
        for _, _, method in methods(caller.corral)
        for line in (method.__doc__ or "").splitlines()
        if line.strip().startswith("`") and "/" in line
    }
    told = {
        f"{verb.upper()} {path}": generator().left_out(verb.upper(), path, operation)
        for path, found in described["paths"].items()
        for verb, operation in found.items()
    }
    assert len(told) > 200
    assert {name for name, why in told.items() if not why} == there
    unused = (generator().LEFT_OUT.keys() | generator().NAMED.keys()) - told.keys()
    assert not unused, "these operations are not described any more"


def made_up(parameter: inspect.Parameter) -> Any:
    if parameter.name in VALUES:
        return VALUES[parameter.name]
    if parameter.name in NAMES:
        return NAMES[parameter.name]
    text = str(parameter.annotation)
    if text.startswith("int"):
        return 1
    if text.startswith("bool"):
        return True
    if text.startswith("Sequence"):
        return []
    if text.startswith(("Mapping", "dict")):
        return {}
    if text.startswith("Literal"):
        return typing.get_args(eval(text, {"Literal": typing.Literal}))[0]
    if text.startswith("models."):
        kind = getattr(models, text.removeprefix("models.").split(" ")[0])
        return next(iter(kind)) if hasattr(kind, "__members__") else {}
    return "lobby"


def use(method: Any) -> Any:
    """Call it with what it needs, and read what it gives."""
    needed = [each for each in inspect.signature(method).parameters.values() if each.default is each.empty]
    positional = [made_up(each) for each in needed if each.kind is each.POSITIONAL_OR_KEYWORD]
    named = {each.name: made_up(each) for each in needed if each.kind is each.KEYWORD_ONLY}
    result = method(*positional, **named)
    if isinstance(result, Download):
        with result:
            return result.read()
    if isinstance(result, EventStream):
        with result:
            return None
    return list(result) if isinstance(result, Iterator) else result


async def use_async(method: Any) -> Any:
    needed = [each for each in inspect.signature(method).parameters.values() if each.default is each.empty]
    positional = [made_up(each) for each in needed if each.kind is each.POSITIONAL_OR_KEYWORD]
    named = {each.name: made_up(each) for each in needed if each.kind is each.KEYWORD_ONLY}
    result = method(*positional, **named)
    if inspect.isawaitable(result):
        return await result
    if hasattr(result, "__aenter__"):
        async with result as opened:
            return await opened.read() if hasattr(opened, "read") else None
    return [item async for item in result]


@pytest.mark.system
async def test_every_method_is_answered_or_refused_and_never_misread(caller: Caller, cluster, controller):
    await cluster.daemon("n1", controller)
    await controller.call("POST", "/api/v1/groups", {"name": "lobby", "command": ["sleep", "600"]})
    await controller.call("POST", "/api/v1/instances?wait=running&timeout=50", {"group": "lobby"})
    every = sorted(
        methods(caller.corral), key=lambda each: (each[:2] in LAST, each[1].startswith("delete"), each[:2])
    )
    answered, misread = 0, []
    for resource, name, method in every:
        if (resource, name) in ENDS_THE_TERM:
            continue
        try:
            if isinstance(caller.corral, AsyncClient):
                await use_async(method)
            else:
                await asyncio.to_thread(use, method)
            answered += 1
        except ApiError as refused:
            if not (refused.code and refused.message) or refused.status == 500:
                misread.append(f"{resource}.{name}: {refused}")
        except (InvalidAnswer, Unreachable) as failure:
            misread.append(f"{resource}.{name}: {failure}")
    assert not misread
    assert answered > 60, "most of the reads and many changes succeed"


@pytest.mark.parametrize(
    "name", [name for name in models.__all__ if name not in ("EVENT_KINDS", "EventFrame")]
)
def test_every_structure_is_documented(name):
    assert getattr(models, name).__doc__
