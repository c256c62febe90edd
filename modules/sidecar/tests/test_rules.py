"""Tests of rules and decisions: no process is started here."""

from __future__ import annotations

import msgspec
import pytest
from sidecar.deciding import MOST_LOOKS, Decision, Patience, decide
from sidecar.rules import Rule, Settings

from corral.sdk import InstanceHandle, SideProcess

HANDLE = InstanceHandle(instance_id="lobby-1", group="lobby", port=25565, pid=42, work_dir="/srv/{pid}")


def rule(name: str = "exporter", *command: str, group: str = "*", restart: bool = True) -> Rule:
    return Rule(group=group, name=name, command=command or ("exporter",), restart=restart)


def running(name: str = "exporter", *command: str) -> SideProcess:
    return SideProcess(name=name, command=command or ("exporter",), pid=7, running=True)


def ended(name: str = "exporter", *command: str) -> SideProcess:
    return SideProcess(name=name, command=command or ("exporter",), pid=7, exit_code=0)


def test_variables_are_filled_in_once_and_other_braces_stay() -> None:
    filled = Rule(
        name="x",
        command=("{instance}", "--{group}={port}", "{pid}", "{work_dir}", "{other}", "{{pid}}", "{"),
        env={"PID": "{pid}"},
    ).filled(HANDLE)
    assert filled.command == ("lobby-1", "--lobby=25565", "42", "/srv/{pid}", "{other}", "{42}", "{")
    assert filled.env == {"PID": "42"}


def test_a_rule_of_the_group_goes_before_one_of_every_group() -> None:
    own, other = rule("exporter", "own", group="lobby"), rule("exporter", "theirs", group="arena")
    settings = Settings(rules=(own, other, rule("exporter", "any"), rule("logs")))
    assert settings.rules_for(HANDLE) == {"exporter": own, "logs": rule("logs")}


def test_two_rules_of_one_name_are_a_mistake() -> None:
    twice = {"rules": [{"name": "a", "command": ["x"]}, {"name": "a", "command": ["y"]}]}
    with pytest.raises(msgspec.ValidationError, match="two rules of group '\\*' are called 'a'"):
        msgspec.convert(twice, Settings)


def test_what_is_missing_is_started_and_what_runs_is_left_alone() -> None:
    rules = {"exporter": rule(), "logs": rule("logs")}
    assert decide(rules, [running()], ()) == Decision(missing=(rules["logs"],))
    assert decide(rules, [running(), running("logs", "exporter")], ()) == Decision()


def test_what_ended_comes_again_only_where_that_is_wanted() -> None:
    again, once = rule(), rule("job", restart=False)
    there = [ended(), ended("job", "exporter")]
    assert decide({"exporter": again, "job": once}, there, ()) == Decision(missing=(again,))


def test_what_no_rule_wants_is_stopped() -> None:
    assert decide({}, [running(), ended("old")], ()) == Decision(stop=("exporter",))


@pytest.mark.parametrize("restart", [True, False])
def test_another_command_replaces_what_runs_and_what_ended(restart: bool) -> None:
    new = rule("exporter", "new", restart=restart)
    assert decide({"exporter": new}, [running()], ()) == Decision(stop=("exporter",), missing=(new,))
    assert decide({"exporter": new}, [ended()], ()) == Decision(missing=(new,))


def test_so_does_another_environment_which_only_the_change_of_the_rule_shows() -> None:
    job = rule(restart=False)
    assert decide({"exporter": job}, [running()], {"exporter"}) == Decision(
        stop=("exporter",), missing=(job,)
    )
    assert decide({"exporter": job}, [ended()], {"exporter"}) == Decision(missing=(job,))


def test_tries_become_rarer_until_it_has_run_for_a_while() -> None:
    patience = Patience()
    started = [look for look in range(1, 100) if patience.may_start()]
    assert started == [1, 3, 6, 11, 20, 37, 68, 99]
    for _ in range(MOST_LOOKS):
        patience.seen_running()
    assert [look for look in range(1, 7) if patience.may_start()] == [1, 3, 6]


def test_a_short_run_forgives_nothing() -> None:
    patience = Patience()
    assert [patience.may_start() for _ in range(3)] == [True, False, True]
    for _ in range(MOST_LOOKS - 1):
        patience.seen_running()
    assert [patience.may_start() for _ in range(3)] == [False, False, True]
