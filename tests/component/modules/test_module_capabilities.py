"""Capabilities: who waits for whom, what a handle is told, and the way of a call."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from engine_bench import EngineBench, manifest, package, serving
from stand_in_house import Script, StandInProcess
from structlog.testing import capture_logs

from corral.domain.events import EventType
from corral.domain.modules.capability_graph import UnresolvedReason
from corral.domain.modules.phases import ModulePhase
from corral.domain.modules.verbs import Verb
from corral.errors import Code, CorralError
from corral.sdk.protocol.messages import (
    BindingDeclaration,
    CapabilityRequest,
    MethodDeclaration,
    Registrations,
)
from corral.testing.waiting import eventually

BASE = manifest("base", provides={"demo.x": "1.2.0"})
USER = manifest("user", requires={"demo.x": "^1.0"})


@pytest.mark.trap("T6")
async def test_a_provider_that_is_installed_after_its_consumer_makes_it_active() -> None:
    async with EngineBench() as bench:
        record = await bench.install(package(USER))
        assert (record.phase, record.reason) == (ModulePhase.WAITING, "waiting_for_capability:demo.x")
        assert bench.process("user").available == {}
        await bench.install(package(BASE), serving(7))
        await bench.until("user", ModulePhase.ACTIVE)
        assert bench.process("user").available == {"demo.x": "1.2.0"}
        assert await bench.process("user").ask("demo.x") == 7


async def test_a_consumer_goes_back_to_waiting_and_returns_without_being_loaded_again() -> None:
    async with EngineBench() as bench:
        await bench.install(package(BASE), serving(7))
        await bench.install(package(USER))
        await bench.engine.act("base", Verb.DEACTIVATE)
        record = await bench.until("user", ModulePhase.WAITING)
        assert record.reason == "waiting_for_capability:demo.x"
        assert bench.steps("user")[-3:] == [
            "STOPPING capability_vanished:demo.x",
            "INSTALLED capability_vanished:demo.x",
            "WAITING waiting_for_capability:demo.x",
        ]
        assert bench.process("user").available == {}
        await bench.engine.act("base", Verb.ACTIVATE)
        await bench.until("user", ModulePhase.ACTIVE)
        hooks = [line.split()[2] for line in bench.journal if line.startswith("user")]
        assert hooks == ["construct", "on_load", "on_start", "on_stop", "on_start"]


async def test_an_optional_requirement_gates_nothing_and_its_handle_follows() -> None:
    async with EngineBench() as bench:
        record = await bench.install(package(manifest("user", optional={"demo.x": "*"})))
        assert record.phase is ModulePhase.ACTIVE
        with pytest.raises(CorralError) as refused:
            await bench.process("user").ask("demo.x")
        assert refused.value.code is Code.CAPABILITY_UNAVAILABLE
        await bench.install(package(BASE), serving(7))
        assert await bench.process("user").ask("demo.x") == 7
        await bench.engine.act("base", Verb.UNINSTALL)
        assert bench.process("user").available == {}
        assert bench.phase("user") is ModulePhase.ACTIVE


async def test_a_version_that_does_not_match_is_told_as_such() -> None:
    async with EngineBench() as bench:
        await bench.install(package(BASE))
        record = await bench.install(package(manifest("user", requires={"demo.x": ">=2"})))
        assert record.phase is ModulePhase.WAITING
        (found,) = bench.engine.capabilities.unresolved()
        assert (found.module, found.id, found.why) == ("user", "demo.x", UnresolvedReason.VERSION_MISMATCH)
        with pytest.raises(CorralError) as refused:
            await bench.process("user").ask("demo.x")
        assert refused.value.code is Code.CAPABILITY_UNAVAILABLE


async def test_of_two_providers_the_later_one_fails() -> None:
    async with EngineBench() as bench:
        await bench.install(package(BASE), serving(1))
        record = await bench.install(package(manifest("other", provides={"demo.x": "1.0.0"})), serving(2))
        assert (record.phase, record.reason) == (ModulePhase.FAILED, "capability_conflict:demo.x")
        told = [draft.data for draft in bench.book.drafts if draft.type is EventType.CAPABILITY_CONFLICT]
        reason = "another active module provides it"
        assert told == [{"id": "demo.x", "version": "1.0.0", "module": "other", "reason": reason}]
        await bench.install(package(USER))
        assert await bench.process("user").ask("demo.x") == 1


async def test_two_providers_that_start_at_the_same_time_do_not_both_become_active() -> None:
    async with EngineBench() as bench:
        both = [package(manifest(id, provides={"demo.x": "1.0.0"})) for id in ("one", "two")]
        await asyncio.gather(*(bench.install(record) for record in both))
        assert sorted(bench.phase(id).value for id in ("one", "two")) == ["ACTIVE", "FAILED"]


@pytest.mark.parametrize("bound", [(), ("demo.x", "demo.y"), ("demo.x", "demo.x")])
async def test_what_is_declared_and_what_is_handed_out_must_be_the_same(bound: tuple[str, ...]) -> None:
    async with EngineBench() as bench:
        script = Script()
        script.registers = Registrations(
            bindings=tuple(BindingDeclaration(id=id, methods=()) for id in bound)
        )
        record = await bench.install(package(BASE), script)
        assert record.phase is ModulePhase.FAILED
        assert record.reason.startswith("bad_registration:capability:demo.")
        assert bench.engine.capabilities.all() == []


async def test_registrations_are_told_in_the_commit_of_the_step() -> None:
    async with EngineBench() as bench:
        await bench.install(package(BASE))
        await bench.engine.act("base", Verb.DEACTIVATE)
        told = [[draft.type for draft in commit] for commit in bench.book.commits]
        assert [EventType.MODULE_ACTIVATED, EventType.CAPABILITY_REGISTERED] in told
        assert [EventType.MODULE_DEACTIVATED, EventType.CAPABILITY_CLEARED] in told


async def test_whoever_hears_that_a_capability_is_gone_learns_why() -> None:
    async with EngineBench() as bench:
        await bench.install(package(BASE))
        await bench.engine.act("base", Verb.DEACTIVATE)
        await bench.engine.act("base", Verb.ACTIVATE)
        bench.process("base").die("memory_limit")
        await eventually(lambda: len(bench.house.started) == 3)
        await bench.until("base", ModulePhase.ACTIVE)
        gone = [draft.data for draft in bench.book.drafts if draft.type is EventType.CAPABILITY_CLEARED]
        assert [data["reason"] for data in gone] == ["deactivated", "memory_limit"]


async def test_what_is_built_in_answers_and_cannot_be_provided_by_a_module() -> None:
    async with EngineBench() as bench:

        async def add(consumer: object, arguments: msgspec.Raw) -> int:
            values = msgspec.msgpack.decode(arguments, type=dict[str, int])
            return values["a"] + values["b"]

        bench.engine.capabilities.provide_builtin("demo.x", "1.0.0", {"add": add})
        await bench.install(package(USER))
        assert await bench.process("user").ask("demo.x", "add", a=1, b=2) == 3
        with pytest.raises(CorralError) as refused:
            await bench.process("user").ask("demo.x", "subtract")
        assert refused.value.code is Code.CAPABILITY_TYPE
        record = await bench.install(package(BASE))
        assert record.reason == "capability_conflict:demo.x"


async def test_a_call_of_what_is_not_declared_is_refused() -> None:
    async with EngineBench() as bench:
        await bench.install(package(BASE), serving(7))
        await bench.install(package(manifest("user")))
        with pytest.raises(CorralError) as refused:
            await bench.process("user").ask("demo.x")
        assert refused.value.code is Code.CAPABILITY_UNAVAILABLE
        assert "capabilities.requires" in str(refused.value)


async def test_calls_are_counted_and_a_method_that_is_not_there_is_refused() -> None:
    async with EngineBench() as bench:
        await bench.install(package(BASE), serving(7))
        await bench.install(package(USER))
        await bench.process("user").ask("demo.x")
        with pytest.raises(CorralError) as refused:
            await bench.process("user").ask("demo.x", "asks")
        assert refused.value.code is Code.CAPABILITY_TYPE
        (view,) = bench.engine.capabilities.all()
        assert (view.provider, view.consumers, view.calls, view.failures) == ("base", ("user",), 2, 1)


async def test_a_deprecated_provider_warns_once_for_each_consumer_and_counts() -> None:
    provision = msgspec.structs.replace(BASE.capabilities.provides[0], deprecated_since="1.1.0")
    old = msgspec.structs.replace(
        BASE, capabilities=msgspec.structs.replace(BASE.capabilities, provides=(provision,))
    )
    async with EngineBench() as bench:
        await bench.install(package(old), serving(7))
        await bench.install(package(USER))
        with capture_logs() as logs:
            await bench.process("user").ask("demo.x")
            await bench.process("user").ask("demo.x")
        assert [line["consumer"] for line in logs if line["event"] == "deprecated_capability.used"] == [
            "user"
        ]
        assert bench.engine.capabilities.all()[0].deprecated_calls == 2


async def test_modules_that_call_each_other_in_a_circle_end_by_their_deadlines() -> None:
    async with EngineBench() as bench:
        first, second = Script(), Script()

        async def on(process: StandInProcess, request: CapabilityRequest) -> object:
            other = "demo.second" if process.module_id == "first" else "demo.first"
            return await process.ask(other)

        first.serves = second.serves = on
        declared = manifest(
            "first", provides={"demo.first": "1.0.0"}, optional={"demo.second": "*"}, hook_deadline_ms=100
        )
        await bench.install(package(declared), first)
        declared = manifest(
            "second", provides={"demo.second": "1.0.0"}, requires={"demo.first": "*"}, hook_deadline_ms=100
        )
        await bench.install(package(declared), second)
        async with asyncio.timeout(20):
            with pytest.raises(CorralError):
                await bench.process("second").ask("demo.first")


async def test_an_impatient_consumer_cannot_take_down_whom_it_calls() -> None:
    async with EngineBench() as bench:
        script = Script()

        async def slow(process: StandInProcess, request: CapabilityRequest) -> object:
            await asyncio.Event().wait()
            return None

        script.serves = slow
        await bench.install(package(BASE), script)
        await bench.install(package(USER))
        for _ in range(5):
            with pytest.raises(CorralError) as late:
                await bench.process("user").ask("demo.x", deadline_ms=5)
            assert late.value.code is Code.MODULE_TIMEOUT
        assert bench.phase("base") is ModulePhase.ACTIVE


async def test_a_provider_that_dies_clears_the_handles_of_its_consumers() -> None:
    async with EngineBench() as bench:
        await bench.install(package(BASE), serving(7))
        await bench.install(package(USER))
        user = bench.process("user")
        before = len(bench.book.types("demo.x"))
        bench.process("base").die()
        await eventually(lambda: len(bench.book.types("demo.x")) >= before + 2)
        await eventually(lambda: user.available == {"demo.x": "1.2.0"})
        await bench.until("user", ModulePhase.ACTIVE)
        assert {} in [
            {state.id: state.version for state in states if state.available} for states in user.states
        ]
        assert "INSTALLED process_died:SIGSEGV" in bench.steps("base")


async def test_a_registered_method_list_is_what_can_be_called() -> None:
    async with EngineBench() as bench:
        script: Any = serving(1)
        script.registers = Registrations(
            bindings=(BindingDeclaration(id="demo.x", methods=(MethodDeclaration(name="other"),)),)
        )
        await bench.install(package(BASE), script)
        await bench.install(package(USER))
        assert await bench.process("user").ask("demo.x", "other") == 1
