"""Typed variables and references of secrets."""

from __future__ import annotations

import pytest

from corral.domain.groups.template_selection import check_settings
from corral.domain.groups.variable_checks import (
    check_declaration,
    check_names,
    check_secret_reference,
    check_secret_value,
    check_value,
    check_values,
)
from corral.domain.spec import VariableSpec, VariableType
from corral.domain.templates import TemplateSettings
from corral.errors import Code, Rejected

INT = VariableSpec(type=VariableType.INT, min=-1, max=20)
BOOL = VariableSpec(type=VariableType.BOOL)
ENUM = VariableSpec(type=VariableType.ENUM, choices=("easy", "hard"))
SECRET = VariableSpec(type=VariableType.SECRET)
TEXT = VariableSpec(min=2, max=4, pattern="[a-z]+")


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (INT, "-1"),
        (INT, "+20"),
        (INT, "007"),
        (BOOL, "true"),
        (BOOL, "false"),
        (ENUM, "hard"),
        (TEXT, "abcd"),
        (VariableSpec(), ""),
        (SECRET, "file://db/password"),
        (SECRET, "env://CORRAL_SECRET_DB"),
    ],
)
def test_a_value_that_fits_is_taken_as_it_is(spec, value):
    assert check_value("X", spec, value) == value


@pytest.mark.parametrize(
    ("spec", "value", "told"),
    [
        (INT, "21", "at most 20"),
        (INT, "-2", "at least -1"),
        (INT, "1.5", "an integer"),
        (INT, "", "an integer"),
        (INT, "٣", "an integer"),
        (INT, "9" * 5000, "an integer"),
        (BOOL, "True", "true or false"),
        (BOOL, "1", "true or false"),
        (ENUM, "medium", "easy, hard"),
        (TEXT, "a", "at least 2 characters"),
        (TEXT, "abcde", "at most 4 characters"),
        (TEXT, "ab1", "matching '[a-z]+' as a whole"),
        (TEXT, "ab\n", "matching"),
        (VariableSpec(), "a\0b", "without it"),
    ],
)
def test_a_misfit_is_refused_with_variable_type_and_what_is_allowed(spec, value, told):
    with pytest.raises(Rejected) as caught:
        check_value("LEVEL", spec, value)
    error = caught.value
    assert (error.code, error.field) == (Code.VARIABLE_INVALID, "variables/LEVEL")
    assert "'LEVEL'" in error.message
    assert spec.type.value in error.message
    assert told in (error.hint or "")
    assert len(str(error)) < 600


@pytest.mark.parametrize(
    "bad",
    [
        "", "hunter2-secret", "file:///etc/shadow", "file://../key", "file://a/../../b", "file://", "file://a\\b",
        "env://PATH", "env://CORRAL_SECRET_", "env://corral_secret_x", "env://CORRAL_SECRET_A B", "FILE://a",
        "env://CORRAL_SECRET_JOIN",
        "http://x/hunter2-secret", "file://hunter2-secret\0",
    ],
)  # fmt: skip
def test_what_is_no_reference_of_a_secret_is_refused_and_not_shown(bad):
    with pytest.raises(Rejected) as caught:
        check_value("KEY", SECRET, bad)
    assert caught.value.code is Code.VARIABLE_INVALID
    assert "hunter2" not in str(caught.value)


def test_references_are_told_apart():
    found = check_secret_reference("file://db/password", field="x")
    assert (found.kind, found.name) == ("file", "db/password")
    found = check_secret_reference("env://CORRAL_SECRET_DB", field="x")
    assert (found.kind, found.name) == ("env", "CORRAL_SECRET_DB")


def test_a_secret_that_does_not_fit_is_refused_without_being_shown():
    spec = VariableSpec(type=VariableType.SECRET, min=8, pattern="[a-z]+")
    check_secret_value("KEY", spec, "abcdefgh")
    for value in ("hunter2", "HUNTER2HUNTER2", "hunter2hunter2\0"):
        with pytest.raises(Rejected) as caught:
            check_secret_value("KEY", spec, value)
        assert "hunter2" not in str(caught.value).lower()


def test_required_ones_are_missed_only_when_all_layers_are_there():
    types = {"A": VariableSpec(required=True), "B": VariableSpec()}
    check_values(types, {})
    check_values(types, {"A": "1"}, complete=True)
    with pytest.raises(Rejected) as caught:
        check_values(types, {"B": "1"}, complete=True)
    assert (caught.value.code, caught.value.field) == (Code.VARIABLE_INVALID, "variables/A")


@pytest.mark.parametrize(
    "spec",
    [
        VariableSpec(type=VariableType.ENUM),
        VariableSpec(choices=("a",)),
        VariableSpec(type=VariableType.INT, min=2, max=1),
        VariableSpec(type=VariableType.INT, pattern="1"),
        VariableSpec(type=VariableType.BOOL, min=1),
        VariableSpec(pattern="("),
        VariableSpec(type=VariableType.INT, default="x"),
        VariableSpec(type=VariableType.SECRET, default="hunter2"),
    ],
)
def test_a_declaration_that_nothing_could_meet_is_refused(spec):
    with pytest.raises(Rejected) as caught:
        check_declaration("X", spec, field="variable_types/X")
    assert (caught.value.field or "").startswith("variable_types/X")


@pytest.mark.parametrize("name", ["", "port", "1A", "A-B", "Ä", "A" * 129, "A%", "A\n"])
def test_a_name_that_no_text_could_say_is_refused(name):
    with pytest.raises(Rejected):
        check_names({name: "x"}, field="variables")


def test_settings_of_a_template_are_checked_like_a_groups():
    good = TemplateSettings(
        parents=("base", "maps/a"), variables={"A": "1"}, variable_types={"A": INT}, substitute=("*.yml",)
    )
    assert check_settings(good) is good
    for bad, field in [
        (TemplateSettings(parents=("a/b/c",)), "settings/parents/0"),
        (TemplateSettings(variables={"a": ""}), "settings/variables/a"),
        (TemplateSettings(variables={"A": "x"}, variable_types={"A": INT}), "settings/variables/A"),
        (
            TemplateSettings(variable_types={"A": VariableSpec(pattern="(")}),
            "settings/variable_types/A/pattern",
        ),
        (TemplateSettings(substitute=("../x",)), "settings/substitute/0"),
    ]:
        with pytest.raises(Rejected) as caught:
            check_settings(bad)
        assert caught.value.field == field
