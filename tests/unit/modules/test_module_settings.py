"""Settings of modules against their schema: what fits, what does not, and what must not take long."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pathlib
import resource
import signal
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from packed_modules import MANIFEST

from corral.errors import Code, Rejected, Retryable
from corral.modules.manifest.manifest_reader import read_manifest
from corral.modules.manifest.settings import SETTINGS_MAX, check_schema, check_settings
from corral.modules.manifest.settings_validator import ValidationRequest, validate
from corral.modules.manifest.validation_process import MOST_AT_ONCE, validate_in_child
from corral.sdk.runner.proc_table import children
from corral.testing.counted_calls import counted_calls
from corral.testing.waiting import eventually

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["url"],
    "properties": {
        "url": {"type": "string", "format": "uri"},
        "http": {
            "type": "object",
            "default": {},
            "properties": {"port": {"$ref": "#/$defs/port"}, "host": {"type": "string", "default": "::1"}},
        },
        "targets": {
            "type": "array",
            "items": {"type": "object", "properties": {"weight": {"type": "integer", "default": 1}}},
        },
        "key": {"type": "string", "minLength": 20},
    },
    "$defs": {"port": {"type": "integer", "minimum": 1, "maximum": 65535, "default": 8080}},
}


def refused_schema(schema: dict[str, Any]) -> Rejected:
    with pytest.raises(Rejected) as refused:
        check_schema(schema)
    assert refused.value.code is Code.MANIFEST_INVALID
    return refused.value


def refused_settings(values: Any, schema: dict[str, Any] = SCHEMA) -> Rejected:
    with pytest.raises(Rejected) as refused:
        check_settings(schema, values)
    assert refused.value.code is Code.SETTINGS_INVALID
    return refused.value


def test_defaults_are_filled_in_wherever_nothing_is_given() -> None:
    check_schema(SCHEMA)
    given = {"url": "http://a.b", "targets": [{"weight": 5}, {}]}
    assert check_settings(SCHEMA, given) == {
        "url": "http://a.b",
        "http": {"port": 8080, "host": "::1"},
        "targets": [{"weight": 5}, {"weight": 1}],
    }
    assert given == {"url": "http://a.b", "targets": [{"weight": 5}, {}]}  # untouched


def test_a_default_is_not_shared_between_two_readers() -> None:
    first = check_settings(SCHEMA, {"url": "http://a.b"})
    first["http"]["port"] = 1
    assert check_settings(SCHEMA, {"url": "http://a.b"})["http"]["port"] == 8080


@pytest.mark.parametrize(
    ("values", "field", "told"),
    [
        ({}, None, '"url" is a required property'),
        ({"url": "http://a", "http": {"port": 0}}, "http.port", "less than the minimum of 1"),
        ({"url": "http://a", "targets": [{}, {"weight": "x"}]}, "targets[1].weight", "integer"),
        ({"url": "http://a", "prot": 1}, None, "'prot' was unexpected"),
        ({"url": "not a uri"}, "url", "uri"),
        ({"url": "http://a", "x": object()}, None, "not a map of plain values"),
        ([1], None, "not a map of plain values"),
        ({"url": "http://a" + "a" * SETTINGS_MAX}, None, "larger than"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_place(values: Any, field: str | None, told: str) -> None:
    refused = refused_settings(values)
    assert refused.field == field
    assert told in refused.message


def test_a_refusal_does_not_repeat_a_value() -> None:
    assert "hunter2" not in str(refused_settings({"url": "http://a", "key": "hunter2"}))


def test_without_a_schema_a_module_takes_no_settings() -> None:
    check_schema({})
    assert check_settings({}, {}) == {}
    assert "takes no settings" in refused_settings({"a": 1}, {}).message


@pytest.mark.parametrize(
    ("schema", "field"),
    [
        ({"type": "array"}, "type"),
        ({"type": "objekt"}, "type"),
        ({"properties": {"a": {"type": "strng"}}}, "properties.a.type"),
        ({"properties": {"a": {"pattern": "(?=a)b"}}}, "properties.a.pattern"),
        ({"properties": {"a": {"pattern": r"(a)\1"}}}, "properties.a.pattern"),
        ({"properties": {"a": {"pattern": "((a{100}){100}){100}"}}}, "properties.a.pattern"),
        ({"$ref": "https://example.com/schema.json"}, "$ref"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "properties.a.$ref"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, None),
        ({"$ref": "#"}, "$ref"),
        (
            {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"items": {"$ref": "#/$defs/a"}}}},
            None,
        ),
        ({"$schema": "http://example.com/mine", "type": "object"}, None),
        ({"$id": "http://example.com/mine", "type": "object"}, "$id"),
        ({"unevaluatedProperties": False}, "unevaluatedProperties"),
        (
            {"properties": {"properties": {"unevaluatedProperties": False}}},
            "properties.properties.unevaluatedProperties",
        ),
        ({"properties": {"properties": {"$dynamicRef": "#a"}}}, "properties.properties.$dynamicRef"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "id": "http://example.com/"}, "id"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], field: str | None) -> None:
    refused = refused_schema(schema)
    if field is not None:
        assert refused.field == field


def test_a_setting_may_be_called_like_a_word_of_the_schema() -> None:
    words = {"$id", "$ref", "default", "enum", "unevaluatedItems", "const"}
    schema = {"properties": {word: {"type": "string"} for word in words}, "additionalProperties": False}
    check_schema(schema)
    assert check_settings(schema, dict.fromkeys(words, "x")) == dict.fromkeys(words, "x")


def test_references_that_double_at_each_step_are_refused() -> None:
    definitions = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}
    schema = {
        "properties": {"a": {"$ref": "#/$defs/d0"}},
        "$defs": {**definitions, "d40": {"type": "string"}},
    }
    assert "parts" in refused_schema(schema).message


@pytest.mark.parametrize("keyword", ["patternProperties", "dependentSchemas", "definitions"])
@pytest.mark.parametrize("name", ["const", "default"])
def test_no_name_hides_what_is_costly_beneath_it(keyword: str, name: str) -> None:
    """`const` is a word with a value beneath it, except where names stand that the author chose."""
    place = f"#/{keyword}/{name}/$defs"
    definitions = {f"d{n}": {"allOf": [{"$ref": f"{place}/d{n + 1}"}] * 2} for n in range(40)}
    inner = {"$ref": f"{place}/d0", "$defs": {**definitions, "d40": {"type": "string"}}}
    assert "parts" in refused_schema({keyword: {name: inner}}).message


def test_a_schema_of_great_depth_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(400):
        schema = {"properties": {"a": schema}}
    assert "levels deep" in refused_schema(schema).message


@pytest.mark.trap("T42")
@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$", "^(.*a){25}$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_takes_longer_than_its_text(pattern: str) -> None:
    schema = {
        "properties": {"a": {"type": "string", "pattern": pattern}},
        "patternProperties": {pattern: {"type": "string"}},
    }
    check_schema(schema)
    # Where patterns are tried one way after another this takes longer than any test may.
    refused_settings({"a": "a" * 50_000 + "!"}, schema)


@pytest.mark.trap("T42")
@pytest.mark.parametrize("pattern", [r"^(?=a)(a+)+$", r"^(a+)+\1!$", r"^(?<!b)(a|a)*$", r"^(?>a+)+!$"])
def test_a_pattern_that_only_trying_could_answer_is_refused(pattern: str) -> None:
    refused = refused_schema({"properties": {"a": {"type": "string", "pattern": pattern}}})
    assert refused.field == "properties.a.pattern"


def _items(schema: dict[str, Any], values: list[Any] | None = None) -> dict[str, Any]:
    array: dict[str, Any] = {"type": "array", "items": schema}
    return {"type": "object", "properties": {"a": array if values is None else {**array, "default": values}}}


COSTLY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "alternatives of which the last fits": (
        _items({"anyOf": [*[{"const": 1}] * 9000, {"const": 0}]}, [0] * 50_000),
        {},
    ),
    "alternatives of which none fits": (_items({"anyOf": [{"const": 1}] * 2000}), {"a": [0] * 1000}),
    "parts that all fit": (_items({"allOf": [{}] * 15_000}, [0] * 50_000), {}),
    "one of many that is contained": (_items({"contains": {"const": 1}}), {"a": [[0] * 100] * 900}),
    "defaults in each of many": (
        _items({"properties": {"b": {"default": [0] * 10_000}}}),
        {"a": [{} for _ in range(20_000)]},
    ),
}


@pytest.mark.system
@pytest.mark.trap("T82")
@pytest.mark.parametrize(("schema", "values"), COSTLY.values(), ids=COSTLY.keys())
def test_schema_times_value_is_bounded_and_not_paid_by_this_process(
    schema: dict[str, Any], values: dict[str, Any]
) -> None:
    """Each took this process between ten seconds and minutes, in which none of its threads had a turn."""
    check_schema(schema)
    with counted_calls() as count, contextlib.suppress(Rejected):
        check_settings(schema, values)
    assert count.of(validate) == 0
    assert count.calls < 3_000_000  # to look at the sizes of both


ORDINARY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "twenty choices of sixty": (
        {
            "type": "object",
            "properties": {
                f"p{n}": {"type": "string", "enum": [f"value-{n}-{k}" for k in range(60)]} for n in range(20)
            },
        },
        {f"p{n}": f"value-{n}-59" for n in range(20)},
    ),
    "two hundred numbers": (
        {
            "type": "object",
            "additionalProperties": False,
            "required": [f"p{n}" for n in range(100)],
            "properties": {
                f"p{n}": {"type": "integer", "minimum": 1, "default": 3, "description": "word " * 40}
                for n in range(200)
            },
        },
        {f"p{n}": n + 1 for n in range(200)},
    ),
    "a map of fifty servers": (
        {
            "type": "object",
            "properties": {
                "servers": {
                    "additionalProperties": {
                        "type": "object",
                        "properties": {
                            "host": {"type": "string", "format": "hostname"},
                            "port": {"$ref": "#/$defs/port"},
                            "mode": {"oneOf": [{"const": "tcp"}, {"const": "udp"}]},
                        },
                    }
                }
            },
            "$defs": {"port": {"type": "integer", "minimum": 1, "maximum": 65535}},
        },
        {"servers": {f"s{n}": {"host": "a.example", "port": 25565, "mode": "tcp"} for n in range(50)}},
    ),
}


def work_of_children() -> tuple[float, int]:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_minflt


@pytest.mark.parametrize(("schema", "values"), ORDINARY.values(), ids=ORDINARY.keys())
def test_what_modules_usually_take_needs_no_process_of_its_own(
    schema: dict[str, Any], values: dict[str, Any]
) -> None:
    before = work_of_children()
    check_schema(schema)
    assert check_settings(schema, values) == values
    assert work_of_children() == before


SLOW_SCHEMA: dict[str, Any] = {
    "properties": {f"p{number}": {"pattern": f".{{900}}{number}"} for number in range(2000)}
}


def check_manifest(schema: dict[str, Any]) -> None:
    read_manifest(json.dumps({**yaml.safe_load(MANIFEST), "config": schema}))


@pytest.mark.parametrize("check", [check_schema, check_manifest])
async def test_a_child_that_somebody_ended_says_nothing_about_the_schema(
    check: Callable[[dict[str, Any]], None],
) -> None:
    """As when the machine is out of memory: it may be tried again, and nobody remembers a refusal."""
    checking = asyncio.create_task(asyncio.to_thread(check, SLOW_SCHEMA))
    found = await eventually(checkers)
    os.kill(found[0], signal.SIGKILL)
    with pytest.raises(Retryable) as delayed:
        await checking
    assert delayed.value.code is Code.SPAWN_FAILED


def checkers() -> list[int]:
    def command(pid: int) -> bytes:
        with contextlib.suppress(OSError):
            return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
        return b""

    return [pid for pid in children(os.getpid()) if b"validate_from_stdin" in command(pid)]


def test_a_machine_too_busy_for_a_verdict_says_nothing_about_the_settings() -> None:
    schema, values = ORDINARY["twenty choices of sixty"]
    with pytest.raises(Retryable, match="too busy"):
        validate_in_child(ValidationRequest(schema=schema, settings=values), wall_seconds=0.0)
    assert validate_in_child(ValidationRequest(schema=schema, settings=values)).count == 0


async def test_settings_that_wait_for_their_check_occupy_few_threads() -> None:
    """The first child is stopped until somebody was refused: nobody's luck decides who comes how late."""
    schema, values = ORDINARY["twenty choices of sixty"]
    question = ValidationRequest(schema=schema, settings=values)

    async def ask() -> bool:
        try:
            return (await asyncio.to_thread(validate_in_child, question)).count == 0
        except Retryable as error:
            return "too many settings wait" not in error.message

    first = asyncio.create_task(ask())
    (child,) = await eventually(checkers)
    os.kill(child, signal.SIGSTOP)
    others = [asyncio.create_task(ask()) for _ in range(MOST_AT_ONCE)]
    refused, _ = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
    os.kill(child, signal.SIGCONT)
    assert [task.result() for task in refused] == [False]
    assert sorted(await asyncio.gather(first, *others)) == [False] + [True] * MOST_AT_ONCE


