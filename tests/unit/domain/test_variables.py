"""`%NAME%` in texts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.groups.variable_checks import check_names
from corral.domain.groups.variables import (
    ALIASES,
    InstanceFacts,
    UnresolvedVariable,
    built_in,
    declared,
    defaults,
    label_variables,
    merge_layers,
    property_variables,
    run_variables,
    secrets_among,
    substitute,
    substitute_all,
    substitute_bytes,
    template_layer,
)
from corral.domain.spec import VariableSpec, VariableType
from corral.domain.templates import TemplateSettings
from corral.errors import Rejected

FACTS = InstanceFacts(
    instance_id="lobby-1",
    group="lobby",
    node_id="n1",
    node_address="10.0.0.7",
    controller_address="10.0.0.1",
    controller_api_port=8480,
    port=25565,
    ports={"primary": 25565, "query-2": 30001},
    memory_mb=512,
    max_players=20,
)


@pytest.mark.parametrize(
    ("text", "result", "unresolved"),
    [
        ("", "", ()),
        ("no names", "no names", ()),
        ("%PORT%", "25565", ()),
        ("a%PORT%b%GROUP%c", "a25565blobbyc", ()),
        ("%PORT%%GROUP%", "25565lobby", ()),
        ("100% of %GROUP%", "100% of lobby", ()),
        ("%NOBODY% %PORT% %NOBODY%", "%NOBODY% 25565 %NOBODY%", ("NOBODY",)),
        ("%port% %1X% %%", "%port% %1X% %%", ()),
        ("%PORT_QUERY_2%", "30001", ()),
        ("%PORT_PRIMARY% %NODE_PORT%", "25565 25565", ()),
        ("100%OFF%PORT%", "100%OFF25565", ("OFF",)),
        ("%NOBODY%NEITHER%", "%NOBODY%NEITHER%", ("NOBODY",)),
    ],
)
def test_known_names_are_replaced_and_the_others_named(text, result, unresolved):
    found = substitute(text, built_in(FACTS))
    assert (found.text, found.unresolved) == (result, unresolved)


def test_a_value_that_looks_like_a_name_is_left_alone():
    assert substitute("%A%", {"A": "%B%", "B": "x"}).text == "%B%"


def test_every_alias_means_what_its_name_means():
    values = built_in(FACTS)
    assert all(values[alias] == values[name] for alias, name in ALIASES.items())


def test_what_has_no_value_is_missed_and_not_empty():
    bare = InstanceFacts(instance_id="i", group="g", node_id="n", node_address="a")
    texts, missing = substitute_all(["%PORT% %CONTROLLER_ADDRESS%", "%PORT% %MEMORY_MB%"], built_in(bare))
    assert texts == ["%PORT% %CONTROLLER_ADDRESS%", "%PORT% 0"]
    assert missing == ("PORT", "CONTROLLER_ADDRESS")


def test_the_documented_names_are_all_there():
    documented = """PORT INSTANCE_ID INSTANCE_NAME GROUP NODE_ID NODE_ADDRESS NODE_PORT HOST_ADDRESS
        CONTROLLER_ADDRESS CONTROLLER_API_PORT MEMORY_MB MAX_PLAYERS PORT_QUERY_2 MASTER_IP MASTER_ADDRESS
        MASTER_PORT MASTER_API_PORT CONFIGURATION_NAME RAM_MB INSTANCE_GROUPS"""
    assert set(documented.split()) <= set(built_in(FACTS))


def test_instance_groups_are_the_group_unless_they_are_defined():
    facts = InstanceFacts(instance_id="i", group="g", node_id="n", node_address="a", instance_groups="x,y")
    assert built_in(FACTS)["INSTANCE_GROUPS"] == FACTS.group
    assert built_in(facts)["INSTANCE_GROUPS"] == "x,y"
    check_names({"INSTANCE_GROUPS": "x,y"}, field="variables")
    with pytest.raises(Rejected):
        check_names({"CONFIGURATION_NAME": "x"}, field="variables")


def test_the_host_address_is_the_nodes_unless_the_group_says_another():
    facts = InstanceFacts(instance_id="i", group="g", node_id="n", node_address="a", host_address="0.0.0.0")
    assert built_in(FACTS)["HOST_ADDRESS"] == "10.0.0.7"
    assert built_in(facts)["HOST_ADDRESS"] == "0.0.0.0"
    assert built_in(facts)["NODE_ADDRESS"] == "a"


def test_bytes_of_any_encoding_stay_and_unresolved_names_have_their_line():
    data = b"\xff\xfe\x00\r\nport=%PORT%\r\n\x80%NOBODY%\n%PORT%%LATE%\n%NOBODY%"
    found = substitute_bytes(data, {"PORT": "1\u00e9"})
    assert found.data == b"\xff\xfe\x00\r\nport=1\xc3\xa9\r\n\x80%NOBODY%\n1\xc3\xa9%LATE%\n%NOBODY%"
    assert found.unresolved == (UnresolvedVariable("NOBODY", 3), UnresolvedVariable("LATE", 4))
    assert found.replaced == 2


def test_data_without_a_known_name_is_the_very_same_object():
    data = b"100% of %nobody% %" * 1000
    assert substitute_bytes(data, {"PORT": "1"}).data is data


_PIECES = st.lists(st.one_of(st.binary(max_size=8), st.sampled_from([b"%A%", b"%B%", b"%", b"%C%", b"\n"])))


@given(_PIECES.map(b"".join), st.binary(max_size=3))
def test_only_known_names_are_touched(data, noise):
    values = {"A": "x%B%", "B": ""}
    found = substitute_bytes(data, values)
    assert found.data == _rebuilt(data, values)
    assert all(each.name not in values for each in found.unresolved)
    assert substitute_bytes(noise.replace(b"%", b""), values).replaced == 0


def _rebuilt(data: bytes, values: dict[str, str]) -> bytes:
    """The same, sign by sign."""
    result, at = b"", 0
    while at < len(data):
        match = re.compile(rb"%([A-Z][A-Z0-9_]{0,127})%").match(data, at)
        if match and match[1].decode() in values:
            result += values[match[1].decode()].encode()
            at = match.end()
        else:
            result += data[at : at + 1]
            at += 1
    return result


def test_layers_win_in_their_one_order():
    types = declared(
        [
            TemplateSettings(
                variable_types={"A": VariableSpec(default="d1"), "B": VariableSpec(default="d")}
            ),
            TemplateSettings(variable_types={"A": VariableSpec(default="d2")}),
        ],
        {"B": VariableSpec(type=VariableType.SECRET)},
    )
    assert defaults(types) == {"A": "d2"}
    assert types["B"].type is VariableType.SECRET
    templates = template_layer(
        [TemplateSettings(variables={"T": "1"}), TemplateSettings(variables={"T": "2"})]
    )
    assert templates == {"T": "2"}
    planned = merge_layers(
        defaults(types), templates, property_variables({"map-size": "5", "t": "3"}), {"B": "x"}
    )
    assert planned == {"A": "d2", "T": "3", "MAP_SIZE": "5", "B": "x"}
    found = run_variables(
        planned | {"LABEL_ZONE": "never", "GROUP": "never"},
        node_labels={"zone": "eu", "example.org/rack-1": "r"},
        instance={"T": "4", "PORT": "never"},
        built_in={"PORT": "80", "GROUP": "lobby"},
    )
    assert found == {
        "A": "d2",
        "T": "4",
        "MAP_SIZE": "5",
        "B": "x",
        "LABEL_ZONE": "eu",
        "LABEL_EXAMPLE_ORG_RACK_1": "r",
        "PORT": "80",
        "GROUP": "lobby",
    }
    assert label_variables({}) == {}


def test_secrets_are_found_by_their_declaration():
    types = {
        "KEY": VariableSpec(type=VariableType.SECRET),
        "OTHER": VariableSpec(type=VariableType.SECRET),
        "TEXT": VariableSpec(),
    }
    assert secrets_among(types, {"KEY": "file://key", "TEXT": "file://text"}) == {"KEY": "file://key"}
