"""Files that modules install into instances: from an archive over a real controller and node to a directory."""

from __future__ import annotations

import os
import pathlib
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
from extension_site import PAPER, Site, archive, extension, variant
from module_steps import install

from corral.cli.failure import CommandRefused
from corral.controller.modules.installer import InstallOutcome
from corral.errors import Code, Rejected
from corral.signing import Sidecar, new_key, sign_keyed
from corral.testing.api_calls import instances_of, wait_for_instance, wait_for_instances
from corral.testing.cluster import LocalCluster
from corral.testing.postgres_server import PostgresServer
from corral.testing.waiting import eventually

PLUGIN = "plugins/stats.jar"
ASKED = [{"id": "plugin", "module": "stats"}]
AT_ONCE = {"attempts": 5, "delay_ms": 1, "max_delay_ms": 1}


@pytest.fixture
def site(cluster: LocalCluster, scratch: pathlib.Path) -> Site:
    return Site(cluster, scratch)


async def reason_of(site: Site, group: str) -> str:
    return str((await site.controller.call("GET", f"/api/v1/groups/{group}"))["status"]["reason"])


async def start_of(site: Site, id: str) -> Any:
    """The decision to start it."""
    why = await site.controller.call("GET", f"/api/v1/instances/{id}/why")
    (start,) = [each for each in why["decisions"] if "plan" in each["inputs"]]
    return start


async def test_a_module_that_keeps_groups_from_being_started_says_so_before_and_when_it_is_installed(
    site: Site,
) -> None:
    await site.begin(node=False)
    await site.install_stats(b"one")
    await site.group("lobby", artifact=PAPER, min=0)
    await site.group("other", min=0)
    rival = extension("plugin", variant("paper", b"another", "paper"))  # at the same place

    async def spoiled(place: str, **options: str) -> list[str]:
        answer = await site.install(rival, files={"files/paper.jar": b"another"}, id="rival", **options)
        return [line for line in answer[place] if "could not be started" in line]

    (warned,) = await spoiled("warnings", dry_run="true")
    assert warned.startswith("group 'lobby' could not be started any more: EXTENSION_CONFLICT: ")
    assert await spoiled("steps", activate="false") == []  # held back, it gives nothing to anybody
    await site.uninstall("rival")
    assert await spoiled("steps") == [warned]
    newer = await site.install(rival, files={"files/paper.jar": b"another"}, id="rival", version="1.0.1")
    assert not any("could not be started" in line for line in newer["steps"])  # that is so already


async def test_an_upgrade_without_what_a_group_asks_for_says_so(site: Site) -> None:
    await site.begin(node=False)
    await site.install_stats(b"one", activation="requested")
    await site.group("lobby", artifact=PAPER, extensions=ASKED, min=0)
    upgraded = await site.install(files={}, version="1.0.1")
    assert any(
        "group 'lobby' could not be started any more: EXTENSION_NOT_FOUND" in line
        for line in upgraded["steps"]
    )


async def test_what_goes_to_every_group_lies_where_the_manifest_says_where_a_variant_fits(site: Site) -> None:
    await site.begin()
    proxy, paper = b"for velocity", os.urandom(300_000)
    module = await site.install(
        extension("plugin", variant("velocity", proxy, "velocity"), variant("paper", paper, "paper")),
        files={"files/velocity.jar": proxy, "files/paper.jar": paper},
    )
    assert [(each["id"], each["activation"]) for each in module["extensions"]] == [("plugin", "always")]
    assert [each["id"] for each in module["extensions"][0]["variants"]] == ["velocity", "paper"]
    lobby = await site.running("lobby", artifact=PAPER)
    other = await site.running("other")
    assert site.files(lobby) == {"server.jar": b"a program", PLUGIN: paper}
    assert site.files(other) == {}
    (planned,) = (await site.plan(lobby))["extensions"]
    assert (planned["module"], planned["id"], planned["variant"]) == ("stats", "plugin", "paper")
    assert (await start_of(site, "lobby-1"))["inputs"]["extensions"] == "stats/plugin"
    rejected = (await start_of(site, "other-1"))["rejected"]
    assert [each["subject"] for each in rejected] == ["extension/stats/plugin"]


async def test_what_is_to_be_requested_goes_to_the_group_that_names_it(site: Site) -> None:
    await site.begin()
    with pytest.raises(CommandRefused, match="which is not installed") as caught:
        await site.group("lobby", artifact=PAPER, extensions=ASKED)
    assert caught.value.code == Code.EXTENSION_NOT_FOUND.name
    await site.install_stats(b"plugin", activation="requested")
    assert PLUGIN not in site.files(await site.running("other", artifact=PAPER))
    assert site.files(await site.running("lobby", artifact=PAPER, extensions=ASKED))[PLUGIN] == b"plugin"
    with pytest.raises(CommandRefused, match="fits a program that is not of the catalog"):
        await site.group("third", extensions=ASKED)


