"""Which answers of modules to a start are taken."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corral.daemon.hooks.change_validation import (
    BLOCKED_NAMES,
    LONGEST_ITEM,
    MOST_ITEMS,
    BadChange,
    check_change,
    read_answer,
)
from corral.daemon.hooks.start_changes import difference
from corral.daemon.prepare.prepared_start import StartRules, StartValues

PLAN = StartValues(
    jvm_args=("-Xss1M", "--add-opens", "java.base/java.lang=ALL-UNNAMED", "@theirs", "-cp", "theirs.jar"),
    args=("nogui",),
    env={"MODE": "easy", "LD_PRELOAD": "theirs"},
)


def judge(rules: StartRules | None = None, **answer: object) -> None:
    wanted = read_answer(answer, PLAN)
    check_change(difference(PLAN, wanted), rules or StartRules())


def added(*words: str) -> list[str]:
    return [*PLAN.jvm_args, *words]


@pytest.mark.parametrize(
    "words",
    [
        ["-jar", "evil.jar"],
        ["-cp", "evil"],
        ["-classpath", "evil"],
        ["--class-path", "evil"],
        ["--class-path=evil"],
        ["-m", "evil/Main"],
        ["--module", "evil/Main"],
        ["--module=evil/Main"],
        ["-Djava.class.path=evil"],
        ["-XX:VMOptionsFile=/tmp/evil"],
        ["-XX:Flags=/tmp/evil"],
        ["@/tmp/evil"],
        ["--add-opens", "@/tmp/evil"],
        ["Main"],
        ["evil.jar"],
        [""],
        ["--add-opens"],
        ["--add-opens", "-Xmx1G"],
        ["--add-opens", ""],
        ["-Xlog:gc", "Main"],
        ["-cp"],
        ["--source", "21"],
        ["--source=21"],
        ["-d", "java.base"],
        ["--describe-module=java.base"],
        ["-XX:Flags:=/tmp/evil"],
        ["-Xoptionsfile=/tmp/evil"],
        [" -jar", "evil.jar"],
        ["\u2010jar", "evil.jar"],
        ["--add-opens", "-jar", "evil.jar"],
        ["--add-opens", "a/b=c", "-classpath", "evil"],
        ["-Dx=\ud800"],
        ["\ud800"],
        ["-Dx=a\nb"],
        ["-Dx=a\0b"],
        ["-Dx=" + "x" * LONGEST_ITEM],
        ["-Dx"] * (MOST_ITEMS + 1),
        ["-Dx=" + "x" * 8000] * 17,
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_what_jvm_arguments_may_not_hold_is_refused(words):
    with pytest.raises(BadChange):
        judge(jvm_args=added(*words))
    with pytest.raises(BadChange):
        judge(jvm_args=[*words, *PLAN.jvm_args])


@pytest.mark.parametrize(
    "words",
    [
        ["-Xlog:gc*"],
        ["-javaagent:/opt/agent.jar=x"],
        ["-agentpath:/opt/agent.so"],
        ["-XX:+UseZGC", "-Dname=value with spaces"],
        ["--add-opens", "java.base/java.util=ALL-UNNAMED"],
        ["--add-opens=java.base/java.util=ALL-UNNAMED"],
        ["-p", "/opt/modules"],
        ["-Dx"] * MOST_ITEMS,
    ],
    ids=lambda words: " ".join(words)[:30],
)
def test_other_jvm_arguments_and_agents_pass(words):
    judge(jvm_args=added(*words))


def test_what_the_plan_has_itself_is_not_judged():
    judge(jvm_args=list(PLAN.jvm_args), args=["nogui"], env=PLAN.env)
    judge(jvm_args=[], args=[], env={})


@pytest.mark.parametrize(
    "name",
    [
        *sorted(BLOCKED_NAMES),
        "LD_PRELOAD",
        "LD_ANYTHING",
        "CORRAL_NODE_ID",
        "BASH_FUNC_ls%%",
        "",
        "A=B",
        "A\0",
        "A\n",
        "A\udc80",
    ],
)
def test_variables_that_load_code_or_are_ours_cannot_be_set(name):
    with pytest.raises(BadChange):
        judge(env={**PLAN.env, name: "x"})


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "x" * (LONGEST_ITEM + 1)])
def test_a_value_that_cannot_be_is_refused_by_the_name_of_its_variable_alone(value):
    with pytest.raises(BadChange) as bad:
        judge(env={**PLAN.env, "TOKEN": value})
    assert "TOKEN" in str(bad.value)
    assert value not in str(bad.value)


def test_workloads_that_are_no_java_take_no_jvm_arguments():
    rules = StartRules(takes_jvm_args=False)
    judge(rules, env={**PLAN.env, "A": "b"})
    with pytest.raises(BadChange, match="no Java"):
        judge(rules, jvm_args=added("-Xlog:gc"))


def test_arguments_up_to_what_is_run_stay_as_they_are():
    plan = StartValues(args=("-jar", "app.jar", "nogui"))
    rules = StartRules(fixed_args=2)

    def judge_args(*args: str, rules: StartRules = rules) -> None:
        check_change(difference(plan, read_answer({"args": list(args)}, plan)), rules)

    judge_args("-jar", "app.jar", "nogui", "--port", "1")
    judge_args("-jar", "app.jar")
    judge_args("-jar", "app.jar", "first", "nogui")
    for bad in (("-jar", "evil.jar", "nogui"), ("nogui",), ("-cp", "x", "-jar", "app.jar", "nogui"), ()):
        with pytest.raises(BadChange):
            judge_args(*bad)
    with pytest.raises(BadChange):
        judge_args("-jar", "app.jar", "nogui", "more", rules=StartRules(fixed_args=None))


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        "text",
        7,
        {"jvm_args": "-Xmx1G"},
        {"jvm_args": {"-Xmx1G": 1}},
        {"jvm_args": [1]},
        {"args": [None]},
        {"args": [b"x"]},
        {"args": None},
        {"env": ["A=b"]},
        {"env": {1: "x"}},
        {"env": {"A": 1}},
        {"env": {"A": None}},
        {"args": ["x"] * 100_000},
        {"env": {str(n): "" for n in range(100_000)}},
    ],
    ids=repr,
)
def test_an_answer_of_another_shape_is_refused(answer):
    with pytest.raises(BadChange):
        read_answer(answer, PLAN)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=50)
@given(JUNK | st.fixed_dictionaries({}, optional={"jvm_args": JUNK, "args": JUNK, "env": JUNK, "more": JUNK}))
def test_whatever_comes_is_taken_or_refused_and_nothing_else(answer):
    with contextlib.suppress(BadChange):
        check_change(difference(PLAN, read_answer(answer, PLAN)), StartRules())


def test_nothing_gets_between_an_option_of_the_plan_and_its_value():
    for value in ("java.base/java.lang=ALL-UNNAMED", "theirs.jar"):
        words = list(PLAN.jvm_args)
        words.insert(words.index(value), "-Xlog:gc")
        with pytest.raises(BadChange):
            judge(jvm_args=words)


@pytest.mark.trap("T77")
@pytest.mark.parametrize("field", ["args", "jvm_args"])
def test_a_module_puts_no_secret_into_the_command_line(field):
    answer = {field: [*getattr(PLAN, field), "-Dpassword=hunter2"]}
    with pytest.raises(BadChange, match="%PW%") as bad:
        check_change(difference(PLAN, read_answer(answer, PLAN)), StartRules(), {"PW": "hunter2", "NONE": ""})
    assert "hunter2" not in str(bad.value)
    in_env = {"env": {**PLAN.env, "PASSWORD": "hunter2"}}
    check_change(difference(PLAN, read_answer(in_env, PLAN)), StartRules(), {"PW": "hunter2"})
