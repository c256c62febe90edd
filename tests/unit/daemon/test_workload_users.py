"""The users that a node lends to workloads, and those it gives to one instance alone."""

from __future__ import annotations

import concurrent.futures
import contextlib
import grp
import os
import pathlib
import pwd
import subprocess
import sys

import msgspec
import pytest
import structlog

from corral.daemon.workload.isolated_uids import IsolatedUids
from corral.daemon.workload.workload_users import WorkloadUsers
from corral.errors import Code, Rejected, Retryable
from corral.system.daemon_config import InstancesSection
from corral.system.files import write_versioned

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="a daemon that is not root has no choice")
# apart from the ids that daemons of other tests give: ids that processes have are passed over
RANGE = {"first_uid": 1_950_000_000, "last_uid": 1_950_000_002}
NOBODY = str(pwd.getpwnam("nobody").pw_uid)


def chosen(tmp_path: pathlib.Path, settings: dict, run_as: str, isolate: str):
    return WorkloadUsers(InstancesSection(**settings), data=tmp_path).choose(
        "one", run_as=run_as, isolate=isolate
    )


@as_root
@pytest.mark.parametrize(
    ("settings", "run_as", "isolate", "result"),
    [
        ({"development": True}, "", "", ""),
        ({"development": True}, "", "auto", ""),
        ({"development": True}, "root", "auto", "root"),
        ({"development": True, "run_as": "nobody"}, "nobody", "auto", "nobody"),
        ({"development": True, **RANGE}, "", "uid", "1950000000"),
        ({"run_as": "nobody"}, "", "", "nobody"),
        ({"run_as": "nobody"}, "", "shared", "nobody"),
        ({"run_as": "nobody"}, "nobody", "auto", "nobody"),
        ({"run_as": "nobody"}, NOBODY, "auto", NOBODY),
        ({"run_as": "nobody", "allowed_users": ("games",)}, "games", "auto", "games"),
        ({"run_as": "nobody", "allow_root": True}, "root", "auto", "root"),
        ({"run_as": "27101"}, "", "shared", "27101"),
        ({"run_as": "no-such-user", **RANGE}, "", "auto", "1950000000"),
        (RANGE, "", "uid", "1950000000"),
    ],
)
def test_who_a_workload_of_a_root_daemon_is(tmp_path, settings, run_as, isolate, result):
    assert chosen(tmp_path, settings, run_as, isolate).run_as == result


@pytest.mark.trap("T63")
@as_root
@pytest.mark.parametrize(
    ("settings", "run_as", "isolate", "why"),
    [
        ({}, "1950000000", "auto", "no account"),
        ({}, "1950000000", "shared", "no account"),
        ({}, "27101", "auto", "no account"),
        ({"run_as": "27101"}, "27101", "auto", "no account"),
        ({}, "4294967294", "auto", "no account"),
        ({}, "4294967295", "auto", "does not exist"),
        ({}, "4294967296", "auto", "does not exist"),
        ({}, "-1", "auto", "does not exist"),
        ({}, "٣", "auto", "does not exist"),
        ({}, "9" * 5000, "auto", "does not exist"),
        ({}, "x" * 5000, "auto", "does not exist"),
        ({}, "a\0b", "auto", "does not exist"),
        ({}, "\udc80", "auto", "does not exist"),
        ({"run_as": "nobody"}, "games", "auto", "does not lend"),
        ({"run_as": "nobody"}, "5", "auto", "does not lend"),
        ({"development": True}, "games", "auto", "does not lend"),
        (
            {"run_as": "nobody", "first_uid": 1, "last_uid": 9, "allowed_users": ("games",)},
            "games",
            "auto",
            "range",
        ),
        ({"run_as": "games", "first_uid": 1, "last_uid": 9}, "", "shared", "range"),
        ({"run_as": "nobody"}, "root", "auto", "root"),
        ({"run_as": "nobody"}, "0", "auto", "root"),
        ({"run_as": "nobody", "allowed_users": ("root",)}, "root", "auto", "root"),
        ({"run_as": "root"}, "", "shared", "root"),
        ({"run_as": "no-such-user"}, "", "shared", "does not exist"),
        ({"run_as": "nobody"}, "nobody", "uid", "leave one"),
    ],
)
def test_what_a_node_does_not_lend_is_refused_with_what_to_do(tmp_path, settings, run_as, isolate, why):
    with pytest.raises(Rejected) as refused:
        chosen(tmp_path, settings, run_as, isolate)
    assert refused.value.code is Code.RUN_AS_REFUSED
    assert refused.value.hint
    assert why in str(refused.value)
    assert len(str(refused.value)) < 1000


@as_root
def test_a_uid_that_was_given_to_an_instance_cannot_be_named_even_outside_the_range(tmp_path):
    games = pwd.getpwnam("games").pw_uid
    write_versioned(
        tmp_path / "uids.json", IsolatedGiven(uids={"old": games}), name="corral-instance-uids", version=1
    )
    with pytest.raises(Rejected, match="range of isolated"):
        chosen(tmp_path, {"allowed_users": ("games",)}, "games", "auto")


