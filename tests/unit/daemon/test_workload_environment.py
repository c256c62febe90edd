"""The world a workload finds: variables."""

from __future__ import annotations

import msgspec
import pytest

from corral.daemon.workload.environment import build_environment
from corral.daemon.workload.start_order import StartOrder
from corral.daemon.workload.variable_values import NodeFacts, Secrets, resolve_values
from corral.domain.groups.group import PortProtocol
from corral.domain.groups.instance_records import LeasedPort
from corral.domain.ids import Incarnation, InstanceId
from corral.errors import Code, Rejected

ORDER = StartOrder(
    instance_id=InstanceId("one"),
    group="g",
    incarnation=Incarnation(1024),
    command=("x",),
    ports=(LeasedPort(name="primary", port=99, protocol=PortProtocol.TCP),),
    api_url="http://c",
    token="t",
)


def build(env: dict[str, str], order: StartOrder = ORDER) -> dict[str, str]:
    return build_environment(
        order, env=env, node_id="n", user="u", home="/h", time_zone="UTC", authority_file="/d/authority.pem"
    )


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


def test_a_program_on_a_terminal_knows_how_to_draw():
    order = msgspec.structs.replace(ORDER, tty=True)
    assert build({}, order)["TERM"] == "xterm"
    assert build({"TERM": "dumb"}, order)["TERM"] == "dumb"


def test_the_authority_is_named_where_the_api_has_a_certificate_of_it_and_nowhere_else():
    order = msgspec.structs.replace(ORDER, api_url="https://c", api_cluster_tls=True)
    assert build({}, order)["CORRAL_API_CA_FILE"] == "/d/authority.pem"
    assert "CORRAL_API_CA_FILE" not in build({}, msgspec.structs.replace(order, api_cluster_tls=False))
    with pytest.raises(Rejected, match="CORRAL_API_CA_FILE"):
        build({"CORRAL_API_CA_FILE": "/mine"}, order)


@pytest.mark.parametrize(
    ("url", "address", "port"),
    [
        ("http://c:8480", "c", "8480"),
        ("https://panel.example.org", "panel.example.org", "443"),
        ("http://[::1]", "::1", "80"),
    ],
)
def test_variables_have_the_address_of_the_api_also_where_its_port_goes_without_saying(
    tmp_path, url, address, port
):
    order = msgspec.structs.replace(ORDER, api_url=url)
    node = NodeFacts(node_id="n", address="a", memory_mb=1)
    values = resolve_values(order, node, Secrets(tmp_path)).all
    assert (values["CONTROLLER_ADDRESS"], values["CONTROLLER_API_PORT"]) == (address, port)
