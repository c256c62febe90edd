"""Workloads under another user: what they are, and what they cannot do. Needs root."""

from __future__ import annotations

import os
import pathlib
import pwd

import pytest

from corral.errors import Code
from corral.testing import workloads
from corral.testing.runtime_contract import C_LIBRARY_SIGNALS, console_bytes, refused
from corral.testing.runtime_nodes import ProcessHarness
from corral.testing.workloads import shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
NOBODY = pwd.getpwnam("nobody")

FORGE = """
for path in "$RUN" "$RUN/exit" "$RUN/record" "$RUN/empty" "$RUN"/console "$RUN/lock" "$KEY" "$RUN/../.."; do
  (: >> "$path") 2>/dev/null && echo "wrote $path"
  (echo x > "$path/forged") 2>/dev/null && echo "made $path/forged"
  cat "$path" >/dev/null 2>&1 && echo "read $path"
  rm -rf "$path" 2>/dev/null && [ ! -e "$path" ] && [ -x "$RUN" ] && echo "removed $path"
done
for pid in $PPID $(cat /proc/$PPID/status | grep PPid | cut -f2); do
  kill -9 $pid 2>/dev/null && echo "killed $pid"
  ls /proc/$pid/fd >/dev/null 2>&1 && echo "looked into $pid"
done
echo done
exit 5
"""


def own_directory(house: ProcessHarness, directory: str, uid: int) -> None:
    os.chown(directory, uid, -1)
    pathlib.Path(directory).chmod(0o750)


async def test_it_runs_as_that_user_and_no_other(house: ProcessHarness) -> None:
    spec = house.spec(
        *workloads.shell("id -u; id -g; id -G; touch here; echo x > /dev/stderr"), run_as="nobody"
    )
    own_directory(house, spec.directory, NOBODY.pw_uid)
    handle = await house.provider.start(spec)
    assert (await house.provider.wait_empty(handle)).code == 0
    lines = console_bytes(spec.run_directory).decode().split("\n")
    assert lines[:2] == [str(NOBODY.pw_uid), str(NOBODY.pw_gid)]
    assert lines[2] == str(NOBODY.pw_gid)
    assert lines[3:] == ["x", ""]
    made = pathlib.Path(spec.directory, "here").stat()
    assert (made.st_uid, made.st_mode & 0o777) == (NOBODY.pw_uid, 0o640)


async def test_it_has_its_own_group_and_those_that_are_listed(house: ProcessHarness) -> None:
    accounts = (
        (entry.pw_name, others)
        for entry in pwd.getpwall()
        if entry.pw_uid and (others := set(os.getgrouplist(entry.pw_name, entry.pw_gid)) - {entry.pw_gid})
    )
    name, others = next(accounts, ("", set[int]()))
    if not name:
        pytest.skip("no account of this host is in a second group")
    own, listed = pwd.getpwnam(name).pw_gid, min(others)
    for groups, expected in (((), {own}), ((listed,), {own, listed})):
        spec = house.spec("id", "-G", run_as=name, groups=groups, directory="/")
        await house.provider.wait_empty(await house.provider.start(spec))
        assert set(map(int, console_bytes(spec.run_directory).split())) == expected


async def test_a_number_that_means_no_user_is_refused(house: ProcessHarness) -> None:
    for number in ("4294967295", "4294967296", "9" * 5000):
        error = await refused(house, "true", run_as=number, directory="/")
        assert error.code is Code.RUN_AS_REFUSED
        assert len(str(error)) < 500


async def test_a_number_is_a_user_too(house: ProcessHarness) -> None:
    spec = house.spec("id", "-u", run_as="212345")
    own_directory(house, spec.directory, 212_345)
    handle = await house.provider.start(spec)
    await house.provider.wait_empty(handle)
    assert console_bytes(spec.run_directory) == b"212345\n"


@pytest.mark.trap("T48")
async def test_it_cannot_forge_its_exit_or_log_or_read_a_key(house: ProcessHarness) -> None:
    key = house.data / "node.key"
    key.write_text("secret")
    key.chmod(0o600)
    spec = house.spec(*shell(FORGE), run_as="nobody")
    spec.environment.update(RUN=spec.run_directory, KEY=str(key))
    own_directory(house, spec.directory, NOBODY.pw_uid)
    handle = await house.provider.start(spec)
    ended = await house.provider.wait_empty(handle)
    assert console_bytes(spec.run_directory) == b"done\n"
    assert (ended.known, ended.code) == (True, 5)
    assert key.read_text() == "secret"


async def test_a_command_that_it_may_not_execute_is_named_with_the_user(
    house: ProcessHarness, scratch: pathlib.Path
) -> None:
    program = scratch / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    error = await refused(house, str(program), run_as="nobody", directory="/")
    assert error.code is Code.NOT_EXECUTABLE
    assert "'nobody'" in str(error)
    assert str(program) in str(error)


async def test_a_directory_that_it_may_not_enter_is_named_with_the_user(
    house: ProcessHarness, scratch: pathlib.Path
) -> None:
    closed = scratch / "closed"
    closed.mkdir(mode=0o700)
    error = await refused(house, "true", run_as="nobody", directory=str(closed))
    assert error.code is Code.DIRECTORY_REFUSED
    assert "'nobody'" in str(error)
    assert str(closed) in str(error)


async def test_nothing_of_ours_is_inherited(house: ProcessHarness) -> None:
    script = shell(
        "for n in 3 4 5 6 7 8 9 10 11 12; do [ -e /proc/self/fd/$n ] && echo open $n; done; ulimit -c; cat /proc/self/status; cut -d' ' -f1,6 /proc/$$/stat"
    )
    spec = house.spec(*script, run_as="nobody", directory="/")
    handle = await house.provider.start(spec)
    await house.provider.wait_empty(handle)
    lines = console_bytes(spec.run_directory).decode().splitlines()
    assert lines[0] == "0"
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert [int(status[name], 16) for name in ("CapAmb", "CapEff", "CapPrm", "SigBlk")] == [0] * 4
    assert int(status["SigIgn"], 16) & ~C_LIBRARY_SIGNALS == 0
    assert status["NoNewPrivs"] == "1"
    assert lines[-1] == f"{handle.pid} {handle.pid}"  # a session of its own