@pytest.mark.system
@pytest.mark.trap("T82")
def test_patterns_that_take_long_to_compile_are_refused_after_a_while() -> None:
    with counted_calls() as count:
        assert "longer than" in refused_schema(SLOW_SCHEMA).message
    assert count.of(validate) == 0
    assert count.calls < 500_000


def test_what_is_checked_elsewhere_is_told_alike() -> None:
    """The same mistake in settings that are checked in this process, and in such as are not."""
    many = {f"p{number}": {"type": "integer"} for number in range(300)}
    for more in ({}, many):
        schema = {"type": "object", "properties": {"key": {"minLength": 20}, **more}}
        refused = refused_settings({"key": "hunter2", **dict.fromkeys(more, 1)}, schema)
        assert (refused.field, "hunter2" in str(refused)) == ("key", False)
        assert "20 characters" in refused.message
    wrong = refused_settings(dict.fromkeys(many, "x"), {"type": "object", "properties": many})
    assert wrong.message.endswith("and 295 more")
    assert check_settings({"type": "object", "properties": many}, {"p7": 7}) == {"p7": 7}


def nested(levels: int) -> dict[str, Any]:
    value: Any = 1
    for _ in range(levels - 1):
        value = [value]
    return {"a": value}


def test_settings_are_32_levels_deep_at_most_with_their_defaults() -> None:
    anything: dict[str, Any] = {"type": "object"}
    assert check_settings(anything, nested(32)) == nested(32)
    for levels in (33, 200, 973, 5000):
        assert "deeper than 32 levels" in refused_settings(nested(levels), anything).message
    deep = {"type": "object", "properties": {"b": {"default": nested(32)}}}
    assert "deeper than 32 levels" in refused_settings({}, deep).message


def test_defaults_count_as_settings() -> None:
    large = {"type": "object", "properties": {"a": {"default": "x" * SETTINGS_MAX}}}
    assert "larger than" in refused_settings({}, large).message
