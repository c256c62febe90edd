"""The bench for daemon modules: instances, their files, and processes beside them."""

from __future__ import annotations

import pytest

from corral.sdk import (
    DaemonModule,
    ExitInfo,
    HostError,
    InstanceHandle,
    InstanceSpec,
    ModuleContext,
    PlatformModule,
    Refused,
)
from corral.testing.bench_node import ChangeDropped
from corral.testing.module_bench import ModuleBench


class Beside(DaemonModule):
    """Leaves a file before each start, has a process beside each instance, and keeps the story."""

    async def on_start(self, ctx: ModuleContext) -> None:
        self.ctx = ctx

    async def on_instance_starting(self, spec: InstanceSpec) -> None:
        spec.jvm_args.append(self.ctx.config["flag"])
        spec.env["LEVEL"] = "3"
        await self.ctx.files.write(spec.instance_id, "conf/beside.json", b"{}")
        with pytest.raises(Refused) as refused:
            await self.ctx.processes.spawn(spec.instance_id, "early", ["sleep"])
        assert refused.value.code == "NOT_RUNNING"

    async def on_instance_started(self, handle: InstanceHandle) -> None:
        side = await self.ctx.processes.spawn(
            handle.instance_id, "exporter", ["exporter", str(handle.pid)], env={"PORT": "9400"}
        )
        again = await self.ctx.processes.spawn(handle.instance_id, "exporter", ["other"])
        assert side.running
        assert again == side

    async def on_instance_stopping(self, handle: InstanceHandle) -> None:
        await self.ctx.files.write(handle.instance_id, "beside.log", b"stopping\n", append=True)

    async def on_instance_stopped(self, handle: InstanceHandle, exit: ExitInfo) -> None:
        sides = await self.ctx.processes.list(handle.instance_id)
        told = " ".join(f"{side.name} {side.signal}{side.exit_code}" for side in sides)
        line = f"{exit.exit_code} {told}\n".encode()
        await self.ctx.files.write(handle.instance_id, "beside.log", line, append=True)


MANIFEST = {
    "id": "beside",
    "hosts": ["daemon"],
    "config": {"type": "object", "properties": {"flag": {"type": "string"}}},
}


async def test_a_daemon_module_sees_an_instance_through_its_life():
    async with ModuleBench(Beside, host="daemon", manifest=MANIFEST, config={"flag": "-Xlog:gc*"}) as bench:
        await bench.start()
        spec = await bench.node.starting("lobby-1", jvm_args=["-Xmx1G"], env={"A": "b"})
        assert (spec.group, spec.jvm_args) == ("lobby", ["-Xmx1G", "-Xlog:gc*"])
        assert spec.env == {"A": "b", "LEVEL": "3"}
        assert (bench.node.path("lobby-1") / "conf/beside.json").read_bytes() == b"{}"
        handle = await bench.node.started("lobby-1")
        (side,) = bench.node.processes("lobby-1")
        assert (side.name, side.command) == ("exporter", ("exporter", str(handle.pid)))
        assert bench.node.environment_of("lobby-1", "exporter") == {"PORT": "9400"}
        bench.node.end_process("lobby-1", "exporter", exit_code=3)
        await bench.node.stopping("lobby-1")
        await bench.node.stopped("lobby-1", exit_code=7)
        assert (bench.node.path("lobby-1") / "beside.log").read_text() == "stopping\n7 exporter 3\n"
        await bench.node.started("lobby-2", adopted=True)
        await bench.node.stopped("lobby-2")
        assert (bench.node.path("lobby-2") / "beside.log").read_text() == "0 exporter SIGTERMNone\n"


async def test_what_a_node_would_drop_or_refuse_is_said():
    async with ModuleBench(Beside, host="daemon", manifest=MANIFEST, config={"flag": "-jar"}) as bench:
        await bench.start()
        with pytest.raises(ChangeDropped, match="-jar"):
            await bench.node.starting("lobby-1")
        bench.node.missing_commands.add("exporter")
        with pytest.raises(HostError, match="was not found"):
            await bench.node.started("lobby-1")
        files, processes = bench.context.files, bench.context.processes
        codes = []
        for call in (
            files.read("lobby-2", "a"),
            files.read("lobby-1", "a"),
            files.read("lobby-1", "../lobby-2"),
            files.write("lobby-1", "a", b"x" * 1_048_577),
            processes.spawn("lobby-1", "Upper", ["true"]),
            processes.spawn("lobby-1", "side", ["true"], env={"CORRAL_TOKEN": "x"}),
            processes.stop("lobby-1", "side", grace=31),
        ):
            with pytest.raises(Refused) as refused:
                await call
            codes.append(refused.value.code)
        assert codes == [
            "NOT_FOUND",
            "NOT_FOUND",
            "PATH_REFUSED",
            "BODY_TOO_LARGE",
            "INVALID_FIELD",
            "INVALID_FIELD",
            "INVALID_FIELD",
        ]
        bench.node.forget("lobby-1")
        with pytest.raises(Refused, match="no instance"):
            await files.walk("lobby-1")


class OnController(PlatformModule):
    pass


async def test_on_the_controller_there_are_neither_files_nor_processes():
    async with ModuleBench(OnController) as bench:
        for call in (
            bench.context.files.walk("lobby-1"),
            bench.context.processes.list("lobby-1"),
        ):
            with pytest.raises(Refused) as refused:
                await call
            assert refused.value.code == "NOT_SUPPORTED"
            assert "hosts: [controller, daemon]" in refused.value.hint


async def test_a_module_on_a_node_without_a_list_subscribes_to_types_whose_fields_are_all_open():
    async def ignore(_event):
        return None

    class Listener(DaemonModule):
        async def on_start(self, ctx: ModuleContext) -> None:
            await ctx.events.subscribe("GROUP_CREATED", ignore)
            for types in ([], ["GROUP_CREATED", "INSTANCE_CRASHED"], ["listener/SCORE"]):
                with pytest.raises(Refused) as refused:
                    await ctx.events.subscribe(types, ignore)
                assert refused.value.code == "FORBIDDEN"

    async with ModuleBench(
        Listener, host="daemon", manifest={"id": "listener", "hosts": ["daemon"]}
    ) as bench:
        await bench.start()
