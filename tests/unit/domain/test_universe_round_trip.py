"""Configuration, group, configuration: what a client wrote is what it reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_documents import merged, parse_group
from corral.domain.universe.command_lines import split_command
from corral.domain.universe.configurations import map_configuration
from corral.domain.universe.group_configurations import (
    command_line,
    configuration_of,
    configuration_patch,
    faults_of,
    new_document,
)

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
WORDS = st.text(st.sampled_from("abcXYZ019%./-_=:\"' $|&é"), min_size=1, max_size=12)
VALUES = st.dictionaries(st.from_regex(r"[A-Z][A-Z_]{0,6}", fullmatch=True), WORDS, max_size=3)


def entries(grouped: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    name = st.just("") if grouped else NAMES
    group = NAMES if grouped else st.one_of(st.just(""), NAMES)
    parts = {"name": name, "group": group, "storage": st.just("local"), "priority": st.integers(-99, 99)}
    return st.lists(st.fixed_dictionaries(parts), max_size=3)


@st.composite
def configurations(draw: st.DrawFn) -> dict[str, Any]:
    low, high = sorted(draw(st.tuples(st.integers(30_000, 65_535), st.integers(30_000, 65_535))))
    static = draw(st.booleans())
    lists = {
        field: draw(entries("Groups" in field)) for field in ("allOf", "allInGroups", "oneOf", "oneInGroups")
    }
    if static:
        lists = {field: [] for field in lists}  # none are laid for these
    names = draw(st.lists(NAMES.filter(lambda name: name != "primary"), unique=True, max_size=3))
    numbers = draw(st.lists(st.integers(1, 29_999), unique=True, min_size=3, max_size=3))
    return {
        "name": draw(NAMES),
        "runtime": draw(st.sampled_from(["process", "tmux", "screen"])),
        "command": draw(st.lists(WORDS, min_size=1, max_size=4).map(" ".join).filter(str.strip)),
        "static": static,
        "ramMB": draw(st.integers(0, 100_000)),
        "cpu": draw(st.integers(0, 40_000)) / 4,
        "instanceGroups": draw(st.lists(NAMES, max_size=3)),
        "nodes": draw(st.lists(NAMES, unique=True, max_size=3)),
        "hostAddress": draw(st.sampled_from(["", "127.0.0.1", "%NODE_ADDRESS%", "a.example.org"])),
        "availablePorts": draw(st.sampled_from([None, {"min": low, "max": high}])),
        "minimumServiceCount": draw(st.integers(0, 10_000)),
        "environmentVariables": draw(VALUES),
        "templateInstallationConfig": {
            **lists,
            "onTemplatePasteOverridePresentFiles": any(lists.values()) and draw(st.booleans()),
        },
        "fileModifications": [] if static else draw(st.lists(NAMES, unique=True, max_size=3)),
        "properties": draw(VALUES),
        "additionalPorts": [
            {"port": number, "protocol": draw(st.sampled_from(["tcp", "udp", "both"])), "name": name}
            for name, number in zip(names, numbers, strict=False)
        ],
    }


def group_of(configuration: dict[str, Any]) -> GroupSpec:
    mapped = map_configuration("body", configuration)
    assert faults_of(mapped, configuration) == []
    return parse_group(new_document(mapped))


def meant(configuration: dict[str, Any]) -> dict[str, Any]:
    """The command with single spaces where it is split at them."""
    line = configuration["command"]
    return {**configuration, "command": command_line(split_command(line).arguments)}


@pytest.mark.system
@settings(max_examples=40, deadline=None)
@given(configurations())
def test_a_configuration_is_read_back_as_it_was_written(configuration: dict[str, Any]) -> None:
    assert configuration_of(group_of(configuration)) == meant(configuration)


@pytest.mark.system
@settings(max_examples=40, deadline=None)
@given(configurations(), configurations())
def test_a_configuration_written_over_another_is_read_back_as_well(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    after = {**after, "name": before["name"]}
    mapped = map_configuration("body", before)
    document = new_document(mapped)
    spec = parse_group(document)
    changed = merged(document, configuration_patch(spec, map_configuration("body", after)))
    assert configuration_of(parse_group(changed)) == meant(after)


@settings(max_examples=40, deadline=None)
@given(configurations())
def test_written_back_a_configuration_changes_nothing(configuration: dict[str, Any]) -> None:
    spec = group_of(configuration)
    assert group_of(configuration_of(spec)) == spec
