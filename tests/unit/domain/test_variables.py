"""`%NAME%` in texts."""

from __future__ import annotations

import pytest

from corral.domain.variables import ALIASES, InstanceFacts, built_in, substitute, substitute_all

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
