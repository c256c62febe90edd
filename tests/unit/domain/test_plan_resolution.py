"""From a group to the plan of a start."""

from __future__ import annotations

import msgspec
import pytest
from template_world import DIGEST, Library, entry, group, never, template

from corral.domain.groups.group import (
    ArtifactSpec,
    Category,
    ConfigFormat,
    ExtensionSpec,
    GroupSpec,
    JvmSpec,
    TemplateChoice,
    TemplateSelection,
    WarmupSpec,
)
from corral.domain.groups.group_documents import parse_group
from corral.domain.groups.plan_resolution import check_instance_variables, resolve_plan
from corral.domain.groups.plans import Plan, plan_hash, read_plan
from corral.domain.groups.probes import ProbeKind, ProbeSpec
from corral.domain.spec import VariableSpec, VariableType
from corral.errors import Code, Rejected

PAPER = entry("paper", "1.21.4")
LUCK = entry("luckperms", "5", file="LuckPerms.jar", url="", size=99, category=Category.NONE)


def plan_of(spec: GroupSpec, *records, catalog=(PAPER, LUCK)) -> Plan:
    return resolve_plan(spec, Library(*records, catalog=catalog), never).plan


def refusal(spec: GroupSpec, *records) -> Rejected:
    with pytest.raises(Rejected) as caught:
        plan_of(spec, *records)
    return caught.value


def extension(id: str, *, path: str = "plugins", **fields) -> ExtensionSpec:
    variant = fields.pop("variant", "")
    module = fields.pop("module", "")
    spec = ArtifactSpec(**(fields or {"platform": "luckperms", "version": "5"}))
    return ExtensionSpec(id=id, variant=variant, module=module, artifact=spec, install_path=path)


def test_templates_are_in_the_plan_with_version_hash_and_override():
    child = template("child", number=7, parents=("base",))
    plan = plan_of(
        group(template_selection=TemplateSelection(all_of=(TemplateChoice(name="child", override=False),))),
        template("base"),
        child,
    )
    assert [(each.name, each.version, each.override) for each in plan.templates] == [
        ("base", 1, False),
        ("child", 7, False),
    ]
    assert plan.templates[1].hash == child.version().hash


def test_the_draw_is_told_and_the_plans_of_two_draws_differ():
    spec = group(
        template_selection=TemplateSelection(one_of=(TemplateChoice(name="a"), TemplateChoice(name="b")))
    )
    library = Library(template("a"), template("b"))
    first, second = (resolve_plan(spec, library, lambda count, n=n: n) for n in (0, 1))
    assert (first.picks, second.picks) == (("a",), ("b",))
    assert first.record.hash != second.record.hash
    assert resolve_plan(spec, library, lambda count: 0).record == first.record


def test_the_record_is_canonical_and_reads_back_as_the_plan():
    found = resolve_plan(group(variables={"B": "1", "A": "2"}), Library(), never)
    assert read_plan(found.record) == found.plan
    assert plan_hash(found.record.body.encode()) == found.record.hash
    again = resolve_plan(group(variables={"A": "2", "B": "1"}), Library(), never)
    assert again.record == found.record


def values(part: object) -> object:
    """A part of a document or of a plan with all its values, also those that are left out where they are as usual."""
    if isinstance(part, tuple):
        return [values(each) for each in part]
    return msgspec.structs.asdict(part) if isinstance(part, msgspec.Struct) else part


def test_a_plan_says_of_a_probe_what_is_not_as_usual():
    """So that a node of an earlier version reads it: it refuses fields that it does not know."""
    found = resolve_plan(group(probes=(ProbeSpec(kind=ProbeKind.LOG, pattern="a"),)), Library(), never)
    assert '"probes":[{"kind":"log","pattern":"a"}]' in found.record.body