@as_root
def test_an_account_brings_no_group_but_those_that_are_listed(tmp_path):
    name, gid = _member_of_another_group()
    alone = chosen(tmp_path, {"run_as": name}, "", "shared")
    assert (alone.gid, alone.groups) == (pwd.getpwnam(name).pw_gid, ())
    listed = chosen(tmp_path, {"run_as": name, "allowed_groups": (grp.getgrgid(gid).gr_name,)}, "", "shared")
    assert listed.groups == (gid,)


def test_each_instance_keeps_its_uid_until_it_is_forgotten(tmp_path):
    assert [uid(tmp_path, "a"), uid(tmp_path, "b"), uid(tmp_path, "a")] == [
        1_950_000_000,
        1_950_000_001,
        1_950_000_000,
    ]
    uid(tmp_path, "c")
    with pytest.raises(Rejected, match="1950000000 to 1950000002") as refused:
        uid(tmp_path, "d")
    assert "last_uid" in (refused.value.hint or "")


@pytest.mark.trap("T63")
def test_a_freed_uid_is_given_again_only_after_the_whole_range_was_used(tmp_path):
    """Each call is a daemon of its own: the order outlives restarts."""
    assert uid(tmp_path, "a") == 1_950_000_000
    forget(tmp_path, "a")
    assert uid(tmp_path, "b") == 1_950_000_001
    forget(tmp_path, "b")
    assert uid(tmp_path, "c") == 1_950_000_002
    forget(tmp_path, "c")
    assert uid(tmp_path, "d") == 1_950_000_000


def test_what_an_earlier_version_stored_is_gone_on_from(tmp_path):
    write_versioned(
        tmp_path / "uids.json",
        IsolatedGiven(uids={"old": 200_000, "a": 1_950_000_000}),
        name="corral-instance-uids",
        version=1,
    )
    assert [uid(tmp_path, id) for id in ("old", "a", "b")] == [200_000, 1_950_000_000, 1_950_000_001]


@as_root
def test_the_log_says_at_the_start_whom_a_node_lends_and_what_it_passes_over(tmp_path):
    taken = {"run_as": "nobody", "allowed_users": ("no-such-user",), "allowed_groups": ("no-such-group",)}
    with structlog.testing.capture_logs() as logged:
        WorkloadUsers(InstancesSection(**taken, last_uid=4_294_967_293), data=tmp_path).warn()
    events = {each["event"]: each for each in logged}
    assert events["workload_users.chosen"]["lent"] == ["nobody", "no-such-user"]
    assert events["workload_users.chosen"]["usable"] == 4_294_967_294 - 1_900_000_000
    assert "useradd" in events["run_user.refused"]["reason"]
    assert events["user_group.refused"]["group"] == "no-such-group"


def test_a_burst_of_instances_gets_a_uid_each_that_is_on_disk(tmp_path):
    uids = IsolatedUids(1_950_000_000, 1_950_000_099, data=tmp_path)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        found = list(pool.map(uids.of, [f"i{number % 100}" for number in range(200)]))
    assert found[:100] == found[100:]
    assert sorted(found[:100]) == list(range(1_950_000_000, 1_950_000_100))
    again = IsolatedUids(1_950_000_000, 1_950_000_099, data=tmp_path)
    assert [again.of(f"i{number}") for number in range(100)] == found[:100]


def test_a_uid_that_could_not_be_written_down_is_not_given(tmp_path):
    data = tmp_path / "data"
    uids = IsolatedUids(1_950_000_000, 1_950_000_002, data=data)
    for _ in range(2):
        with pytest.raises(Retryable):
            uids.of("a")
    data.mkdir()
    assert uids.of("a") == 1_950_000_000
    assert uid(data, "a") == 1_950_000_000


@pytest.mark.parametrize("file", ["subuid", "subgid"])
def test_ids_of_somebody_elses_containers_are_passed_over(tmp_path, file):
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / file).write_text("alice:1949999000:1001\nbob:1950000002:65536\n# x\nbad:y:z\nnone:1950000001:0\n")
    uids = IsolatedUids(1_950_000_000, 1_950_000_002, data=tmp_path, etc=etc)
    assert uids.usable == 1
    assert [(span.first, span.last) for span in uids.foreign] == [
        (1_950_000_000, 1_950_000_000),
        (1_950_000_002, 1_950_000_002),
    ]
    assert uids.of("a") == 1_950_000_001
    with pytest.raises(Rejected, match="alice"):
        uids.of("b")


def test_accounts_of_the_host_are_passed_over(tmp_path):
    taken = pwd.getpwnam("nobody").pw_uid
    assert IsolatedUids(taken, taken + 1, data=tmp_path).of("a") == taken + 1


