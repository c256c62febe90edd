"""The documents of the demo are groups, and say what the demo's pages say."""

from __future__ import annotations

import io
import json
import pathlib
import tarfile

import msgspec

from corral.cli.local.demo import demo_archive, demo_document
from corral.domain.groups.group import GroupSpec
from corral.domain.groups.group_checks import check_group

ROOT = pathlib.Path(__file__).resolve().parents[3]


def test_the_demo_group_runs_a_program_that_is_there() -> None:
    spec = check_group(msgspec.convert(demo_document(), GroupSpec))
    assert (spec.name, spec.min) == ("lobby", 2)
    assert spec.ports["primary"].bounds() == (30_000, 30_100)
    assert pathlib.Path(spec.command[0]).is_absolute()
    with tarfile.open(fileobj=io.BytesIO(demo_archive())) as tar:
        assert {spec.command[2], *spec.substitute} == set(tar.getnames())


def test_the_example_is_a_group_that_does_not_get_in_the_way_of_the_demo() -> None:
    document = json.loads((ROOT / "examples" / "demo-server" / "group.json").read_text())
    spec = check_group(msgspec.convert(document, GroupSpec))
    assert spec.name != "lobby"
    assert spec.ports["primary"].bounds()[0] > 30_100
