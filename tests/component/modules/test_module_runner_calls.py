"""What a module in a real process registers and is then asked: events, tasks, routes, capabilities, commands."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest

from corral.sdk.errors import HostError
from corral.sdk.protocol import messages as m
from corral.testing.waiting import eventually
from tests.component.modules.module_child import ModuleChild, request


@pytest.fixture
def child(scratch):
    def make(source: str, **more) -> ModuleChild:
        return ModuleChild(scratch / "child", source, **more)

    return make


async def test_events_reach_the_handler_and_the_first_exception_waits_for_the_others(child):
    source = """
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            self.ctx = ctx
            await ctx.events.subscribe(["A", "B"], self.on_event, subjects="s", durable=True)
        def on_event(self, event):
            print(event.type, event.data["n"])
            if event.data["n"] == 1:
                raise ValueError("one")
    """
    async with child(source) as subject:
        await subject.started()
        assert subject.asked == [
            (
                m.SUBSCRIBE,
                {"subscription": 1, "types": ["A", "B"], "subjects": ["s"], "durable": "A,B"},
            )
        ]
        at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        events = tuple(
            m.EventBody(type="A", subject="s", at=at, cursor=str(n), data={"n": n}) for n in (1, 2, 3)
        )
        with pytest.raises(HostError, match="one"):
            await subject.call(m.DELIVER, m.Delivery(subscription=1, events=events), m.Nothing)
        await eventually(lambda: subject.log == ["A 1", "A 2", "A 3"], state=lambda: subject.log)


async def test_a_scheduled_task_runs_when_the_host_says_so(child):
    source = """
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        def on_start(self, ctx):
            self.task = ctx.run(ctx.scheduler.every(1.5, self.tick, initial_delay=0))
            ctx.run(ctx.scheduler.after(2, self.tick, name="once"))
        async def tick(self):
            print("tick")
        async def on_stop(self, ctx):
            await self.task.cancel()
    """
    async with child(source) as subject:
        await subject.started()
        assert [method for method, _ in subject.asked] == [m.SCHEDULE, m.SCHEDULE]
        assert subject.asked[0][1]["every_ms"] == 1500
        await subject.call(m.RUN_TASK, m.TaskRun(task=1), m.Nothing)
        await eventually(lambda: subject.log == ["tick"])
        await subject.hook("on_stop")
        assert subject.asked[-1] == (m.CANCEL_TASK, {"task": 1})
        await subject.call(m.RUN_TASK, m.TaskRun(task=1), m.Nothing)
        await subject.call(m.RUN_TASK, m.TaskRun(task=2), m.Nothing)
        await eventually(lambda: subject.log == ["tick", "tick"])


ROUTES = """
import msgspec
from corral.sdk import HttpError, PlatformModule, Response
class New(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    tags: list[str] = []
class Window(msgspec.Struct):
    limit: int = 10
    kinds: list[str] = []
class Subject(PlatformModule):
    closed = False
    def register_routes(self, routes):
        routes.get("/things/{name}", self.thing)
        routes.post("/things", self.add, body=New, permission="groups.write")
        routes.get("/window", self.window, query=Window)
        routes.get("/many", self.many, streams=True)
        routes.get("/broken", self.broken, streams=True)
        routes.get("/stopped", lambda request: {"closed": self.closed})
    def thing(self, request):
        if request.parameters["name"] == "none":
            raise HttpError(404, "no such thing", hint="add one")
    async def add(self, request):
        return Response({"name": request.body.name, "by": request.caller.name}, status=201)
    async def window(self, request):
        return [request.query.limit, request.query.kinds]
    async def many(self, request):
        return Response.stream(self.chunks(), content_type="text/plain")
    async def chunks(self):
        try:
            for number in range(64):
                yield bytes([number]) * 100_000
        finally:
            self.closed = True
    async def broken(self, request):
        async def chunks():
            yield b"beginning"
            raise ValueError("no end")
        return Response.stream(chunks())
"""


async def test_routes_answer_values_errors_and_typed_bodies(child):
    async with child(ROUTES) as subject:
        registered = await subject.started()
        assert [(r.method, r.path, r.permission) for r in registered.routes[:2]] == [
            ("GET", "/things/{name}", "modules.read"),
            ("POST", "/things", "groups.write"),
        ]
        assert registered.routes[1].request_schema is not None

        async def ask(route: int, **more: object) -> tuple[int, object]:
            answer = await subject.call(m.ROUTE, request(route, **more), m.RouteAnswer)
            return answer.status, msgspec.json.decode(answer.body) if answer.body else None

        assert await ask(1, parameters={"name": "some"}) == (204, None)
        assert await ask(1, parameters={"name": "none"}) == (
            404,
            {"error": {"code": "NOT_FOUND", "message": "no such thing", "status": 404, "hint": "add one"}},
        )
        assert await ask(2, body=b'{"name": "x"}') == (201, {"name": "x", "by": "ada"})
        for body, field in ((b'{"name": 3}', "name"), (b'{"name": "x", "tags": [1]}', "tags[0]")):
            status, said = await ask(2, body=body)
            assert (status, said["error"]["field"]) == (400, field)
        assert (await ask(2, body=b"{"))[1]["error"]["code"] == "INVALID_JSON"
        assert await ask(3, query=(("limit", "5"), ("kinds", "a"), ("kinds", "b"))) == (200, [5, ["a", "b"]])
        for query in ((("limit", "x"),), (("limit", "1"), ("limit", "2")), (("other", "1"),)):
            assert (await ask(3, query=query))[0] == 400


async def test_a_streamed_answer_comes_whole_and_no_faster_than_it_is_read(child):
    async with child(ROUTES) as subject:
        await subject.started()
        async with subject.link.stream(m.ROUTE, request(4), m.RouteAnswer) as (head, chunks):
            assert head.streamed
            received = b"".join([chunk async for chunk in chunks])
        assert received == b"".join(bytes([number]) * 100_000 for number in range(64))


async def test_a_stream_that_nobody_reads_any_more_is_closed_in_the_module(child):
    async with child(ROUTES) as subject:
        await subject.started()
        async with subject.link.stream(m.ROUTE, request(4), m.RouteAnswer) as (_, chunks):
            await anext(chunks)

        async def closed() -> bool:
            answer = await subject.call(m.ROUTE, request(6), m.RouteAnswer)
            return answer.body == b'{"closed":true}'

        await eventually(closed)


async def test_a_stream_that_breaks_tells_its_reader(child):
    async with child(ROUTES) as subject:
        await subject.started()
        with pytest.raises(HostError, match="no end"):
            async with subject.link.stream(m.ROUTE, request(5), m.RouteAnswer) as (_, chunks):
                assert await anext(chunks) == b"beginning"
                await anext(chunks)


CAPABILITY = """
from typing import Protocol
import msgspec
from corral.sdk import CapabilityBinding, CapabilityTypeError, CapabilityUnavailable, PlatformModule
class Point(msgspec.Struct):
    x: int
class Contract(Protocol):
    async def add(self, point: Point, by: int = 1) -> Point: ...
    async def lie(self) -> str: ...
class Provider:
    async def add(self, point, by=1):
        return Point(point.x + by)
    def lie(self):
        return 3
class Subject(PlatformModule):
    def capability_handles(self):
        return [CapabilityBinding("acme.points", Contract, Provider)]
    async def on_start(self, ctx):
        handle = ctx.capabilities.require("acme.other", Contract)
        assert ctx.capabilities.find("acme.undeclared", Contract) is None
        assert handle.available and handle.version == "1.2.0"
        print((await handle.call.add(Point(1), by=4)).x)
        for wrong in ("x", None):
            try:
                await handle.call.add(Point(1), by=wrong)
            except CapabilityTypeError as error:
                print("refused", error.code)
        self.handle = handle
    async def on_stop(self, ctx):
        assert self.handle.get() is None
        try:
            await self.handle.call.lie()
        except CapabilityUnavailable:
            print("cleared")
"""


def packed(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.msgpack.encode(value))


async def test_capabilities_are_provided_and_used_with_checked_types(child):
    async with child(CAPABILITY) as subject:
        subject.answers[m.CALL_CAPABILITY] = m.CapabilityAnswer(value=packed({"x": 5}))
        registered = await subject.started(
            manifest={"capabilities": {"requires": [{"id": "acme.other"}]}},
            capabilities=(m.CapabilityState(id="acme.other", available=True, version="1.2.0"),),
        )
        assert [(b.id, [x.name for x in b.methods]) for b in registered.bindings] == [
            ("acme.points", ["add", "lie"])
        ]
        await eventually(
            lambda: subject.log == ["5"] + ["refused CAPABILITY_TYPE"] * 2, state=lambda: subject.log
        )

        async def ask(method: str, arguments: object) -> object:
            body = m.CapabilityRequest(capability="acme.points", method=method, arguments=packed(arguments))
            return msgspec.msgpack.decode((await subject.call(m.CAPABILITY, body, m.CapabilityAnswer)).value)

        assert await ask("add", {"point": {"x": 3}}) == {"x": 4}
        for method, arguments in (
            ("add", {"point": 3}),
            ("add", {"point": {"x": 3}, "more": 1}),
            ("add", {}),
            ("lie", {}),
            ("gone", {}),
        ):
            with pytest.raises(HostError) as raised:
                await ask(method, arguments)
            assert raised.value.code == "CapabilityTypeError"
        subject.link.notify(
            m.CAPABILITY_STATES,
            m.CapabilityStates(states=(m.CapabilityState(id="acme.other", available=False),)),
        )
        await subject.hook("on_stop")
        await eventually(lambda: subject.log[-1] == "cleared")


async def test_a_provider_that_lacks_a_method_is_refused_at_the_start(child):
    source = CAPABILITY.replace("    def lie(self):\n        return 3\n", "").replace(
        "async def on_start", "async def x"
    )
    async with child(source) as subject:
        with pytest.raises(HostError, match="has no method lie") as raised:
            await subject.started()
        assert raised.value.code == "BadRegistration"


async def test_commands_answer_lines(child):
    source = """
    from corral.sdk import CommandParameter, PlatformModule
    class Subject(PlatformModule):
        def register_commands(self, commands):
            commands.add("stats  show", self.show, parameters=[CommandParameter("player")])
        async def show(self, call):
            return f"{call.named['player']}\\n{call.caller.role}"
    """
    async with child(source) as subject:
        registered = await subject.started()
        assert registered.commands[0].name == "stats show"

        async def say(*words: str) -> tuple[str, ...]:
            body = m.CommandRequest(command=1, arguments=words, caller=m.CallerBody(name="a", role="VIEWER"))
            return (await subject.call(m.COMMAND, body, m.CommandAnswer)).lines

        assert await say("ada") == ("ada", "VIEWER")
        assert await say() == ("player is missing: stats show <player>",)


async def test_a_daemon_module_changes_its_copy_of_a_start_and_nothing_else(child):
    source = """
    from corral.sdk import DaemonModule, StorageUnavailable
    class Subject(DaemonModule):
        def on_load(self, ctx):
            assert ctx.find_document_storage() is None
            try:
                ctx.require_key_value_storage()
            except StorageUnavailable as error:
                assert "(1)" in str(error) and "(2)" in str(error) and "(3)" in str(error)
        async def on_instance_starting(self, spec):
            spec.jvm_args += ["-Xlog:gc*"]
            spec.env["A"] = "b"
            try:
                spec.port = 3
            except AttributeError as error:
                print(error)
        def on_instance_stopped(self, handle, exit):
            print(handle.instance_id, exit.exit_code, exit.signal)
    """
    async with child(source) as subject:
        await subject.construct(host="daemon", storages=("documents", "key_value"))
        await subject.hook("on_load")
        changed = await subject.hook(
            "on_instance_starting", spec={"instance_id": "i-1", "group": "g", "args": ["a"]}
        )
        assert changed == {"jvm_args": ["-Xlog:gc*"], "args": ["a"], "env": {"A": "b"}}
        await subject.hook(
            "on_instance_stopped", handle={"instance_id": "i-1", "group": "g"}, exit={"exit_code": 4}
        )
        await eventually(lambda: "i-1 4 " in subject.log, state=lambda: subject.log)
        assert any("cannot be changed" in line for line in subject.log)


async def test_new_settings_hold_only_if_the_module_takes_them(child):
    source = """
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        def on_reload(self, ctx):
            if ctx.config["limit"] < 0:
                raise ValueError("too low")
        def on_stop(self, ctx):
            print(ctx.config["limit"])
    """
    async with child(source) as subject:
        await subject.construct(config={"limit": 1})
        await subject.hook("on_reload", config={"limit": 2})
        with pytest.raises(HostError, match="too low"):
            await subject.hook("on_reload", config={"limit": -1})
        await subject.hook("on_stop")
        await eventually(lambda: subject.log == ["2"])


async def test_failures_of_the_host_are_exceptions_of_the_sdk(child):
    source = """
    from corral.sdk import HostTimeout, PlatformModule, Refused
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            try:
                await ctx.events.publish("X", {"a": 1})
            except Refused as error:
                print(error.code)
            await ctx.events.publish("Y", "no map")
    """
    async with child(source) as subject:

        class Forbidden(Exception):
            pass

        subject.answers[m.PUBLISH] = Forbidden("not yours")
        await subject.construct()
        with pytest.raises(HostError):
            await subject.hook("on_start")
        await eventually(lambda: subject.log[:1] == ["Forbidden"], state=lambda: subject.log)


async def test_samples_are_added_up_and_sent_together(child):
    source = """
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        def on_start(self, ctx):
            rounds = ctx.metrics.counter("rounds", "Rounds")
            for _ in range(1000):
                rounds.increase(map="a")
            ctx.metrics.gauge("players").set(3)
            ctx.metrics.histogram("seconds").observe(0.5)
    """
    async with child(source) as subject:
        await subject.started()

        def samples() -> list[tuple[str, str, float]]:
            return [
                (sample["name"], sample["kind"], sample["value"])
                for method, body in subject.notices
                if method == m.METRIC
                for sample in body["samples"]
            ]

        await eventually(lambda: len(samples()) >= 3, state=samples)
        assert sum(value for name, _, value in samples() if name == "rounds") == 1000
