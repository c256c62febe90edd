"""What several modules made of one start, put together."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from corral.daemon.hooks.start_changes import change_record, difference, edits, merge, overridden
from corral.daemon.prepare.prepared_start import StartValues
from corral.daemon.workload.java import launcher_part, units
from corral.testing.counted_calls import counted_calls

WORDS = st.lists(st.sampled_from(["-a", "-b", "-c", "--add-opens", "x=y", "-Dz"]), max_size=8)
ENV = st.dictionaries(st.sampled_from("ABCD"), st.sampled_from("12"), max_size=4)
VALUES = st.builds(
    lambda jvm, args, env: StartValues(jvm_args=tuple(jvm), args=tuple(args), env=env), WORDS, WORDS, ENV
)
ANSWERS = st.dictionaries(st.sampled_from(["ant", "bee", "cat", "dog"]), VALUES, max_size=4)


def appended(plan: StartValues, *words: str, **env: str) -> StartValues:
    return StartValues(jvm_args=(*plan.jvm_args, *words), args=(*plan.args, *words), env={**plan.env, **env})


@settings(max_examples=50)
@given(VALUES, VALUES)
def test_what_a_single_module_answers_is_what_comes_out(plan, wanted):
    assert merge(plan, {"ant": difference(plan, wanted)}) == wanted


@settings(max_examples=50)
@given(VALUES, ANSWERS, st.randoms(use_true_random=False))
def test_the_order_in_which_modules_answer_does_not_matter(plan, answers, chance: random.Random):
    changes = [(id, difference(plan, wanted)) for id, wanted in answers.items()]
    merged = merge(plan, dict(changes))
    chance.shuffle(changes)
    assert merge(plan, dict(changes)) == merged


@settings(max_examples=50)
@given(VALUES)
def test_what_modules_append_comes_in_the_order_of_their_ids(plan):
    plan = StartValues(jvm_args=(*plan.jvm_args, "-end"), args=plan.args, env=plan.env)
    changes = {
        id: difference(plan, appended(plan, f"-{id}", f"-{id}", NAME=id)) for id in ("bee", "ant", "cat")
    }
    expected = appended(plan, "-ant", "-ant", "-bee", "-bee", "-cat", "-cat", NAME="cat")
    assert merge(plan, changes) == expected


@settings(max_examples=50)
@given(VALUES, ANSWERS)
def test_a_module_that_is_dropped_leaves_the_others_as_they_were(plan, answers):
    changes = {id: difference(plan, wanted) for id, wanted in answers.items()}
    with_a_dropped_one = {**changes, "aaa": difference(plan, plan)}
    assert merge(plan, with_a_dropped_one) == merge(plan, changes)
    for id in changes:
        alone = merge(plan, {id: changes[id]})
        assert alone == answers[id]


@settings(max_examples=50)
@given(VALUES, ANSWERS)
def test_what_one_removes_is_gone_and_what_any_adds_is_there(plan, answers):
    changes = {id: difference(plan, wanted) for id, wanted in answers.items()}
    merged = merge(plan, changes)
    kept = [
        unit
        for place, unit in enumerate(units(plan.jvm_args))
        if all(place not in change.jvm_args.removed for change in changes.values())
    ]
    expected = len([word for unit in kept for word in unit])
    expected += sum(len(change.jvm_args.words) for change in changes.values())
    assert len(merged.jvm_args) == expected
    for id, change in changes.items():
        later = {name for other, more in changes.items() if other > id for name in more.env_set}
        later |= {name for other, more in changes.items() if other > id for name in more.env_removed}
        for name, value in change.env_set.items():
            assert name in later or merged.env[name] == value


def test_an_option_goes_with_the_value_behind_it():
    plan = StartValues(jvm_args=("--add-opens", "a", "--add-opens", "b", "-Xss1M"))
    first = difference(plan, StartValues(jvm_args=("--add-opens", "b", "-Xss1M")))
    second = difference(plan, StartValues(jvm_args=("--add-opens", "a", "-Xss1M")))
    assert merge(plan, {"ant": first}).jvm_args == ("--add-opens", "b", "-Xss1M")
    assert merge(plan, {"ant": first, "bee": second}).jvm_args == ("-Xss1M",)
    assert change_record("ant", "1.0.0", plan, first).jvm_args_removed == ("--add-opens", "a")


def test_values_of_variables_are_not_told():
    plan = StartValues(env={"OLD": "secret-1", "KEPT": "secret-2"})
    change = change_record(
        "ant", "1.0.0", plan, difference(plan, StartValues(env={"NEW": "secret-3", "KEPT": "x"}))
    )
    assert change.env_set == ("KEPT", "NEW")
    assert change.env_removed == ("OLD",)
    assert "secret" not in repr(change)


def test_long_lists_are_not_compared_each_with_each():
    before = tuple((f"{number}",) for number in range(5000))
    after = tuple((f"{number % 7}",) for number in range(5400))
    with counted_calls() as count:
        found = edits(before, after)
    assert count.calls < 10 * (len(before) + len(after))
    assert len(found.added) - len(found.removed) == 400


def test_the_part_of_a_java_command_that_says_what_is_run_is_known():
    assert launcher_part(["-jar", "app.jar", "nogui"]) == 2
    assert launcher_part(["-Xmx1G", "-cp", "a:b", "--add-opens", "x=y", "Main", "-jar"]) == 6
    assert launcher_part(["--module=a/b", "x"]) == 1
    assert launcher_part(["-m", "a/b", "x"]) == 2
    assert launcher_part(["-version"]) is None
    assert launcher_part([]) is None


def wants(plan: StartValues, **answers: StartValues) -> dict[str, list[tuple[str, str, str]]]:
    """What of these answers does not hold, by module."""
    lost = overridden(plan, {id: difference(plan, wanted) for id, wanted in answers.items()})
    return {id: [(each.kind, each.name, each.by) for each in found] for id, found in lost.items()}


def test_of_a_variable_the_last_module_has_its_way_and_the_others_are_told_whose_it_is():
    plan = StartValues(env={"KEEP": "1", "GONE": "1"})
    without = {"KEEP": "1"}
    assert wants(
        plan,
        ant=StartValues(env={**plan.env, "X": "1", "SAME": "1"}),
        bee=StartValues(env={**without, "X": "2", "SAME": "1"}),
        cat=StartValues(env={**plan.env, "X": "3", "GONE": "2"}),
    ) == {
        "ant": [("env", "X", "cat")],
        "bee": [("env", "GONE", "cat"), ("env", "X", "cat")],
    }
    assert wants(
        plan, ant=StartValues(env={**plan.env, "KEEP": "2"}), bee=StartValues(env={"GONE": "1"})
    ) == {"ant": [("env", "KEEP", "bee")]}


def test_of_an_option_of_the_jvm_the_last_in_the_command_counts_whoever_put_it_there():
    plan = StartValues(jvm_args=("-Dx=0", "-Xlog:gc", "-XX:+UseG1GC"))
    added = ("-Dx=2", "-XX:-UseG1GC", "--add-opens", "a=b", "-XX:OnError=a", "-Xss1m", "-Dsame=1")
    assert wants(
        plan,
        ant=StartValues(jvm_args=(*plan.jvm_args, "-Dx=3", "-XX:OnError=b", "-Xss2m", "-Dsame=1")),
        bee=StartValues(jvm_args=(*added, *plan.jvm_args)),
        cat=StartValues(jvm_args=(*plan.jvm_args, "-Xss3m", "-Xss4m", "--add-opens", "a=c")),
    ) == {
        "ant": [("jvm_args", "-Xss2m", "cat")],
        "bee": [
            ("jvm_args", "-Dx=2", "ant"),
            ("jvm_args", "-XX:-UseG1GC", ""),
            ("jvm_args", "-Xss1m", "cat"),
        ],
    }


@settings(max_examples=50)
@given(VALUES, ANSWERS)
def test_a_variable_is_as_its_module_wanted_it_unless_it_is_named_as_overridden(plan, answers):
    changes = {id: difference(plan, wanted) for id, wanted in answers.items()}
    merged, lost = merge(plan, changes), overridden(plan, changes)
    for id, change in changes.items():
        named = {each.name for each in lost.get(id, ()) if each.kind == "env"}
        wanted = {**change.env_set, **dict.fromkeys(change.env_removed)}
        assert named == {name for name, value in wanted.items() if merged.env.get(name) != value}
