"""Tests of what may be a flag, and of what a group gets."""

from __future__ import annotations

import pytest
from jvm_flags.contract import GroupFlags, flags_for
from jvm_flags.rules import LONGEST_FLAG, MOST_FLAGS, flags_problem, group_problem


@pytest.mark.parametrize(
    "flag",
    [
        "-Xlog:gc*:file=gc.log",
        "-XX:+HeapDumpOnOutOfMemoryError",
        "-XX:OnOutOfMemoryError=kill -9 %p",
        "-javaagent:agent.jar=port=1",
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "-Dname=välue",
        "-Dempty=",
    ],
)
def test_flags_of_all_kinds_are_taken(flag: str) -> None:
    assert flags_problem([flag]) == ""


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("-jar", "what is run"),
        ("-cp", "what is run"),
        ("-classpath", "what is run"),
        ("--class-path=x.jar", "what is run"),
        ("--module=a/b", "what is run"),
        ("-Djava.class.path=x.jar", "what is run"),
        ("-XX:VMOptionsFile=x", "what is run"),
        ("@more", "file of arguments"),
        ("com.example.Main", "class to run"),
        ("", "class to run"),
        ("--add-opens", "in one"),
        ("-Da=\n-jar", "nobody sees"),
        ("-Da=\udc80", "nobody sees"),
        ("-D" + "ä" * (LONGEST_FLAG // 2), "longer"),
    ],
)
def test_what_a_node_would_drop_is_refused_with_the_reason(flag: str, why: str) -> None:
    assert why in flags_problem(["-Xss2m", flag])


def test_there_are_not_too_many() -> None:
    assert flags_problem([f"-Dn={n}" for n in range(MOST_FLAGS)]) == ""
    assert "at most" in flags_problem([f"-Dn={n}" for n in range(MOST_FLAGS + 1)])


@pytest.mark.parametrize("group", ["lobby", "a", "bed-wars.2_x", "*"])
def test_a_group_is_named_as_groups_are(group: str) -> None:
    assert group_problem(group) == ""


@pytest.mark.parametrize("group", ["", "Lobby", "-lobby", "**", "a b", "x" * 64, "a\n"])
def test_what_no_group_can_be_called_is_refused(group: str) -> None:
    assert "no group" in group_problem(group)


def test_a_group_gets_what_all_get_and_then_its_own_each_flag_once() -> None:
    rows = [
        GroupFlags(group="lobby", flags=["-Da=1", "-Dall=1", "-Db=2"]),
        GroupFlags(group="*", flags=["-Dall=1"]),
        GroupFlags(group="arena", flags=["-Dc=3"]),
    ]
    assert flags_for("lobby", rows) == ["-Dall=1", "-Da=1", "-Db=2"]
    assert flags_for("other", rows) == ["-Dall=1"]
    assert flags_for("other", rows[:1]) == []
