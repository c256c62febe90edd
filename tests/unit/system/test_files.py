"""Our own files: whole, versioned, locked; and the orderly end of a process."""

from __future__ import annotations

import asyncio
import os
import pathlib
import subprocess
import sys

import msgspec
import pytest

from corral.errors import Code, Rejected
from corral.system.clock import SystemClock
from corral.system.files import DirectoryLock, atomic_write, make_directory, read_versioned, write_versioned
from corral.system.service.loop_watch import LoopWatch
from corral.system.service.process import Stage, run_stages
from corral.testing.waiting import eventually


class Note(msgspec.Struct, frozen=True, kw_only=True):
    text: str


def test_a_value_survives_its_file_which_is_for_the_owner_alone(tmp_path):
    path = tmp_path / "note.json"
    write_versioned(path, Note(text="ä"), name="note", version=3)
    assert read_versioned(path, Note, name="note", version=3) == Note(text="ä")
    assert path.stat().st_mode & 0o077 == 0
    assert os.listdir(tmp_path) == ["note.json"]


def test_an_absent_file_is_none(tmp_path):
    assert read_versioned(tmp_path / "none", Note, name="note", version=1) is None


def test_a_newer_file_is_refused_and_not_changed(tmp_path):
    path = tmp_path / "note.json"
    write_versioned(path, Note(text="x"), name="note", version=4)
    with pytest.raises(Rejected) as caught:
        read_versioned(path, Note, name="note", version=3)
    assert caught.value.code is Code.FORMAT_TOO_NEW
    assert "version 4" in caught.value.message


@pytest.mark.parametrize("content", [b"", b"{", b"null", b'{"format":"other","version":1}', b"\xff\xfe"])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "note.json"
    path.write_bytes(content)
    with pytest.raises(Rejected, match=r"note\.json"):
        read_versioned(path, Note, name="note", version=1)


def test_a_failed_write_leaves_the_old_content_and_no_litter(tmp_path):
    path = tmp_path / "kept"
    atomic_write(path, b"old")
    with pytest.raises(TypeError):
        atomic_write(path, "not bytes")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["kept"]


def test_a_directory_has_one_owner_and_the_second_is_told_who(tmp_path):
    with DirectoryLock(tmp_path, "daemon"):
        with pytest.raises(Rejected) as caught:
            DirectoryLock(tmp_path, "daemon").acquire()
        assert caught.value.code is Code.DATA_DIRECTORY_LOCKED
        assert str(os.getpid()) in caught.value.message
    with DirectoryLock(tmp_path, "daemon"):
        pass


def test_the_lock_of_a_killed_owner_is_free(tmp_path):
    code = (
        "import pathlib, sys, os, signal\n"
        "from corral.system.files import DirectoryLock\n"
        f"DirectoryLock(pathlib.Path({str(tmp_path)!r}), 'daemon').acquire()\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    with DirectoryLock(tmp_path, "daemon"):
        pass


def test_a_lock_is_released_though_a_child_has_a_copy_of_its_descriptor(tmp_path):
    lock = DirectoryLock(tmp_path, "daemon")
    lock.acquire()
    path = str(tmp_path / "daemon.lock")
    (held,) = (n for n in map(int, os.listdir("/proc/self/fd")) if _leads_to(n) == path)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[held]) as child:
        lock.release()
        with DirectoryLock(tmp_path, "daemon"):
            pass
        child.stdin.close()


def _leads_to(descriptor):
    try:
        return str(pathlib.Path(f"/proc/self/fd/{descriptor}").readlink())
    except FileNotFoundError:  # the one with which they were listed
        return ""


def test_a_directory_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Rejected) as caught:
        make_directory(tmp_path / "file" / "data")
    assert caught.value.field == "data"


async def test_every_stage_of_an_end_runs_and_stragglers_are_named():
    ran = []

    async def quick():
        ran.append("quick")

    async def broken():
        raise RuntimeError("broken")

    stages = [
        Stage(name="hung", share=0.1, action=asyncio.Event().wait),
        Stage(name="broken", share=0.5, action=broken),
        Stage(name="quick", share=1.0, action=quick),
    ]
    assert await run_stages(stages, budget=1.0, clock=SystemClock()) == ["hung", "broken"]
    assert ran == ["quick"]


async def test_a_blocked_loop_is_noticed_with_what_blocked_it(capsys):
    def the_culprit():
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.6)"])

    async with LoopWatch(alarm_seconds=0.1) as watch:
        await asyncio.sleep(0)
        the_culprit()
        await eventually(lambda: watch.lag() > 0.1)
    assert "the_culprit" in capsys.readouterr().out