@as_root
@as_root
def test_a_uid_that_a_process_of_another_daemon_has_is_passed_over(tmp_path):
    """Also one whose entry in /proc is root's, as that of one which changed its user is."""
    first = 1_960_000_000 + 3 * os.getpid()  # nobody else tries these at this moment
    hides = f"import os; os.setuid({first + 1}); print('up', flush=True); input()"
    with contextlib.ExitStack() as stack:
        for command, user in ((["cat"], first), ([sys.executable, "-c", hides], None)):
            process = subprocess.Popen(
                command, user=user, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            stack.enter_context(process)
            stack.callback(process.stdin.close)
        assert process.stdout.readline() == b"up\n"
        uids = IsolatedUids(first, first + 2, data=tmp_path)
        assert uids.of("a") == first + 2
        with pytest.raises(Rejected, match="2 of them have processes that are not this daemon's"):
            uids.of("b")
    assert uids.of("b") == first


def test_whoever_owns_a_directory_keeps_its_uid_though_the_record_is_lost(tmp_path):
    owned = {"running/a": 1_950_000_001, "static/b": 1_950_000_000}
    for place, owner in owned.items():
        (tmp_path / place).mkdir(parents=True)
        os.chown(tmp_path / place, owner, owner)
    assert uid(tmp_path, "thief") == 1_950_000_002
    assert [uid(tmp_path, "a"), uid(tmp_path, "b")] == list(owned.values())
    with pytest.raises(Rejected):
        uid(tmp_path, "d")


@as_root
def test_a_uid_that_owns_a_directory_is_not_given_though_it_came_after_the_start(tmp_path):
    uids = IsolatedUids(1_950_000_000, 1_950_000_002, data=tmp_path)
    for id in ("a", "b"):  # restored from another node: nobody knows whose this uid is
        (tmp_path / "static" / id).mkdir(parents=True)
        os.chown(tmp_path / "static" / id, 1_950_000_000, 1_950_000_000)
    assert [uids.of("a"), uids.of("c")] == [1_950_000_001, 1_950_000_002]
    with pytest.raises(Rejected):
        uids.of("d")
    assert uid(tmp_path, "a") == 1_950_000_001


def test_an_instance_that_keeps_its_directory_keeps_its_uid_while_its_disk_is_away(tmp_path):
    uids = IsolatedUids(1_950_000_000, 1_950_000_002, data=tmp_path)
    assert uids.of("world", static=True) == 1_950_000_000
    uids.of("lobby")
    for _ in range(2):
        uids.release(lambda _: True)
        uids = IsolatedUids(1_950_000_000, 1_950_000_002, data=tmp_path)
    assert [uids.of(id) for id in ("x", "y", "world")] == [1_950_000_002, 1_950_000_001, 1_950_000_000]


@as_root
def test_a_static_directory_of_an_earlier_version_keeps_its_uid_while_its_disk_is_away(tmp_path):
    assert uid(tmp_path, "world") == 1_950_000_000
    (tmp_path / "static" / "world").mkdir(parents=True)
    os.chown(tmp_path / "static" / "world", 1_950_000_000, 1_950_000_000)
    assert uid(tmp_path, "world") == 1_950_000_000
    (tmp_path / "static").rename(tmp_path / "unmounted")
    forget(tmp_path, "world")
    assert [uid(tmp_path, id) for id in ("x", "y")] == [1_950_000_001, 1_950_000_002]
    with pytest.raises(Rejected):
        uid(tmp_path, "z")
    assert uid(tmp_path, "world") == 1_950_000_000


@as_root
def test_the_log_says_at_the_start_whose_uid_from_before_is_somebody_elses_as_well(tmp_path):
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "subuid").write_text("alice:100000:65536\nbob:165536:65536\n")
    stored = IsolatedGiven(uids={"world": 200_000, "lobby": 1_950_000_000})
    write_versioned(tmp_path / "uids.json", stored, name="corral-instance-uids", version=1)
    with structlog.testing.capture_logs() as logged:
        WorkloadUsers(InstancesSection(), data=tmp_path, etc=etc).warn()
    (said,) = (each for each in logged if each["event"] == "shared_uids.found")
    assert said["count"] == 1
    assert said["instances"] == f"world ({etc}/subuid: bob)"


@as_root
def test_a_directory_does_not_bring_a_uid_back_that_is_somebody_elses(tmp_path):
    etc = tmp_path / "etc"
    etc.mkdir()
    (etc / "subuid").write_text("alice:1950000000:1\n")
    (tmp_path / "static" / "world").mkdir(parents=True)
    os.chown(tmp_path / "static" / "world", 1_950_000_000, 1_950_000_000)
    uids = IsolatedUids(1_950_000_000, 1_950_000_002, data=tmp_path, etc=etc)
    assert uids.of("world") == 1_950_000_001


class IsolatedGiven(msgspec.Struct, kw_only=True):
    """As an earlier version wrote it."""

    uids: dict[str, int]


def uid(data: pathlib.Path, id: str) -> int:
    return IsolatedUids(1_950_000_000, 1_950_000_002, data=data).of(id)


def forget(data: pathlib.Path, id: str) -> None:
    IsolatedUids(1_950_000_000, 1_950_000_002, data=data).release(lambda known: known == id)


def _member_of_another_group() -> tuple[str, int]:
    for entry in pwd.getpwall():
        others = set(os.getgrouplist(entry.pw_name, entry.pw_gid)) - {entry.pw_gid}
        if entry.pw_uid and others:
            return entry.pw_name, others.pop()
    pytest.skip("no account of this host is in a second group")
