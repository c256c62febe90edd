"""The documents in guides and concepts are documents that work."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import pytest
import yaml

from corral.domain.groups.group_documents import parse_group

DOCS = pathlib.Path(__file__).parents[3] / "docs"
BASE: dict[str, Any] = {"name": "lobby", "command": ["serve"]}


def documents() -> list[Any]:
    found = []
    for page in sorted([*DOCS.glob("guides/*.md"), *DOCS.glob("concepts/*.md")]):
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.S | re.M)):
            content = yaml.safe_load(block)
            if isinstance(content, dict) and ("name" in content or content.keys() <= _known()):
                found.append(pytest.param(content, id=f"{page.stem}-{number}"))
    return found


def _known() -> set[str]:
    return set(parse_group(BASE).__struct_fields__)


@pytest.mark.parametrize("document", documents())
def test_a_group_in_the_documentation_is_taken(document):
    parse_group(document if "name" in document else {**BASE, **document})