def test_every_field_that_group_and_plan_share_is_carried_over():
    """A field that somebody adds to both and forgets in between is found here."""
    spec = parse_group(
        {
            "name": "lobby", "command": ["a"], "args": ["b"], "env": {"A": "b"}, "strict_variables": True,
            "substitute": ["a"], "merge": ["b"], "patches": [{"file": "a.yml", "path": "a"}], "static": True,
            "protected_paths": ["w"], "probes": [{"kind": "workload"}], "memory_mb": 5, "cpu": 1.5, "pids": 7,
            "disk_mb": 8, "console_mb": 9, "max_players": 3, "host_address": "h", "run_as": "u", "isolate": "shared",
            "stdin": "none", "tty": True, "line_buffered": True, "stop": [], "startup_timeout_seconds": 61,
            "min_alive_ms": 62, "max_lifetime_seconds": 63, "crash_keep_seconds": 64, "runtime": "tmux", "clean_exit_codes": [3],
            "restart": {"attempts": 9, "on": "failure"}, "category": "proxy", "config_format": "velocity",
            "variables": {"A": "1"}, "variable_types": {"A": {"type": "int"}},
            "disconnect": {"stop_after_seconds": 5, "replace_after_seconds": None},
        }
    )  # fmt: skip
    plan = plan_of(spec)
    special = {"version", "templates", "artifact", "extensions", "jvm", "restart"}
    assert {**values(plan.restart), "on": plan.restart_on} == values(spec.restart)
    shared = (set(plan.__struct_fields__) & set(spec.__struct_fields__)) - special
    default = group()
    for name in shared:
        assert values(getattr(plan, name)) == values(getattr(spec, name)), name
        assert getattr(spec, name) != getattr(default, name), f"{name} is not given above"
    assert plan.stop_after_seconds == spec.disconnect.stop_after_seconds != 0
    renamed = {"group", "warm_paths", "restart_on", "stop_after_seconds"}
    assert set(plan.__struct_fields__) - shared - special == renamed


def test_variables_are_merged_by_layer_and_globs_united():
    base = template("base", variables={"A": "base", "B": "base"}, substitute=("*.yml", "own.txt"))
    child = template(
        "child",
        parents=("base",),
        variables={"B": "child", "C": "child", "D": "child"},
        variable_types={"N": VariableSpec(type=VariableType.INT, default="3")},
    )
    plan = plan_of(
        group(
            templates=("child",),
            properties={"c": "property", "d": "property"},
            variables={"D": "group"},
            substitute=("own.txt", "a/"),
        ),
        base,
        child,
    )
    assert plan.variables == {"A": "base", "B": "child", "C": "property", "D": "group", "N": "3"}
    assert plan.substitute == ("own.txt", "a/", "*.yml")
    assert plan.variable_types["N"].type is VariableType.INT


def test_a_value_must_fit_what_a_template_declares():
    typed = template("typed", variable_types={"LEVEL": VariableSpec(type=VariableType.INT)})
    error = refusal(group(templates=("typed",), variables={"LEVEL": "x"}), typed)
    assert (error.code, error.field) == (Code.VARIABLE_INVALID, "variables/LEVEL")


def test_an_instances_own_variables_are_checked_with_everything_else():
    types = {"LEVEL": VariableSpec(type=VariableType.INT, required=True), "B": VariableSpec(required=True)}
    plan = plan_of(group(variable_types=types, variables={"B": "x"}))
    check_instance_variables(plan, {"LEVEL": "1", "FREE": "x"})
    for bad, field in [
        ({}, "variables/LEVEL"),
        ({"LEVEL": "x"}, "variables/LEVEL"),
        ({"a": ""}, "variables/a"),
    ]:
        with pytest.raises(Rejected) as caught:
            check_instance_variables(plan, bad)
        assert caught.value.field == field


def test_an_artifact_of_the_catalog_brings_its_file_digest_and_kind():
    plan = plan_of(group(artifact=ArtifactSpec(platform="paper", version="1.21.4")))
    assert plan.artifact is not None
    assert (plan.artifact.file, plan.artifact.url, plan.artifact.size) == ("paper.jar", PAPER.url, 7)
    assert (plan.category, plan.config_format) == (Category.SERVER, ConfigFormat.PAPER)
    other = plan_of(
        group(
            artifact=ArtifactSpec(platform="paper", version="1.21.4", file="bin/server.jar"),
            category=Category.PROXY,
            config_format=ConfigFormat.VELOCITY,
        )
    )
    assert other.artifact is not None
    assert other.artifact.file == "bin/server.jar"
    assert (other.category, other.config_format) == (Category.PROXY, ConfigFormat.VELOCITY)


def test_an_artifact_by_url_is_named_after_it():
    plan = plan_of(group(artifact=ArtifactSpec(url="https://h/x/server%201.jar?a=b", sha256=DIGEST)))
    assert plan.artifact is not None
    assert (plan.artifact.file, plan.artifact.sha256, plan.artifact.platform) == ("server 1.jar", DIGEST, "")


def test_what_the_catalog_has_not_is_named():
    error = refusal(group(artifact=ArtifactSpec(platform="paper", version="2")))
    assert (error.code, error.field) == (Code.ARTIFACT_NOT_FOUND, "artifact")
    error = refusal(group(extensions=(extension("a", platform="nobody", version="1"),)))
    assert (error.code, error.field) == (Code.ARTIFACT_NOT_FOUND, "extensions/0/artifact")


