"""The runner in a real process: what the host asks, and what a module can do to it."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from corral.sdk.errors import HostError, HostTimeout
from corral.sdk.protocol import messages as m
from corral.sdk.protocol.frames import MAX_CALLS_TO_MODULE
from corral.sdk.runner.child import EXIT_BAD_FRAME, EXIT_HOST_GONE
from corral.testing.waiting import eventually
from tests.component.modules.module_child import ModuleChild

PLAIN = """
from corral.sdk import PlatformModule
class Subject(PlatformModule):
    pass
"""


@pytest.fixture
def child(scratch):
    def make(source: str, **more) -> ModuleChild:
        return ModuleChild(scratch / "child", source, **more)

    return make


async def test_a_module_without_hooks_answers_every_hook(child):
    async with child(PLAIN) as subject:
        constructed = await subject.construct()
        assert constructed.hooks == ()
        assert constructed.sdk == "1.0.0"
        for hook in ("on_load", "on_upgrade", "on_start", "on_stop", "on_unload"):
            assert await subject.hook(hook) is None
        assert await subject.call(m.REGISTRATIONS, m.Nothing(), m.Registrations) == m.Registrations()
        health = await subject.call(m.HEALTH, m.Nothing(), m.HealthAnswer)
        assert health.healthy


async def test_hooks_run_in_threads_or_on_the_loop_as_they_are_written(child):
    source = """
    import threading
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        def on_load(self, ctx):
            ctx.logger.info("load %s", threading.current_thread() is threading.main_thread())
        async def on_start(self, ctx):
            ctx.logger.info("start %s", threading.current_thread() is threading.main_thread())
    """
    async with child(source) as subject:
        assert (await subject.construct()).hooks == ("on_load", "on_start")
        await subject.hook("on_load")
        await subject.hook("on_start")
        await eventually(lambda: subject.log == ["load False", "start True"], state=lambda: subject.log)


async def test_a_sleeping_plain_hook_does_not_keep_the_module_from_answering(child):
    source = """
    import time
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        def on_start(self, ctx):
            time.sleep(3600)
    """
    async with child(source) as subject:
        await subject.construct()
        with pytest.raises(HostTimeout):
            await subject.hook("on_start", deadline=0.2)
        assert (await subject.call(m.HEALTH, m.Nothing(), m.HealthAnswer)).healthy
        assert (await subject.finish()).threads == ("on_start",)
        assert await subject.wait() == 0


ENDINGS = ["SystemExit(3)", "KeyboardInterrupt()", "GeneratorExit()", "MemoryError()", "StopIteration()"]


@pytest.mark.parametrize("form", ["def", "async def"])
async def test_whatever_a_hook_raises_is_its_failure_and_the_process_goes_on(child, form):
    source = f"""
    from corral.sdk import PlatformModule
    ENDINGS = iter([{", ".join(ENDINGS)}])
    class Subject(PlatformModule):
        {form} on_start(self, ctx):
            raise next(ENDINGS)
    """
    async with child(source) as subject:
        await subject.construct()
        for ending in ENDINGS:
            with pytest.raises(HostError) as raised:
                await subject.hook("on_start")
            # Python itself turns a StopIteration out of a coroutine into a RuntimeError.
            assert raised.value.code in (ending.partition("(")[0], "RuntimeError"), ending
            assert (await subject.call(m.HEALTH, m.Nothing(), m.HealthAnswer)).healthy, ending


async def test_recursion_without_end_and_an_exception_without_a_text_are_failures(child):
    source = """
    from corral.sdk import PlatformModule
    class Silent(Exception):
        def __str__(self):
            raise SystemExit
    class Subject(PlatformModule):
        def on_load(self, ctx):
            self.on_load(ctx)
        async def on_start(self, ctx):
            raise Silent
    """
    async with child(source) as subject:
        await subject.construct()
        for hook, code in (("on_load", "RecursionError"), ("on_start", "Silent")):
            with pytest.raises(HostError) as raised:
                await subject.hook(hook)
            assert raised.value.code == code


async def test_a_task_that_raises_system_exit_ends_neither_loop_nor_process(child):
    source = """
    import asyncio
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            async def leave():
                raise SystemExit(9)
            self.task = asyncio.create_task(leave())
        async def on_stop(self, ctx):
            asyncio.get_running_loop().stop()
    """
    async with child(source) as subject:
        await subject.started()
        await eventually(lambda: any("SystemExit" in line for line in subject.log))
        await subject.hook("on_stop")
        assert (await subject.call(m.HEALTH, m.Nothing(), m.HealthAnswer)).healthy


async def test_running_out_of_memory_in_a_hook_is_its_failure(child):
    source = """
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        def on_start(self, ctx):
            self.hoard = []
            while True:
                self.hoard.append(bytearray(1 << 20))
        def on_stop(self, ctx):
            self.hoard = []
    """
    async with child(source, memory_mb=256) as subject:
        await subject.construct()
        with pytest.raises(HostError) as raised:
            await subject.hook("on_start")
        assert raised.value.code == "MemoryError"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        ("import nothing_like_this", "ImportFailed"),
        ("raise SystemExit", "ImportFailed"),
        ("class Subject: pass", "ImportFailed"),
        ("Subject = 3", "ImportFailed"),
        ("x = 1", "ImportFailed"),
        (PLAIN + "    def __init__(self): raise SystemExit", "ConstructFailed"),
        (PLAIN + "    def __init__(self, more): pass", "ConstructFailed"),
    ],
)
async def test_import_and_constructor_fail_with_codes_of_their_own(child, source, code):
    async with child(source) as subject:
        with pytest.raises(HostError) as raised:
            await subject.construct()
        assert raised.value.code == code
        assert await subject.finish() == m.Lingering()
        assert await subject.wait() == 0


@pytest.mark.parametrize("name", ["corral.errors", "yaml"])
async def test_an_import_beyond_the_archive_says_what_may_be_imported(child, name):
    async with child(f"import {name}") as subject:
        with pytest.raises(HostError, match=r"corral\.sdk") as raised:
            await subject.construct()
        assert raised.value.code == "ImportFailed"
        assert f"ModuleNotFoundError: '{name}'" in raised.value.message


async def test_asking_whether_a_package_is_there_is_answered_with_none(child):
    source = """
    import importlib.util, importlib.resources, pickle, dataclasses
    from corral.sdk import PlatformModule
    try:
        import ujson
    except ImportError as error:
        said = str(error)
    assert importlib.util.find_spec("yaml") is None
    assert importlib.util.find_spec("corral.errors") is None
    try:
        from json import nothing
    except ImportError as error:
        assert "cannot import name" in str(error)
    class Subject(PlatformModule):
        def on_load(self, ctx):
            assert "vendor/" in said
            assert pickle.loads(pickle.dumps(ctx.host)) is ctx.host
            assert b"Subject" in ctx.resources.read("subject.py")
    """
    async with child(source) as subject:
        await subject.construct()
        await subject.hook("on_load")


async def test_finish_tells_what_lingers_and_a_thread_keeps_the_process_as_long_as_it_runs(child, scratch):
    source = f"""
    import asyncio, os, subprocess, threading, time
    from corral.sdk import PlatformModule
    def stay():
        while not os.path.exists("{scratch}/go"):
            time.sleep(0.01)
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            await asyncio.to_thread(time.sleep, 0)
            threading.Thread(target=stay, name="stays").start()
            threading.Thread(target=time.sleep, args=(3600,), name="idle", daemon=True).start()
            self.task = asyncio.create_task(self.wait(), name="waits")
            self.child = subprocess.Popen(["sleep", "3600"])
        async def wait(self):
            try:
                await asyncio.sleep(3600)
            finally:
                print("cancelled")
    """
    async with child(source) as subject:
        await subject.started()
        lingering = await subject.finish()
        assert lingering.threads == ("idle (daemon)", "stays")
        assert lingering.tasks == ("waits (Subject.wait)",)
        assert [line.partition(" ")[2] for line in lingering.children] == ["sleep 3600"]
        await eventually(lambda: "cancelled" in subject.log, state=lambda: subject.log)
        assert subject.process.poll() is None
        (scratch / "go").touch()
        assert await subject.wait() == 0


async def test_a_module_that_leaves_only_tasks_and_daemon_threads_ends_by_itself(child):
    source = """
    import asyncio, atexit, threading, time
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
            self.task = asyncio.create_task(self.work())
            atexit.register(print, "last words")
        async def work(self):
            try:
                await asyncio.sleep(3600)
            finally:
                raise SystemExit
    """
    async with child(source) as subject:
        await subject.started()
        assert (await subject.finish()).tasks
        assert await subject.wait() == 0


async def test_a_process_whose_host_is_gone_ends(child):
    async with child(PLAIN) as subject:
        await subject.construct()
        await subject.link.close()
        subject.socket.close()
        assert await subject.wait() == EXIT_HOST_GONE


async def test_a_frame_that_is_none_ends_the_process(child):
    async with child(PLAIN) as subject:
        await subject.construct()
        subject.link.outbox.put(b"\xff\xff\xff\xffnonsense")
        assert await subject.wait() == EXIT_BAD_FRAME


async def test_printed_lines_and_those_of_children_are_log_lines(child):
    source = """
    import os, subprocess, sys
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            print("printed")
            print("to the other", file=sys.stderr)
            os.write(1, b"raw\\n")
            subprocess.run(["echo", "by a child"], check=True)
            print("x" * 200_000)
            print("no end of line", end="")
            assert sys.stdin.read() == ""
        async def on_stop(self, ctx):
            try:
                1 / 0
            except ZeroDivisionError:
                ctx.logger.exception("odd %s", "number", extra={"place": "here"})
    """
    async with child(source) as subject:
        await subject.started()
        await subject.hook("on_stop")
        await subject.finish()
        assert await subject.wait() == 0
        expected = {"printed", "to the other", "raw", "by a child", "no end of line", "odd number"}
        await eventually(lambda: expected <= set(subject.log), state=lambda: subject.log)
        assert max(map(len, subject.log)) <= 8194
        odd = next(body for _, body in subject.notices if body.get("message") == "odd number")
        assert odd["fields"] == {"place": "here"}
        assert "ZeroDivisionError" in odd["traceback"]


async def test_the_last_line_before_a_crash_has_been_sent(child):
    source = """
    import ctypes
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            ctx.logger.warning("about to fall")
            ctypes.string_at(0)
    """
    async with child(source) as subject:
        await subject.construct()
        with pytest.raises(HostError):
            await subject.hook("on_start")
        assert "about to fall" in subject.log
        assert await subject.wait() == -signal.SIGSEGV


async def test_a_flood_of_log_lines_is_thinned_and_the_gap_is_told(child):
    source = """
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        def on_start(self, ctx):
            for number in range(20_000):
                ctx.logger.info("line %d", number)
    """
    async with child(source) as subject:
        await subject.started()
        assert len(subject.log) < 5000
        await subject.hook("on_start", deadline=30)
        await eventually(lambda: any("lines were dropped" in line for line in subject.log))


async def test_a_call_that_is_cancelled_stops_in_the_module(child):
    source = """
    import asyncio
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            try:
                await asyncio.sleep(3600)
            finally:
                print("stopped")
    """
    async with child(source) as subject:
        await subject.construct()
        with pytest.raises(HostTimeout):
            await subject.hook("on_start", deadline=0.2)
        await eventually(lambda: subject.log == ["stopped"])


async def test_more_calls_than_allowed_are_refused_and_the_rest_is_answered(child):
    source = """
    import asyncio
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        async def on_load(self, ctx):
            self.go = asyncio.Event()
        async def on_start(self, ctx):
            await self.go.wait()
        async def on_stop(self, ctx):
            self.go.set()
    """
    async with child(source) as subject:
        await subject.construct()
        await subject.hook("on_load")
        waiting = [asyncio.ensure_future(subject.hook("on_start")) for _ in range(MAX_CALLS_TO_MODULE)]
        await asyncio.sleep(0)
        with pytest.raises(HostError) as raised:
            await subject.hook("on_stop")
        assert raised.value.code == "TooManyCalls"
        waiting.pop().cancel()

        async def let_go() -> bool:
            try:
                await subject.hook("on_stop")
            except HostError:
                return False
            return True

        await eventually(let_go)
        assert await asyncio.gather(*waiting) == [None] * (MAX_CALLS_TO_MODULE - 1)


async def test_a_fork_of_the_module_does_not_hold_the_line(child):
    source = """
    import os, time
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        def on_start(self, ctx):
            if os.fork() == 0:
                time.sleep(3600)
        def on_stop(self, ctx):
            os._exit(5)
    """
    async with child(source) as subject:
        await subject.construct()
        await subject.hook("on_start")
        with pytest.raises(HostError):
            await subject.hook("on_stop")
        assert subject.link.ended.done()
        assert await subject.wait() == 5
        os.killpg(subject.process.pid, signal.SIGKILL)


async def test_a_log_line_that_cannot_be_made_costs_the_module_nothing(child):
    source = """
    from corral.sdk import PlatformModule
    class Bad:
        def __str__(self): return 1 / 0
        __repr__ = __str__
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            ctx.logger.info(Bad())
    """
    async with child(source) as subject:
        await subject.construct()
        await subject.hook("on_start")
        said = await eventually(lambda: subject.log)
        assert "cannot be formatted: ZeroDivisionError, in" in said[0]
        assert "subject.py:8" in said[0]


async def test_a_stream_that_does_not_begin_in_time_is_a_timeout_like_any_other(child):
    source = """
    import asyncio
    from corral.sdk import PlatformModule
    class Subject(PlatformModule):
        async def on_start(self, ctx):
            await asyncio.sleep(1000)
    """
    async with child(source) as subject:
        await subject.construct()
        hanging = subject.link.stream(
            m.HOOK_PREFIX + "on_start", m.HookArguments(), m.HookAnswer, deadline=0.2
        )
        with pytest.raises(HostTimeout, match=r"within 0\.2 s"):
            async with hanging:
                raise AssertionError("there is no answer")
