"""Which module changed what, from the node to whoever asks; and what a real JVM gets of it."""

from __future__ import annotations

import pathlib
import shutil
import zipfile

import pytest
from hooked_node import HookedNode, arguments, changes
from node_archives import install, node_archive, wait_at_nodes

from corral.cli.instance.module_changes import module_rows
from corral.cli.instance.waits import stage_text
from corral.domain.groups.plans import PlanJvm
from corral.testing import workloads
from corral.testing.api_calls import create_group, wait_for_instance, wait_for_instances
from corral.testing.ports import free_addresses

TUNES = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_instance_starting(self, spec):
        spec.env["TUNED"] = spec.group
        spec.env.pop("GONE", None)
"""
WRONG = """
from corral.sdk import DaemonModule

class Module(DaemonModule):
    async def on_instance_starting(self, spec):
        spec.env["LD_PRELOAD"] = "/evil.so"
"""

SLOW = """
import os, time
from corral.sdk import DaemonModule

class Module(DaemonModule):
    def on_load(self, ctx):
        while os.path.exists({hold!r}):
            time.sleep(0.01)
"""


async def test_what_modules_changed_is_shown_and_survives_daemon_and_controller(cluster, scratch):
    (listen,) = free_addresses(1)
    controller = await cluster.controller(grpc__listen=listen)
    daemon = await cluster.daemon("n1", controller)
    for id, source in (("tunes", TUNES), ("wrong", WRONG)):
        await install(controller, node_archive(scratch, id, source=source))
        await wait_at_nodes(controller, id, n1=("ACTIVE", "1.0.0"))
    await create_group(controller, "lobby", workloads.silent(), env={"GONE": "1", "STAYS": "1"})
    (found,) = await wait_for_instances(controller, "lobby", 1)
    path = f"/api/v1/instances/{found['id']}"

    def tuned(item: dict) -> bool:
        said = {change["module"]: change for change in item["modules"]["changes"]}
        return (
            said.keys() == {"tunes", "wrong"}
            and (said["tunes"]["env_set"], said["tunes"]["env_removed"]) == (["TUNED"], ["GONE"])
            and said["tunes"]["dropped"] == ""
            and "LD_PRELOAD" in said["wrong"]["dropped"]
            and said["wrong"]["env_set"] == []
        )

    shown = await wait_for_instance(controller, found["id"], tuned)
    environment = pathlib.Path(f"/proc/{shown['pid']}/environ").read_bytes()
    assert b"\0TUNED=lobby\0" in environment
    assert b"GONE" not in environment
    planned = await controller.call("GET", f"{path}/plan")
    assert planned["plan"]["env"] == {"GONE": "1", "STAYS": "1"}, "the plan is as the group says"
    assert [label for label, _ in module_rows(shown["modules"])] == ["Module", "Module"]
    again = await cluster.restart(daemon)
    assert [
        r.made_by_modules.changes[0].module for r in again.app.supervision.supervisor.instances.runs()
    ] == ["tunes"]
    await controller.app.stop()
    successor = await cluster.controller(grpc__listen=listen)
    kept = await wait_for_instance(successor, found["id"], lambda item: item["state"] == "RUNNING")
    assert tuned(kept)
    assert (kept["pid"], kept["plan_hash"]) == (shown["pid"], shown["plan_hash"])


async def test_a_start_that_waits_for_modules_says_so_until_it_goes_on(cluster, scratch):
    controller = await cluster.controller()
    daemon = await cluster.daemon("n1", controller, modules__node_sync_timeout_seconds=60)
    hold = scratch / "hold"
    archive = node_archive(scratch, "slow", source=SLOW.format(hold=str(hold)), hook_ms=30_000)
    await install(controller, archive)
    await wait_at_nodes(controller, "slow", n1=("ACTIVE", "1.0.0"))
    hold.touch()
    await cluster.restart(daemon)
    await create_group(controller, "lobby", workloads.silent())
    (found,) = await wait_for_instances(controller, "lobby", 1, state="PREPARING")
    waits = "waiting for modules: slow: still starting"
    shown = await wait_for_instance(controller, found["id"], lambda item: item["reason"] == waits)
    assert shown["stage"] == "PROCESS_START"
    assert stage_text(shown) == f"PROCESS_START: {waits}"
    why = await controller.call("GET", f"/api/v1/instances/{found['id']}/why")
    assert why["summary"].endswith(waits)
    hold.unlink()
    runs = await wait_for_instance(controller, found["id"], lambda item: item["state"] == "RUNNING")
    assert (runs["reason"], runs["stage"]) == ("", "")


async def test_who_had_the_last_word_is_shown_with_what_the_others_wanted(cluster, scratch):
    controller = await cluster.controller()
    await cluster.daemon("n1", controller)
    for id in ("a", "b"):
        source = TUNES.replace("spec.group", repr(id)).replace('"GONE", None', f'"GONE_{id.upper()}", None')
        await install(controller, node_archive(scratch, id, source=source))
        await wait_at_nodes(controller, id, n1=("ACTIVE", "1.0.0"))
    await create_group(controller, "lobby", workloads.silent(), env={"GONE_A": "1"})
    (found,) = await wait_for_instances(controller, "lobby", 1)
    shown = await wait_for_instance(
        controller, found["id"], lambda item: len(item["modules"]["changes"]) == 2
    )
    assert b"\0TUNED=b\0" in pathlib.Path(f"/proc/{shown['pid']}/environ").read_bytes()
    lost = [change["overridden"] for change in shown["modules"]["changes"]]
    assert lost == [[{"kind": "env", "name": "TUNED", "by": "b"}], []]
    assert [text for _, text in module_rows(shown["modules"])] == [
        "a 1.0.0: +env TUNED (overridden by b); -env GONE_A",
        "b 1.0.0: +env TUNED",
    ]


@pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java here")
async def test_a_real_jvm_gets_the_arguments_that_modules_want(scratch):
    node = HookedNode(scratch / "node")
    await node.open()
    try:
        jar = scratch / "waits.jar"
        with zipfile.ZipFile(jar, "w") as archive:  # it asks for a password and waits for it
            main = "Manifest-Version: 1.0\nMain-Class: sun.security.tools.keytool.Main\n"
            archive.writestr("META-INF/MANIFEST.MF", main)
        await node.install(
            "a", changes("spec.jvm_args.remove('-XX:+UseG1GC'); spec.jvm_args += ['-XX:+UseSerialGC']")
        )
        await node.install("b", changes("spec.jvm_args.append('-Dtuned=yes'); spec.args.append('-v')"))
        await node.install("c", changes("spec.jvm_args += ['-cp', '/evil']"))
        jvm = PlanJvm(jar=str(jar), args=("-XX:+UseG1GC", "-Dport=%NAME%"), heap_mb=32)
        args = ("-importpass", "-alias", "a", "-keystore", "keys")
        run = await node.start("one-1", jvm=jvm, args=args, variables={"NAME": "x"})
        assert arguments(run)[1:] == [
            *("-Xms32M", "-Xmx32M", "-Dport=x", "-XX:+UseSerialGC", "-Dtuned=yes", "-jar", str(jar)),
            *(*args, "-v"),
        ]
        await node.says("one-1", "keystore password")
        said = run.made_by_modules.changes
        assert (said[0].jvm_args_added, said[0].jvm_args_removed) == (
            ("-XX:+UseSerialGC",),
            ("-XX:+UseG1GC",),
        )
        assert (said[1].jvm_args_added, said[1].args_added) == (("-Dtuned=yes",), ("-v",))
        assert "'-cp'" in said[2].dropped
    finally:
        await node.clear()


def test_the_cli_says_which_module_did_what():
    rows = module_rows(
        {
            "changes": [
                {"module": "gc", "version": "1.0.0", "jvm_args_added": ["-Xlog:gc"], "env_set": ["A", "B"]},
                {
                    "module": "jvm",
                    "jvm_args_added": ["-Dx=1", "-Dy=1"],
                    "env_removed": ["A"],
                    "overridden": [
                        {"kind": "jvm_args", "name": "-Dx=1", "by": ""},
                        {"kind": "env", "name": "A", "by": "gc"},
                    ],
                },
                {"module": "bad", "version": "2.0.0", "dropped": "it did not answer within 2 s"},
            ],
            "missing": ["late: its archive is on its way"],
        }
    )
    assert rows == [
        ("Module", "gc 1.0.0: +jvm -Xlog:gc; +env A B"),
        ("Module", "jvm: +jvm -Dx=1 (overridden by the plan) -Dy=1; -env A (overridden by gc)"),
        ("Module", "bad 2.0.0: dropped, it did not answer within 2 s"),
        ("Missing module", "late: its archive is on its way"),
    ]
    assert module_rows({}) == []
