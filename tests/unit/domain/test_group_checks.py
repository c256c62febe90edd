"""What the types cannot say about a group."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from corral.domain.groups.config_patches import patch_format, split_path, value_text
from corral.domain.groups.group import PatchOp, PatchSpec
from corral.domain.groups.group_documents import group_document, merged, parse_group
from corral.domain.urls import shown_url, url_file
from corral.errors import Code, Rejected

DIGEST = "ab" * 32
BARE: dict[str, Any] = {"name": "lobby", "command": ["serve"]}
FULL: dict[str, Any] = {
    "name": "lobby",
    "jvm": {"args": ["-XX:+UseZGC"], "heap_mb": 800},
    "memory_mb": 1024,
    "artifact": {"platform": "paper", "version": "1.21.4-232"},
    "templates": ["base", "maps/arena"],
    "template_selection": {
        "all_of": [{"name": "a", "priority": 3, "override": False}],
        "one_in_groups": [{"name": "maps"}],
    },
    "substitute": ["*.properties", "plugins/**/*.yml"],
    "merge": ["config/*.yml"],
    "patches": [
        {"file": "server.properties", "path": "server-port", "value": "%PORT%"},
        {"file": "config/paper.yml", "path": 'worlds."a.b".0', "op": "replace", "value": {"x": [1, None]}},
        {"file": "eula.txt", "path": "eula=(.*)", "op": "regex", "value": "eula=true"},
        {"file": "motd", "path": "text", "format": "json", "value": 1},
    ],
    "extensions": [
        {
            "id": "LuckPerms",
            "artifact": {"url": "https://files.example/lp%201.jar?key=1", "sha256": DIGEST},
            "install_path": "plugins/",
        }
    ],
    "ports": {"primary": {"range": [25565, 25600]}, "query": {"port": 1}},
    "probes": [
        {"kind": "log", "pattern": r"Done \("},
        {"kind": "tcp"},
        {"kind": "http", "port": "query", "path": "/up"},
        {"kind": "minecraft"},
        {"kind": "command", "command": ["true"]},
        {"kind": "workload"},
    ],
    "variables": {"LEVEL": "3", "KEY": "file://key"},
    "variable_types": {"LEVEL": {"type": "int", "max": 5}, "KEY": {"type": "secret"}},
    "host_address": "%LABEL_IP%",
    "static": True,
    "protected_paths": ["world", "*.json"],
    "warmup": {"paths": ["cache/"]},
}


def test_a_group_with_everything_is_taken_and_its_document_is_read_again():
    spec = parse_group(FULL)
    assert parse_group(group_document(spec)) == spec


BAD: list[tuple[dict[str, Any], Code, str]] = [
    ({"command": []}, Code.INVALID_FIELD, "command"),
    ({"run_as": "9" * 5000}, Code.INVALID_FIELD, "run_as"),
    ({"run_as": "u" * 65}, Code.INVALID_FIELD, "run_as"),
    ({"run_as": "4294967295"}, Code.INVALID_FIELD, "run_as"),
    ({"run_as": "4294967296"}, Code.INVALID_FIELD, "run_as"),
    ({"run_as": "٣"}, Code.INVALID_FIELD, "run_as"),
    ({"run_as": "a\0b"}, Code.INVALID_FIELD, "run_as"),
    ({"run_as": "a:b"}, Code.INVALID_FIELD, "run_as"),
    ({"run_as": "games", "isolate": "uid"}, Code.INVALID_FIELD, "isolate"),
    ({"jvm": {"jar": "a.jar"}}, Code.INVALID_FIELD, "jvm"),
    ({"command": [], "jvm": {}}, Code.INVALID_FIELD, "jvm/jar"),
    ({"command": [], "jvm": {"jar": "../a.jar"}}, Code.PATH_REFUSED, "jvm/jar"),
    ({"command": [], "memory_mb": 10, "jvm": {"jar": "a", "heap_mb": 11}}, Code.INVALID_FIELD, "jvm/heap_mb"),
    ({"command": [], "jvm": {"jar": "a", "args": ["\0"]}}, Code.INVALID_FIELD, "jvm/args/0"),
    ({"templates": ["a", "A"]}, Code.INVALID_FIELD, "templates/1"),
    (
        {"template_selection": {"one_of": [{"name": "a b"}]}},
        Code.INVALID_FIELD,
        "template_selection/one_of/0/name",
    ),
    (
        {"template_selection": {"all_in_groups": [{"name": "a/b"}]}},
        Code.INVALID_FIELD,
        "template_selection/all_in_groups/0/name",
    ),
    ({"substitute": ["/etc/*"]}, Code.PATH_REFUSED, "substitute/0"),
    ({"merge": ["a", "../b"]}, Code.PATH_REFUSED, "merge/1"),
    ({"protected_paths": [""]}, Code.PATH_REFUSED, "protected_paths/0"),
    ({"warmup": {"paths": ["a\\b"]}}, Code.PATH_REFUSED, "warmup/paths/0"),
    ({"artifact": {}}, Code.INVALID_FIELD, "artifact"),
    ({"artifact": {"platform": "paper"}}, Code.INVALID_FIELD, "artifact/version"),
    ({"artifact": {"version": "1"}}, Code.INVALID_FIELD, "artifact/platform"),
    (
        {"artifact": {"platform": "p", "version": "1", "url": "http://a/b", "sha256": DIGEST}},
        Code.INVALID_FIELD,
        "artifact",
    ),
    ({"artifact": {"platform": "p", "version": "1", "sha256": DIGEST}}, Code.INVALID_FIELD, "artifact/sha256"),
    ({"artifact": {"url": "http://a/b.jar"}}, Code.INVALID_FIELD, "artifact/sha256"),
    ({"artifact": {"url": "http://a/", "sha256": DIGEST}}, Code.INVALID_FIELD, "artifact/file"),
    ({"artifact": {"url": "http://a/x/..", "sha256": DIGEST}}, Code.INVALID_FIELD, "artifact/file"),
    ({"artifact": {"url": "http://a/b", "sha256": DIGEST, "file": "/b"}}, Code.PATH_REFUSED, "artifact/file"),
    *(
        ({"artifact": {"url": url, "sha256": DIGEST}}, Code.ARTIFACT_REFUSED, "artifact/url")
        for url in (
            "file:///etc/passwd", "ftp://a/b", "//a/b", "b.jar", "http:///b", "http://a b/c", "http://a:x/b",
            "http://a:0/b", "http://[::1/b", "javascript:alert(1)", "http://ä/b",
        )
    ),
    (
        {"extensions": [{"id": "a/b", "artifact": {"platform": "p", "version": "1"}, "install_path": "x"}]},
        Code.INVALID_FIELD,
        "extensions/0/id",
    ),
    (
        {"extensions": [{"id": "a", "artifact": {"platform": "p", "version": "1"}, "install_path": "/x"}]},
        Code.PATH_REFUSED,
        "extensions/0/install_path",
    ),
    (
        {"extensions": [{"id": "a", "artifact": {"platform": "p", "version": "1"}, "install_path": "a/../.."}]},
        Code.PATH_REFUSED,
        "extensions/0/install_path",
    ),
    ({"patches": [{"file": "../a.yml", "path": "a"}]}, Code.PATH_REFUSED, "patches/0/file"),
    ({"patches": [{"file": "a.cfg", "path": "a"}]}, Code.INVALID_FIELD, "patches/0/format"),
    ({"patches": [{"file": "a.yml", "path": "a", "format": "text"}]}, Code.INVALID_FIELD, "patches/0/format"),
    ({"patches": [{"file": "a.yml", "path": "a..b"}]}, Code.INVALID_FIELD, "patches/0/path"),
    ({"patches": [{"file": "a.properties", "path": "a", "value": [1]}]}, Code.INVALID_FIELD, "patches/0/value"),
    ({"patches": [{"file": "a.properties", "path": "a", "value": None}]}, Code.INVALID_FIELD, "patches/0/value"),
    ({"patches": [{"file": "a", "path": "(", "op": "regex"}]}, Code.INVALID_PATTERN, "patches/0/path"),
    ({"patches": [{"file": "a", "path": "a", "op": "regex", "value": {}}]}, Code.INVALID_FIELD, "patches/0/value"),
    (
        {"patches": [{"file": "a", "path": "a", "op": "regex", "value": "\\1"}]},
        Code.INVALID_FIELD,
        "patches/0/value",
    ),
    ({"patches": [{"file": "a.toml", "path": "a", "value": [None]}]}, Code.INVALID_FIELD, "patches/0/value"),
    ({"ports": {"a": {"range": [1, 2], "of": "b"}}}, Code.INVALID_FIELD, "ports/a"),
    ({"ports": {"a": {"range": [1, 2], "offset": 1}}}, Code.INVALID_FIELD, "ports/a/offset"),
    ({"ports": {"a": {"of": "b", "offset": 1}}}, Code.INVALID_FIELD, "ports/a/of"),
    ({"ports": {"a": {"of": "a", "offset": 1}}}, Code.INVALID_FIELD, "ports/a/of"),
    (
        {"ports": {"a": {"of": "b", "offset": 1}, "b": {"of": "a", "offset": 1}}},
        Code.INVALID_FIELD,
        "ports/a/of",
    ),
    ({"ports": {"a": {"port": 80}, "b": {"of": "c", "offset": 1}}}, Code.INVALID_FIELD, "ports/b/of"),
    ({"ports": {"a": {"port": 80}, "b": {"port": 80}}}, Code.INVALID_FIELD, "ports/b"),
    ({"labels": {"team": "a\u202eb"}}, Code.INVALID_FIELD, "labels/team"),
    ({"labels": {"te\x1bam": "a"}}, Code.INVALID_FIELD, "labels/teU+001Bam"),
    ({"node_labels": {"zone": "a\0"}}, Code.INVALID_FIELD, "node_labels/zone"),
    ({"node_labels": {"zone\x85": "a"}}, Code.INVALID_FIELD, "node_labels/zoneU+0085"),
    ({"affinity": [{"label": "disk=ss\u2066d"}]}, Code.INVALID_FIELD, "affinity/0/label"),
    ({"spread": [{"by": "zo\nne"}]}, Code.INVALID_FIELD, "spread/0/by"),
    ({"ports": {"a": {"port": 80, "protocol": "both"}, "b": {"range": [80, 80]}}}, Code.INVALID_FIELD, "ports/b"),
    (
        {"ports": {"a": {"port": 80}, "b": {"of": "a", "offset": 5}, "c": {"port": 85}}},
        Code.INVALID_FIELD,
        "ports/c",
    ),
    ({"ports": {"a": {"port": 80}, "b": {"of": "a"}}}, Code.INVALID_FIELD, "ports/b/offset"),
    ({"ports": {"a": {"port": 80}, "b": {"of": "a", "offset": -80}}}, Code.INVALID_FIELD, "ports/b/offset"),
    (
        {"ports": {"a": {"range": [60000, 65535]}, "b": {"of": "a", "offset": 1}}},
        Code.INVALID_FIELD,
        "ports/b/offset",
    ),
    ({"probes": [{"kind": "log"}]}, Code.INVALID_FIELD, "probes/0/pattern"),
    ({"probes": [{"kind": "log", "pattern": "("}]}, Code.INVALID_PATTERN, "probes/0/pattern"),
    ({"probes": [{"kind": "workload", "pattern": "a"}]}, Code.INVALID_FIELD, "probes/0/pattern"),
    ({"probes": [{"kind": "command"}]}, Code.INVALID_FIELD, "probes/0/command"),
    ({"probes": [{"kind": "command", "command": [""]}]}, Code.INVALID_FIELD, "probes/0/command"),
    ({"probes": [{"kind": "tcp"}]}, Code.INVALID_FIELD, "probes/0/port"),
    (
        {"ports": {"query": {"port": 1}}, "probes": [{"kind": "minecraft"}]},
        Code.INVALID_FIELD,
        "probes/0/port",
    ),
    (
        {"ports": {"primary": {"port": 1}}, "probes": [{"kind": "http", "path": "up"}]},
        Code.INVALID_FIELD,
        "probes/0/path",
    ),
    (
        {"ports": {"primary": {"port": 1}}, "probes": [{"kind": "http", "path": "/a\r\nX: y"}]},
        Code.INVALID_FIELD,
        "probes/0/path",
    ),
    ({"variables": {"port": "1"}}, Code.INVALID_FIELD, "variables/port"),
    (
        {"variables": {"A": "x"}, "variable_types": {"A": {"type": "int"}}},
        Code.VARIABLE_INVALID,
        "variables/A",
    ),
    (
        {"variables": {"A": "plain"}, "variable_types": {"A": {"type": "secret"}}},
        Code.VARIABLE_INVALID,
        "variables/A",
    ),
    ({"variable_types": {"A": {"type": "enum"}}}, Code.INVALID_FIELD, "variable_types/A"),
    (
        {"patches": [{"file": "a.yml", "path": "a", "value": msgspec.json.decode("[" * 900 + "]" * 900)}]},
        Code.INVALID_FIELD,
        "patches/0/value",
    ),
    (
        {"patches": [{"file": "a.toml", "path": "a", "value": msgspec.json.decode("[" * 900 + "]" * 900)}]},
        Code.INVALID_FIELD,
        "patches/0/value",
    ),
    ({"host_address": "a b"}, Code.INVALID_FIELD, "host_address"),
    ({"properties": {"a": "\0"}}, Code.INVALID_FIELD, "properties/a"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "code", "field"), BAD, ids=[f"{n}-{case[2]}" for n, case in enumerate(BAD)]
)
def test_what_could_never_work_is_refused_with_its_field(fields, code, field):
    with pytest.raises(Rejected) as caught:
        parse_group({**BARE, **fields})
    assert (caught.value.code, caught.value.field) == (code, field)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("fields", "field", "guess"),
    [
        ({"comand": 1}, "comand", "command"),
        ({"probes": [{"kind": "log", "patern": "x"}]}, "probes/0/patern", "pattern"),
        ({"ports": {"primary": {"rnge": [1, 2]}}}, "ports/primary/rnge", "range"),
        ({"jvm": {"heapmb": 1}}, "jvm/heapmb", "heap_mb"),
        ({"variable_types": {"A": {"typ": "int"}}}, "variable_types/A/typ", "type"),
    ],
)
def test_a_typo_is_answered_with_the_nearest_field_at_any_depth(fields, field, guess):
    with pytest.raises(Rejected) as caught:
        parse_group({**BARE, **fields})
    assert (caught.value.code, caught.value.field) == (Code.UNKNOWN_FIELD, field)
    assert caught.value.hint == f"did you mean '{guess}'?"


def test_ports_of_one_number_are_taken_where_they_differ_in_the_protocol_or_may_differ():
    ports = {
        "a": {"port": 80, "protocol": "tcp"},
        "b": {"port": 80, "protocol": "udp"},
        "c": {"range": [80, 81]},
        "d": {"range": [80, 81]},
    }
    assert len(parse_group({**BARE, "ports": ports}).ports) == 4


def test_a_merge_patch_takes_parts_away_and_keeps_the_rest():
    patch = {"jvm": None, "command": ["serve"], "variables": {"LEVEL": "4"}}
    spec = parse_group(merged(group_document(parse_group(FULL)), patch))
    assert spec.jvm is None
    assert spec.variables == {"LEVEL": "4", "KEY": "file://key"}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a", ("a",)),
        ("a.b.0", ("a", "b", "0")),
        ('a."b.c".d', ("a", "b.c", "d")),
        ('""', ("",)),
        (r'"a\"b\\"', ('a"b\\',)),
        ('a"b.c', ('a"b', "c")),
    ],
)
def test_the_parts_of_a_path(text, parts):
    assert split_path(text) == parts


@pytest.mark.parametrize("text", [".", "a.", ".a", 'a."b', '"a"b', "a" + ".a" * 64])
def test_a_path_without_sense_is_refused(text):
    with pytest.raises(Rejected):
        split_path(text)


@pytest.mark.parametrize(
    ("file", "op", "given", "format"),
    [
        ("a.YML", PatchOp.SET, "", "yaml"),
        ("a.yaml", PatchOp.SET, "", "yaml"),
        ("a.json", PatchOp.REPLACE, "", "json"),
        ("server.properties", PatchOp.SET, "", "properties"),
        ("a.toml", PatchOp.SET, "yaml", "yaml"),
        ("a.toml", PatchOp.REGEX, "", "text"),
        ("a", PatchOp.SET, "", ""),
    ],
)
def test_the_format_of_a_file_is_its_ending_unless_it_is_given(file, op, given, format):
    assert patch_format(PatchSpec(file=file, path="a", op=op, format=given)) == format


def test_scalars_are_written_as_configuration_files_write_them():
    assert [value_text(value) for value in (True, False, 1, 1.5, "x")] == ["true", "false", "1", "1.5", "x"]


def test_what_may_be_secret_in_a_url_is_not_shown():
    assert shown_url("https://me:hunter2@h:8443/a/b.jar?key=hunter2#x") == "https://h:8443/a/b.jar"
    assert "hunter2" not in shown_url("http://[hunter2")
    assert url_file("https://h/a/my%20plugin.jar?x=/y") == "my plugin.jar"
    assert url_file("https://h/a/%2e%2e%2fb") == "b"
