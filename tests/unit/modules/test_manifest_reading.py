"""Manifests: every refusal names the place, and nothing an author writes costs the host more than a moment."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect as kinds
from packed_modules import MANIFEST

from corral.domain.modules.manifest import Manifest, ModuleHost, Source
from corral.errors import Code, Rejected
from corral.modules.manifest.manifest_reader import MANIFEST_MAX, read_manifest
from corral.testing.counted_calls import counted_calls

FULL = """\
manifestVersion: 1
id: stats-aggregator
version: 1.10.0-rc.1
api: ^1.2
title: Statistics
description: Counts things
hosts: [controller, daemon]
backend:
  controller: {entrypoint: "stats.main:Stats", hookDeadlineMs: 5000}
  daemon:
    entrypoint: stats.node:Stats
capabilities:
  provides:
    - id: stats.api
      version: 1.2.0
      deprecatedSince: 1.1.0
      removedIn: 2.0.0
  requires:
    - id: player.journey
      versionRange: 1.10
      optional: true
      from: controller
storage:
  documents: true
  keyValue: true
  limits: {documentsMb: 10, keyValueMb: 2}
events:
  subscribes: [GROUP_CREATED, other/PLAYER_JOINED]
  publishes: [STATS_READY]
frontend:
  entry: index.html
  title: Stats
  icon: chart
  nav: tools
  permissions: [modules.read]
config:
  type: object
  properties:
    interval: {type: integer, minimum: 1, default: 30}
limits: {memoryMb: 128, processes: 8, cpuWeight: 50}
extensions:
  - id: stats-plugin
    activation: requested
    conflicts: [other-plugin]
    variants:
      - id: paper
        platforms: [paper]
        versionRange: ">=1.20"
        file: plugins/paper.jar
        sha256: 0000000000000000000000000000000000000000000000000000000000000000
        installPath: plugins/stats.jar
