"""The documents in guides and concepts are documents that work."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
import yaml

from corral.domain.groups.group_documents import parse_group
from corral.domain.groups.inheritance import resolve_groups

DOCS = pathlib.Path(__file__).parents[3] / "docs"
BASE: dict[str, Any] = {"name": "lobby", "command": ["serve"]}


def documents() -> list[Any]:
    found = []
    for page in sorted([*DOCS.glob("guides/*.md"), *DOCS.glob("concepts/*.md")]):
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.S | re.M)):
            content, *more = yaml.safe_load_all(block)
            if more:
                continue  # documents that belong together: see below
            if isinstance(content, dict) and ("name" in content or content.keys() <= _known()):
                found.append(pytest.param(content, id=f"{page.stem}-{number}"))
    return found


def _known() -> set[str]:
    return set(parse_group(BASE).__struct_fields__)


@pytest.mark.parametrize("document", documents())
def test_a_group_in_the_documentation_is_taken(document):
    parse_group(document if "name" in document else {**BASE, **document})


def test_the_example_of_inheritance_gives_what_its_table_says():
    page = (DOCS / "concepts" / "groups.md").read_text()
    (block,) = [each for each in re.findall(r"^```yaml\n(.*?)^```$", page, re.S | re.M) if "\n---\n" in each]
    documents = {each["name"]: each for each in yaml.safe_load_all(block)}
    specs, faults = resolve_groups(["base"], documents)
    assert faults == []
    base, lobby, arena = specs["base"], specs["lobby"], specs["arena"]
    assert (base.abstract, lobby.abstract, arena.abstract) == (True, False, False)
    assert (lobby.memory_mb, arena.memory_mb) == (1024, 4096)
    assert (lobby.env, arena.env) == ({"TZ": "UTC", "LOG": "debug"}, {"TZ": "UTC"})
    assert (lobby.min, arena.min) == (2, 0)
    assert (arena.command, arena.ports, arena.stop) == (lobby.command, lobby.ports, base.stop)