async def test_another_version_or_none_is_for_new_starts_only(site: Site) -> None:
    await site.begin()
    await site.install_stats(b"first")
    lobby = await site.running("lobby", artifact=PAPER, restart=AT_ONCE)
    await site.install_stats(b"second", version="1.1.0")
    assert (await site.plan(lobby))["extensions"][0]["artifact"]["sha256"]
    assert site.files(lobby)[PLUGIN] == b"first"
    lobby = await site.restarted(lobby)
    assert site.files(lobby)[PLUGIN] == b"second"
    await site.act("deactivate")
    assert site.files(lobby)[PLUGIN] == b"second"
    os.kill(lobby["pid"], signal.SIGKILL)  # the node starts it again, by the plan it has
    again = await wait_for_instance(
        site.controller, "lobby-1", lambda now: now["restarts"] == 1 and now["state"] == "RUNNING"
    )
    assert (again["plan_hash"], site.files(again)[PLUGIN]) == (lobby["plan_hash"], b"second")
    lobby = await site.restarted(again)
    assert site.files(lobby) == {"server.jar": b"a program"}
    await site.act("activate")
    assert site.files(await site.restarted(lobby))[PLUGIN] == b"second"


async def test_a_static_directory_takes_the_new_version_and_keeps_the_file_of_a_module_that_went(
    site: Site,
) -> None:
    await site.begin()
    await site.install_stats(b"first")
    lobby = await site.running("lobby", artifact=PAPER, static=True)
    assert site.files(lobby, kept="static")[PLUGIN] == b"first"
    await site.install_stats(b"second", version="1.1.0")
    lobby = await site.restarted(lobby)
    assert site.files(lobby, kept="static")[PLUGIN] == b"second"
    await site.uninstall()
    lobby = await site.restarted(lobby)
    assert (await site.plan(lobby))["extensions"] == []
    assert site.files(lobby, kept="static")[PLUGIN] == b"second"


async def test_a_module_goes_while_a_group_asks_for_its_extension_and_mends_it_when_it_is_back(
    site: Site,
) -> None:
    await site.begin()
    await site.install_stats(b"plugin", activation="requested")
    lobby = await site.running("lobby", artifact=PAPER, extensions=ASKED)
    await site.uninstall()
    assert site.files(lobby)[PLUGIN] == b"plugin"
    assert site.has_blob(b"plugin")  # a stored plan names it
    assert await reason_of(site, "lobby") == ""
    await site.controller.call("PATCH", "/api/v1/groups/lobby", {"min": 2})

    async def short() -> bool:
        return (await reason_of(site, "lobby")).startswith("EXTENSION_NOT_FOUND: extension 'plugin'")

    await eventually(short)
    with pytest.raises(CommandRefused, match="group 'lobby' cannot be started"):
        await site.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    await site.install_stats(b"plugin", activation="requested")
    both = await wait_for_instances(site.controller, "lobby", 2)
    assert [site.files(each)[PLUGIN] for each in both] == [b"plugin", b"plugin"]


async def test_ties_and_extensions_that_rule_each_other_out_are_refused_with_their_modules(
    site: Site,
) -> None:
    await site.begin(node=False)
    content = b"same"
    await site.install(
        extension("plugin", variant("a", content, "paper"), variant("b", content, "paper")),
        files={"files/a.jar": content, "files/b.jar": content},
    )
    with pytest.raises(
        CommandRefused, match="variants 'a' and 'b' of extension 'plugin' of module 'stats'"
    ) as caught:
        await site.group("lobby", artifact=PAPER)
    assert caught.value.code == Code.EXTENSION_CONFLICT.name
    await site.group("lobby", artifact=PAPER, extensions=[{**ASKED[0], "variant": "b"}], min=0)
    await site.install(
        extension("rival", variant("any", content, installPath="rival.jar"), conflicts=["plugin"]),
        files={"files/any.jar": content},
        id="rivals",
    )
    with pytest.raises(CommandRefused) as caught:
        await site.controller.call("POST", "/api/v1/instances", {"group": "lobby"})
    assert caught.value.code == Code.EXTENSION_CONFLICT.name
    for word in ("'plugin'", "'rival'", "module 'stats'", "module 'rivals'"):
        assert word in str(caught.value)


REFUSED = [
    ({"sha256": "0" * 64}, "extensions[0].variants[0].sha256: the file's digest is"),
    ({"file": "files/none.jar"}, "extensions[0].variants[0].file: the archive has no file"),
    ({"file": "../paper.jar"}, "extensions[0].variants[0].file: path '../paper.jar' is refused"),
    ({"installPath": "../../etc/x"}, "extensions[0].variants[0].installPath: path"),
    ({"installPath": "/etc/x"}, "extensions[0].variants[0].installPath: path '/etc/x' is refused"),
    ({"installPath": "plugins/"}, "extensions[0].variants[0].installPath: path 'plugins/' is refused"),
]