"""


def refusal(text: str, name: str = "module.yaml") -> Rejected:
    with pytest.raises(Rejected) as refused:
        read_manifest(text, name=name)
    assert refused.value.code is Code.MANIFEST_INVALID
    return refused.value


def test_the_smallest_manifest_gets_every_default() -> None:
    manifest = read_manifest(MANIFEST)
    assert (manifest.id, manifest.version) == ("stats", "1.0.0")
    assert manifest.hosts == (ModuleHost.CONTROLLER,)
    backend = manifest.backend_on(ModuleHost.CONTROLLER)
    assert backend is not None
    assert backend.hook_deadline_ms == 2000
    assert manifest.backend_on(ModuleHost.DAEMON) is None
    assert manifest.config == {}


def test_every_key_is_read() -> None:
    manifest = read_manifest(FULL)
    assert manifest.version == "1.10.0-rc.1"
    requirement = manifest.capabilities.requires[0]
    assert (requirement.version_range, requirement.optional, requirement.from_) == (
        "1.10",  # not 1.1, which it would be as a number
        True,
        Source.CONTROLLER,
    )
    assert manifest.storage.limits.documents_mb == 10
    assert manifest.extensions[0].variants[0].sha256 == "0" * 64
    assert manifest.config["properties"]["interval"]["default"] == 30
    assert manifest.limits.cpu_weight == 50


def test_the_same_in_json_is_the_same_manifest() -> None:
    values = yaml.safe_load(FULL.replace("1.10\n", "'1.10'\n").replace("0" * 64, f"'{'0' * 64}'"))
    text = json.dumps(values, indent="\t", ensure_ascii=True)
    assert read_manifest(text, name="module.json") == read_manifest(FULL)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("controller:", "controler:"), "module.yaml:6: backend.controler: unknown key; did you mean 'controller'?"),
        (("id: stats", "id: stats\nversoin: 2.0.0"), "module.yaml:3: versoin: unknown key; did you mean 'version'?"),
        (("entrypoint:", "hookdeadlinems: 5\n    entrypoint:"), "module.yaml:7: backend.controller.hookdeadlinems: unknown"),
        (("id: stats\n", ""), "module.yaml:1: id: it is missing"),
        (("1.0.0", "1.0"), "module.yaml:3: version: '1.0' is not a version"),
        (("1.0.0", "[1]"), "module.yaml:3: version: it must be a text, not a list"),
        (('">=1.0 <2"', "'>>1'"), "module.yaml:4: api: '>>1' is not a version range"),
        (("manifestVersion: 1", "manifestVersion: 2"), "module.yaml:1: manifestVersion: 2 is not known; write 1"),
        (("manifestVersion: 1", "manifestVersion: one"), "it must be a whole number, not a text"),
        (("manifestVersion: 1", "manifestVersion: true"), "it must be a whole number, not a truth value"),
        (("id: stats", "id: Stats"), "module.yaml:2: id: 'Stats' is not a module id"),
        (("id: stats", "id: 9stats"), "is not a module id"),
        (("id: stats", "id: " + "a" * 64), "is not a module id"),
        (("id: stats", "id: leaked"), "module.yaml:2: id: 'leaked' is reserved"),
        (("id: stats", "id: corral"), "'corral' is reserved"),
        (("stats.main:Stats", "stats.main"), "module.yaml:7: backend.controller.entrypoint: 'stats.main' is not an"),
        (("stats.main:Stats", "stats/main:Stats"), "is not an entrypoint"),
        (("stats.main:Stats", "stats.class:Stats"), "is not an entrypoint"),
        (("stats.main:Stats", "json.main:Stats"), "module.yaml:7: backend.controller.entrypoint: 'json' is a package of"),
        (("stats.main:Stats", "msgspec.main:Stats"), "'msgspec' is a package of Python or the SDK"),
        (("stats.main:Stats", "corral.main:Stats"), "'corral' is not the module's own"),
        (("backend:", "hosts: []\nbackend:"), "module.yaml:5: hosts: it is empty"),
        (("backend:", "hosts: [controller, controller]\nbackend:"), "stands there twice"),
        (("backend:", "hosts: [deamon]\nbackend:"), "unknown value 'deamon'; did you mean 'daemon'?"),
        (("backend:", "hosts: [controller, daemon]\nbackend:"), "backend.daemon: it is missing, but hosts names 'daemon'"),
        (("backend:", "hosts: daemon\nbackend:"), "module.yaml:5: hosts: it must be a list, not a text"),
        (("  controller:", "  daemon: {entrypoint: 'a:B'}\n  controller:"), "backend.daemon: hosts does not name 'daemon'"),
    ],
)  # fmt: skip
def test_a_refusal_names_file_line_and_path(change: tuple[str, str], told: str) -> None:
    changed = MANIFEST.replace(*change)
    assert changed != MANIFEST
    assert told in refusal(changed).message


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("capabilities:\n  provides:\n    - {id: 'A.b', version: 1.0.0}\n", "module.yaml:10: capabilities.provides[0].id: 'A.b'"),
        ("capabilities:\n  provides:\n    - {id: 'a..b', version: 1.0.0}\n", "is not a capability id"),
        ("capabilities:\n  provides:\n    - {id: 'a/b', version: 1.0.0}\n", "is not a capability id"),
        ("capabilities:\n  provides:\n    - {id: a}\n", "capabilities.provides[0].version: it is missing"),
        ("capabilities:\n  provides:\n    - {id: a, version: 1.0.0}\n    - {id: a, version: 2.0.0}\n", "module.yaml:11: capabilities.provides[1].id: 'a' stands there twice"),
        ("capabilities:\n  requires:\n    - {id: a, versionRange: '1 - 2'}\n", "capabilities.requires[0].versionRange:"),
        ("capabilities:\n  requires:\n    - {id: a, frm: node}\n", "did you mean 'from'?"),
        ("capabilities:\n  requires:\n    - {id: a, from: node}\n", "with 'daemon' among their hosts"),
        ("capabilities:\n  requires:\n    - {id: a, from: nowhere}\n", "unknown value 'nowhere'"),
        ("capabilities:\n  requires:\n    - {id: a, optional: yes}\n", "it must be true or false, not a text"),
        ("storage: {documents: 1}\n", "storage.documents: it must be true or false, not a number"),
        ("storage: {limits: {documentsMb: 0}}\n", "storage.limits.documentsMb: it must be between"),
        ("storage: {limits: {documentsMB: 5}}\n", "did you mean 'documentsMb'?"),
        ("events: {publishes: [lower]}\n", "events.publishes[0]: 'lower' is not an event type"),
        ("events: {subscribes: [GROUP_CREATE]}\n", "did you mean 'GROUP_CREATED'?"),
        ("events: {subscribes: [a/b/C]}\n", "unknown event type"),
        ("frontend: {entry: ../x, title: T}\n", "frontend.entry: path '../x' is refused"),
        ("frontend: {entry: index.html}\n", "frontend.title: it is missing"),
        ("frontend: {entry: a, title: T, permissions: [module.read]}\n", "did you mean 'modules.read'?"),
        ("limits: {memoryMb: 4}\n", "limits.memoryMb: it must be between"),
        ("config: [1]\n", "config: it must be a map, not a list"),
        ("config:\n  type: object\n  properties:\n    a: {type: strng}\n", "module.yaml:11: config.properties.a.type:"),
        ("extensions:\n  - id: e\n    variants: []\n", "extensions[0].variants: it is empty"),
        ("extensions:\n  - id: e\n    variants:\n      - {id: v, file: /x, sha256: z, installPath: a/../b}\n", "it must be 64 hexadecimal digits"),
        ("backend2: &x {a: 1}\n", "the anchor '&x' is not allowed"),
        ("title: *x\n", "aliases are not allowed"),
        ("title: !!python/object:os.system x\n", "the tag 'tag:yaml.org,2002:python/object:os.system' is not allowed"),
        ("id: again\n", "module.yaml:8: the key 'id' stands there twice"),
        ("config:\n  properties: {a: {}, a: {}}\n", "module.yaml:9: the key 'a' stands there twice"),
        ("[1, 2]: x\n", "a key must be a word"),
        ("<<: {a: 1}\n", "<<: unknown key"),
        ("---\nid: b\n", "it holds a second document"),
        ("a: b: c\n", "module.yaml:8: not valid YAML"),
        ("title: " + "x" * 101 + "\n", "title: it is longer than 100 characters"),
        ("description: " + "x" * 5000 + "\n", "description: it is longer than 4096 characters"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_part_is_named(more: str, told: str) -> None:
    assert told in refusal(MANIFEST + more).message


def test_everything_may_be_subscribed_to_but_not_on_nodes() -> None:
    events = "events: {subscribes: ['*', TOKEN_CREATED]}\n"
    assert read_manifest(MANIFEST + events).events.subscribes == ("*", "TOKEN_CREATED")
    on_nodes = MANIFEST.replace("backend:", "hosts: [controller, daemon]\nbackend:")
    told = "events.subscribes[0]: a module with 'daemon' among its hosts lists each type"
    assert told in refusal(on_nodes + "  daemon: {entrypoint: 'stats.node:Stats'}\n" + events).message


@pytest.mark.parametrize("deadline", [0, -1, 30_001, 10**15])
def test_a_hook_deadline_is_bounded(deadline: int) -> None:
    changed = MANIFEST + f"    hookDeadlineMs: {deadline}\n"
    assert "backend.controller.hookDeadlineMs: it must be between 1 and 30000" in refusal(changed).message
    assert read_manifest(MANIFEST + "    hookDeadlineMs: 30000\n")


def test_all_problems_are_told_at_once_in_the_order_of_their_lines() -> None:
    changed = MANIFEST.replace("id: stats", "id: Stats").replace("1.0.0", "one").replace("main:Stats", "main")
    message = refusal(changed).message
    assert message.startswith("module.yaml:2: id")
    assert message.index("module.yaml:3: version") < message.index("module.yaml:7: backend")


def test_a_value_of_the_wrong_kind_hides_nothing_else() -> None:
    text = """\
