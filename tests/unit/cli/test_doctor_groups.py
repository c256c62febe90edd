"""What `corral doctor group` says of documents, with and without a cluster to compare them with."""

from __future__ import annotations

import pathlib
import socket
from typing import Any

import pytest

from corral.cli.doctor.cluster_view import ClusterView
from corral.cli.doctor.findings import Severity, Verdict
from corral.cli.doctor.group_checks import WHY, group_looks
from corral.errors import Code, Rejected
from corral.system.daemon_config import node_id_of_host
from corral.system.document_sets import read_set

AWAY = ClusterView(problem="no controller was chosen")
NODE: dict[str, Any] = {
    "id": node_id_of_host(socket.gethostname()),
    "state": "ONLINE",
    "labels": {"zone": "a"},
    "runtimes": ["process"],
    "memory_mb": 4096,
    "cpus": 4,
}
CLUSTER = ClusterView(nodes=(NODE,), templates=frozenset({"lobby"}), programs=frozenset({"paper/1.21.4"}))
FINE = """
name: lobby
command: [/bin/sh, -c, "exec server"]
templates: [lobby]
artifact: {platform: paper, version: 1.21.4}
memory_mb: 1024
min: 1
max: 2
node_labels: {zone: a}
ports: {primary: {range: [30000, 30009]}}
probes: [{kind: minecraft}]
"""


@pytest.fixture
def look(tmp_path: pathlib.Path):
    file = tmp_path / "g.yaml"

    def verdicts(text: str, view: ClusterView = CLUSTER, hosts: tuple[str, ...] = ()) -> dict[str, Verdict]:
        file.write_text(text)
        [(_, looks)] = group_looks(str(file), read_set((str(file),)), view, hosts).items()
        assert looks.keys() <= WHY.keys()
        return {id: each() for id, each in looks.items()}

    return verdicts


def changed(**fields: str) -> str:
    kept = [line for line in FINE.splitlines() if line.partition(":")[0] not in fields]
    return "\n".join([*kept, *(f"{name}: {value}" for name, value in fields.items() if value)])


def test_a_group_without_a_fault_passes_every_check(look):
    found = look(FINE)
    assert set(found) == set(WHY)
    assert {id: each for id, each in found.items() if each.severity is not Severity.OK} == {}


def test_without_a_login_what_needs_the_cluster_is_not_checked_and_the_rest_is(look):
    found = look(FINE, AWAY)
    unknown = {id for id, each in found.items() if each.severity is not Severity.OK}
    assert unknown == {"artifact", "templates", "nodes"}
    for id in unknown:
        assert found[id].severity is Severity.ADVICE
        assert found[id].found.startswith("not checked: ")
        assert found[id].why == "The cluster could not be asked: no controller was chosen."


@pytest.mark.parametrize(
    ("fields", "id", "severity", "words"),
    [
        ({"command": "[no-such-program]"}, "command", "error", "there is no program 'no-such-program'"),
        ({"command": "[/etc/passwd]"}, "command", "error", "may not be executed"),
        ({"command": "[/none/of/it]"}, "command", "error", "does not exist"),
        ({"env": "{PATH: /none}", "command": "[sh]"}, "command", "error", "no program 'sh'"),
        (
            {"artifact": "{platform: paper, version: '1.7'}"},
            "artifact",
            "error",
            "the catalog has no paper/1.7",
        ),
        ({"ports": "{primary: {port: 25565}}"}, "ports", "advice", "1 number"),
        ({"ports": "{primary: {range: [80, 99]}}"}, "ports", "advice", "below 1024"),
        ({"templates": "[lobby, maps]"}, "templates", "error", "there is no template maps"),
        ({"node_labels": "{zone: b}"}, "nodes", "error", "no node has the labels"),
        ({"memory_mb": "8192"}, "nodes", "error", "no node has 8192 MB of memory"),
        ({"runtime": "tmux"}, "nodes", "error", "no node has the runtime tmux"),
        ({"memory_mb": ""}, "limits", "advice", "memory_mb is not set"),
        ({"command": "", "jvm": "{jar: s.jar, heap_mb: 1024}"}, "limits", "error", "jvm.heap_mb is 1024"),
        ({"probes": "", "ports": ""}, "readiness", "advice", "lived for 1500 ms"),
        (
            {"probes": "[{kind: tcp, interval_ms: 60000}]"},
            "readiness",
            "error",
            "the tcp probe runs less often than the startup timeout",
        ),
        ({"probes": "[{kind: tcp}]"}, "players", "advice", "nothing here counts players"),
    ],
)
def test_a_fault_of_a_group_is_found(look, fields: dict[str, str], id: str, severity: str, words: str):
    found = look(changed(**fields))[id]
    assert (found.severity, words in found.found) == (severity, True), found


def test_the_program_of_a_group_is_only_advice_on_a_machine_that_is_no_node(look):
    found = look(changed(command="[no-such-program]"), ClusterView(nodes=({**NODE, "id": "else"},)))[
        "command"
    ]
    assert (found.severity, "no node of the cluster" in found.found) == (Severity.ADVICE, True)


def test_an_artifact_has_to_come_from_an_allowed_host_and_should_come_by_tls(look):
    digest = "0" * 64
    secure = changed(artifact=f'{{url: "https://example.org/s.jar", sha256: "{digest}"}}')
    assert look(secure)["artifact"].severity is Severity.OK
    assert look(secure.replace("https", "http"))["artifact"].severity is Severity.ADVICE
    with pytest.raises(Rejected) as refused:
        look(secure, hosts=("*.example.com",))
    assert refused.value.code is Code.ARTIFACT_REFUSED
    found = look(changed(artifact='{url: "https://example.org/s.jar"}'))
    assert (set(found), found["document"].severity) == ({"document"}, Severity.ERROR)
    assert "a URL needs the SHA-256" in found["document"].found


def test_a_document_that_is_refused_is_an_error_with_file_and_line(look):
    found = look("name: web\ncomand: [sh]\nmin: 3\nmax: 2\n", AWAY)
    assert set(found) == {"document"}
    assert found["document"].severity is Severity.ERROR
    assert "g.yaml:2: unknown field 'comand'" in found["document"].found
    assert "g.yaml:4: max" in found["document"].found
    assert "there is no 'name'" in look("min: 1\n", AWAY)["document"].found
    assert look("name: [\n", AWAY)["document"].severity is Severity.ERROR


def test_a_group_gets_what_its_parent_in_the_cluster_has(look):
    text = "name: web\nparent: base\nmin: 1\n"
    assert look(text)["document"].severity is Severity.ERROR
    unknown = look(text, AWAY)["document"]
    assert (unknown.severity, "what it inherits from 'base'" in unknown.found) == (Severity.ADVICE, True)
    parents = {"base": {"name": "base", "abstract": True, "command": ["no-such-program"]}}
    found = look(text, CLUSTER._replace(parents=parents))
    assert found["document"].severity is Severity.OK
    assert "no-such-program" in found["command"].found


def test_what_the_controller_refuses_is_an_error_though_it_looks_fine_here(look):
    refusal = {
        "group": "lobby",
        "path": "g.yaml",
        "field": "depends_on",
        "message": "no group 'db'",
        "hint": "make it",
    }
    found = look(FINE, CLUSTER._replace(refused=(refusal,)))["document"]
    assert (found.severity, found.found) == (Severity.ERROR, "g.yaml: depends_on: no group 'db'; make it")