@pytest.mark.trap("T26")
async def test_a_file_that_is_another_or_leads_elsewhere_is_refused_at_the_install(site: Site) -> None:
    await site.begin(node=False)
    for fields, told in REFUSED:
        content = b"plugin"
        with pytest.raises(Rejected) as caught:
            await site.install(
                extension("plugin", variant("paper", content, "paper", **fields)),
                files={"files/paper.jar": content},
            )
        assert caught.value.code is Code.MANIFEST_INVALID, told
        assert told in caught.value.message, told
        assert not site.has_blob(content), told


async def test_files_that_the_store_lacks_come_out_of_their_archives_with_the_next_term(
    site: Site, cluster: LocalCluster
) -> None:
    """As with packages that were installed before files for instances were kept."""
    await site.begin(node=False)
    await site.install_stats(b"plugin")
    site.lose_blob(b"plugin")
    assert not site.has_blob(b"plugin")
    await site.controller.app.stop()
    site.controller = await cluster.controller()
    await eventually(lambda: site.has_blob(b"plugin"))
    site.daemon = await cluster.daemon("n1", site.controller)
    assert site.files(await site.running("lobby", artifact=PAPER))[PLUGIN] == b"plugin"


async def test_a_package_that_lost_its_key_takes_another_signature_with_its_files(
    cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    keys, trusted = (new_key(), new_key()), scratch / "keys.pem"
    content = b"plugin"
    plugin = extension("plugin", variant("paper", content, "paper"))
    path = archive(scratch / "archives", plugin, files={"files/paper.jar": content})
    answers = []
    for key in keys:
        trusted.write_bytes(key.public_pem)
        controller = await cluster.controller(
            modules__signing__required=True,
            modules__signing__mode="keyed",
            modules__signing__trust_root=str(trusted),
        )
        sidecar = Sidecar(kind="sig", content=sign_keyed(path, key.private_pem))
        answers.append((await install(controller, path, sidecar=sidecar)).outcome)
        await controller.app.stop()
    assert answers == [InstallOutcome.INSTALLED, InstallOutcome.SIGNATURE_UPDATED]


async def test_files_of_a_package_whose_signature_no_longer_holds_go_nowhere(
    site: Site, cluster: LocalCluster, scratch: pathlib.Path
) -> None:
    await site.begin(node=False)
    await site.install_stats(b"plugin")
    await site.group("lobby", artifact=PAPER, min=0)
    await site.controller.app.stop()
    trusted = scratch / "keys.pem"
    trusted.write_bytes(new_key().public_pem)
    site.controller = await cluster.controller(
        modules__signing__required=True,
        modules__signing__mode="keyed",
        modules__signing__trust_root=str(trusted),
    )
    site.daemon = await cluster.daemon("n1", site.controller)

    async def module() -> tuple[str, str]:
        shown = await site.controller.call("GET", "/api/v1/modules/stats")
        return shown["phase"], shown["reason"]

    async def told_why() -> bool:
        why = await site.controller.call("GET", "/api/v1/groups/lobby/why")
        return "whose signature does not hold" in str(why)

    async def is_refused() -> bool:
        return await module() == ("FAILED", "signature_refused")

    await eventually(is_refused)
    await site.controller.call("POST", "/api/v1/groups/lobby/scale", {"count": 1})
    await eventually(told_why)
    assert await instances_of(site.controller, "lobby") == []
    await site.uninstall()
    (instance,) = await wait_for_instances(site.controller, "lobby", 1)
    assert PLUGIN not in site.files(instance)


@pytest.fixture
async def store(postgres: PostgresServer) -> AsyncIterator[str]:
    async with postgres.database() as url:
        yield url


async def test_the_next_leader_has_the_files_on_postgresql(
    store: str, site: Site, cluster: LocalCluster
) -> None:
    await site.begin(node=False, name="one", store__url=store)
    await site.install_stats(b"plugin")
    key = site.controller.data / "ca" / "cluster.key"
    token = (site.controller.data / "admin.token").read_text()
    await site.controller.app.stop()
    site.controller = await cluster.controller("two", store__url=store, pki__cluster_key_file=str(key))
    await eventually(lambda: site.controller.app.role.term is not None, deadline=40)
    (site.controller.data / "admin.token").write_text(token)
    site.daemon = await cluster.daemon("n1", site.controller)
    assert site.files(await site.running("lobby", artifact=PAPER))[PLUGIN] == b"plugin"
