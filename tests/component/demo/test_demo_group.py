"""The documents of the demo are groups, and say what the demo's pages say."""

from __future__ import annotations

import json
import pathlib

import msgspec

from corral.cli.demo_group import demo_document
from corral.domain.groups import GroupSpec, check_group

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_the_demo_group_runs_a_program_that_is_there() -> None:
    spec = check_group(msgspec.convert(demo_document(), GroupSpec))
    assert (spec.name, spec.min) == ("lobby", 2)
    assert spec.ports["primary"].bounds() == (30_000, 30_100)
    program, script = spec.command[0], spec.command[2]
    assert pathlib.Path(program).is_absolute()
    assert pathlib.Path(script).is_file()


def test_the_example_is_a_group_that_does_not_get_in_the_way_of_the_demo() -> None:
    document = json.loads((ROOT / "examples" / "demo-server" / "group.json").read_text())
    spec = check_group(msgspec.convert(document, GroupSpec))
    assert spec.name != "lobby"
    assert spec.ports["primary"].bounds()[0] > 30_100