@pytest.mark.parametrize(
    ("path", "place"),
    [("plugins", "plugins/LuckPerms.jar"), ("a/b/", "a/b/LuckPerms.jar"), (".", "LuckPerms.jar")],
)
def test_an_extension_goes_to_its_install_path(path, place):
    (found,) = plan_of(group(extensions=(extension("luck", path=path, module="m", variant="v"),))).extensions
    assert (found.artifact.file, found.module, found.variant) == (place, "m", "v")
    assert (found.artifact.url, found.artifact.size) == ("", 99)


def test_the_same_extension_twice_is_installed_once():
    plan = plan_of(group(extensions=(extension("luck"), extension("luck", module="other"))))
    assert len(plan.extensions) == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (extension("luck"), extension("luck", variant="v2")),
        (extension("luck"), extension("luck", path="mods")),
        (extension("luck"), extension("other")),
        (
            extension("luck"),
            extension("other", platform="luckperms", version="5", file="luckperms.JAR"),
        ),
        (
            extension("luck"),
            extension("other", path="plugins/LuckPerms.jar", platform="luckperms", version="5", file="x"),
        ),
        (
            extension("a", path="plugins/x", platform="luckperms", version="5", file="y"),
            extension("b", path="plugins", platform="luckperms", version="5", file="x"),
        ),
    ],
)
def test_extensions_that_cannot_be_together_are_refused(first, second):
    error = refusal(group(extensions=(first, second)))
    assert (error.code, error.field) == (Code.EXTENSION_CONFLICT, "extensions/1")
    assert f"'{first.id}'" in error.message


def test_an_extension_cannot_take_the_programs_place():
    error = refusal(
        group(
            artifact=ArtifactSpec(platform="paper", version="1.21.4"),
            extensions=(extension("x", path=".", platform="luckperms", version="5", file="paper.jar"),),
        )
    )
    assert error.code is Code.EXTENSION_CONFLICT
    assert "the group's artifact" in error.message


@pytest.mark.parametrize(
    ("jvm", "memory", "heap"),
    [
        (JvmSpec(jar="a.jar"), 1000, 800),
        (JvmSpec(jar="a.jar"), 0, 0),
        (JvmSpec(jar="a.jar", heap_mb=300), 1000, 300),
        (JvmSpec(jar="a.jar", args=("-Xmx1G",)), 4000, 0),
    ],
)
def test_the_heap_is_four_fifths_of_the_memory_unless_somebody_says_otherwise(jvm, memory, heap):
    plan = plan_of(group(command=(), jvm=jvm, memory_mb=memory))
    assert plan.jvm is not None
    assert (plan.jvm.jar, plan.jvm.heap_mb, plan.jvm.args) == ("a.jar", heap, jvm.args)


def test_the_jar_is_the_artifact_unless_one_is_named():
    program = ArtifactSpec(platform="paper", version="1.21.4")
    plan = plan_of(group(command=(), jvm=JvmSpec(), artifact=program, warmup=WarmupSpec(paths=("cache/",))))
    assert plan.jvm is not None
    assert plan.jvm.jar == "paper.jar"
    assert plan.warm_paths == ("cache/",)
    assert refusal(group(command=(), jvm=JvmSpec())).field == "jvm/jar"


def test_a_secret_is_in_the_plan_by_reference_only():
    spec = parse_group(
        {
            "name": "lobby",
            "command": ["serve"],
            "variables": {"KEY": "file://key"},
            "variable_types": {"KEY": {"type": "secret"}},
        }
    )
    assert plan_of(spec).variables == {"KEY": "file://key"}


@pytest.mark.trap("T77")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"command": ["serve", "--password=%KEY%"]}, "command/1"),
        ({"args": ["a", "x%KEY%y"]}, "args/1"),
        ({"command": [], "jvm": {"jar": "a.jar", "args": ["-Dpw=%KEY%"]}}, "jvm/args/0"),
        ({"command": [], "jvm": {"jar": "%KEY%.jar"}}, "jvm/jar"),
        ({"host_address": "%KEY%"}, "host_address"),
    ],
)
def test_a_secret_in_the_command_line_is_refused_with_what_to_do(fields, field):
    secret = {"variables": {"KEY": "file://key"}, "variable_types": {"KEY": {"type": "secret"}}}
    error = refusal(parse_group({"name": "lobby", "command": ["serve"], **secret, **fields}))
    assert (error.code, error.field) == (Code.SECRET_EXPOSED, field)
    assert "env" in (error.hint or "")
    plain = parse_group({"name": "lobby", "command": ["serve"], **fields, "variables": {"KEY": "x"}})
    assert plan_of(plain)


@pytest.mark.trap("T77")
def test_a_secret_that_a_template_declares_is_refused_in_the_command_line_too():
    declared = {"KEY": VariableSpec(type=VariableType.SECRET)}
    spec = group(templates=("base",), command=("serve", "%KEY%"))
    assert refusal(spec, template("base", variable_types=declared)).code is Code.SECRET_EXPOSED