manifestVersion: 9
id: Bad Id
version: one
hosts: [controller, moon]
backend: {controller: {entrypoint: "stats.main:Stats", hookDeadlineMs: soon}}
capabilities: {provides: [{id: "x y", version: 1.0.0}, {id: ok.too, version: new}]}
events: {publishes: [lower]}
storage: {documents: perhaps}
titel: Statistics
"""
    with pytest.raises(Rejected) as refused:
        read_manifest(text)
    told = refused.value.message
    first_eight = (
        "manifestVersion",
        "id: ",
        "version: ",
        "hosts[1]",
        "hookDeadlineMs",
        "provides[0]",
        "provides[1]",
    )
    assert [word for word in first_eight if word not in told] == []
    assert told.endswith("and 2 more")
    assert "backend.daemon" not in told, "what would follow from a host that is none is not told"


def test_the_field_of_a_refusal_is_the_first_path() -> None:
    assert refusal(MANIFEST.replace("1.0.0", "1")).field == "version"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not valid JSON: a value is missing here"),
        ("[1]", "it must be a map, not a list"),
        ('{"id": "a",\n "id": "b"}', "module.json:2: the key 'id' stands there twice"),
        ('{"id": "a",}', "a key in double quotes is missing"),
        ('{"id": "a"} x', "something follows its end"),
        ('{"id" "a"}', "':' is missing here"),
        ('{"id": "a', "not valid JSON: Unterminated string"),
        ('{"title": "\\ud800"}', "half of a pair of surrogates stands alone"),
        ('{"id": NaN}', "a value is missing here"),
        ('{"id": 1e999}', "a number is too large"),
        ('{\n"ids": "a"}', "module.json:2: ids: unknown key; did you mean 'id'?"),
        ('{"version": 1}', "version: it must be a text, not a number"),
        ("[" * 100_000, "nested more than 64 levels deep"),
        ('{"a":' * 50_000, "nested more than 64 levels deep"),
    ],
)
def test_json_is_read_as_strictly(text: str, told: str) -> None:
    assert told in refusal(text, "module.json").message


@pytest.mark.parametrize(
    "text", ["", "# nothing\n", "- 1\n", "word", "\ta: 1", "\x00", "a: \ud800", 'a: "\\ud800"', "{" * 1000]
)
def test_what_is_no_manifest_at_all_is_refused(text: str) -> None:
    refusal(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\n",
        "[" * 200_000,
        "[a," * 80_000,
        "{? " * 80_000,
        "- " * 100_000,
        "? " * 100_000,
        "a: {" * 60_000,
        "x: " + "'" * 250_000,
        "".join(f"versoin{number}: 1\n" for number in range(14_000)),
        MANIFEST + "events: {subscribes: [" + ", ".join(f"GROUP_{n}" for n in range(1000)) + "]}\n",
        MANIFEST + "hosts: [" + "deamon, " * 1000 + "]\n",
    ],
)
def test_hostile_texts_are_refused_at_once(text: str) -> None:
    with counted_calls() as count:
        refusal(text)
    assert count.calls < 3_000_000


def test_a_large_manifest_is_refused_by_its_size() -> None:
    assert f"it is larger than {MANIFEST_MAX} bytes" in refusal("#" * (MANIFEST_MAX + 1)).message


trees = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
keys = st.sampled_from(
    ["id", "version", "api", "hosts", "backend", "capabilities", "storage", "events", "frontend", "config",
     "limits", "extensions", "title", "manifestVersion"]
)  # fmt: skip


@settings(deadline=None)
@given(st.dictionaries(keys, trees, max_size=4))
def test_any_values_are_a_manifest_or_refused(values: dict[str, Any]) -> None:
    whole = yaml.safe_load(MANIFEST) | values
    for name, text in (("module.json", json.dumps(whole)), ("module.yaml", yaml.safe_dump(whole))):
        try:
            manifest = read_manifest(text, name=name)
        except Rejected as refused:
            code = refused.code
        else:
            code, _ = Code.MANIFEST_INVALID, manifest
        assert code is Code.MANIFEST_INVALID


def keys_of(kind: kinds.Type) -> set[str]:
    match kind:
        case kinds.UnionType():
            return set().union(*(keys_of(each) for each in kind.types))
        case kinds.VarTupleType():
            return keys_of(kind.item_type)
        case kinds.StructType():
            inner = (keys_of(field.type) for field in kind.fields)
            return {field.encode_name for field in kind.fields}.union(*inner)
    return set()


def test_the_reference_speaks_of_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs" / "concepts" / "manifest.md").read_text()
    words = set(re.findall(r"\w+", "\n".join(line for line in page.splitlines() if line.startswith("| `"))))
    assert keys_of(kinds.type_info(Manifest)) - words - {"controller", "daemon"} == set()


def test_the_example_of_the_reference_is_a_manifest() -> None:
    page = (Path(__file__).parents[3] / "docs" / "concepts" / "manifest.md").read_text()
    assert read_manifest(page.partition("```yaml\n")[2].partition("```")[0]).id == "stats-aggregator"
