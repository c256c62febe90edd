"""The world a workload finds: variables, user, directory."""

from __future__ import annotations

import os

import pytest

from corral.daemon.prepare.environment import build_environment
from corral.daemon.prepare.start_order import StartOrder
from corral.daemon.prepare.users import WorkloadUsers
from corral.domain.groups import PortProtocol
from corral.domain.ids import Incarnation, InstanceId
from corral.domain.instance_records import LeasedPort
from corral.errors import Code, Rejected
from corral.system.config_schema import InstancesSection

ORDER = StartOrder(
    instance_id=InstanceId("one"),
    group="g",
    incarnation=Incarnation(1024),
    command=("x",),
    ports=(LeasedPort(name="primary", port=99, protocol=PortProtocol.TCP),),
    api_url="http://c",
    token="t",
)


def build(env: dict[str, str]) -> dict[str, str]:
    return build_environment(ORDER, env=env, node_id="n", user="u", home="/h", time_zone="UTC")


def test_it_is_built_from_nothing():
    assert build({}) == {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/h",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "USER": "u",
        "PYTHONUNBUFFERED": "1",
        "CORRAL_INSTANCE_TOKEN": "t",
        "CORRAL_INSTANCE_ID": "one",
        "CORRAL_GROUP": "g",
        "CORRAL_NODE_ID": "n",
        "CORRAL_PORT": "99",
        "CORRAL_API_URL": "http://c",
        "CORRAL_RUN": "one.1024",
    }


def test_the_plan_may_say_otherwise_about_everything_but_ours():
    found = build({"PATH": "/x", "PYTHONUNBUFFERED": "", "LANG": "de_DE.UTF-8"})
    assert (found["PATH"], found["PYTHONUNBUFFERED"], found["LANG"]) == ("/x", "", "de_DE.UTF-8")


@pytest.mark.parametrize(
    ("env", "code"),
    [
        ({"LD_PRELOAD": "x"}, Code.INVALID_FIELD),
        ({"CORRAL_INSTANCE_TOKEN": "x"}, Code.INVALID_FIELD),
        ({"A=B": "x"}, Code.INVALID_FIELD),
        ({"": "x"}, Code.INVALID_FIELD),
        ({"A": "\0"}, Code.INVALID_FIELD),
        ({"A": "x" * (128 * 1024 + 1)}, Code.ARGUMENTS_TOO_LONG),
    ],
    ids=["preload", "ours", "equals", "empty", "nul", "long"],
)
def test_what_may_not_be_set_is_named(env, code):
    with pytest.raises(Rejected) as refused:
        build(env)
    assert refused.value.code is code


@pytest.mark.skipif(os.geteuid() != 0, reason="a daemon that is not root has no choice")
@pytest.mark.parametrize(
    ("settings", "run_as", "isolate", "result"),
    [
        ({"development": True}, "", "", ""),
        ({"development": True}, "root", "", "root"),
        ({"development": True}, "nobody", "", "nobody"),
        ({"run_as": "nobody"}, "", "", "nobody"),
        ({"run_as": "nobody"}, "root", "", None),
        ({"run_as": "nobody"}, "0", "", None),
        ({"run_as": "nobody", "allow_root": True}, "root", "", "root"),
        ({"run_as": "no-such-user"}, "", "", None),
        ({"first_uid": 300_000, "last_uid": 300_001}, "", "uid", "300000"),
    ],
)
def test_who_a_workload_of_a_root_daemon_is(tmp_path, settings, run_as, isolate, result):
    users = WorkloadUsers(InstancesSection(**settings), data=tmp_path)
    if result is None:
        with pytest.raises(Rejected) as refused:
            users.choose("one", run_as=run_as, isolate=isolate)
        assert refused.value.code is Code.RUN_AS_REFUSED
        assert refused.value.hint
    else:
        assert users.choose("one", run_as=run_as, isolate=isolate).run_as == result


@pytest.mark.skipif(os.geteuid() != 0, reason="a daemon that is not root has no choice")
def test_each_isolated_instance_keeps_its_uid_until_it_is_forgotten(tmp_path):
    settings = InstancesSection(first_uid=300_000, last_uid=300_001)

    def uid(id: str) -> int:
        return WorkloadUsers(settings, data=tmp_path).choose(id, run_as="", isolate="uid").uid

    assert [uid("a"), uid("b"), uid("a")] == [300_000, 300_001, 300_000]
    with pytest.raises(Rejected, match="300000 to 300001"):
        uid("c")
    WorkloadUsers(settings, data=tmp_path).forget("a")
    assert uid("c") == 300_000
