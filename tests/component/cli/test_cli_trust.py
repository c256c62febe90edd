"""The command line and a controller with TLS: what it trusts, where that comes from, and what it says otherwise."""

from __future__ import annotations

import asyncio
import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from certificate_files import PairFiles, pem_of, self_signed

from corral.pki.keys import new_key
from corral.testing.cluster import LocalCluster, LocalController

Corral = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
async def controller(cluster: LocalCluster) -> LocalController:
    return await cluster.controller(http__tls__mode="cluster")


@pytest.fixture
def bare(home: dict[str, str], controller: LocalController) -> dict[str, Any]:
    """An environment that knows the token of the controller and nothing else."""
    return {"CORRAL_URL": None, "CORRAL_TOKEN": controller.admin_token}


def authority(controller: LocalController) -> str:
    return str(controller.data / "ca" / "authority.pem")


async def test_a_login_remembers_the_authority(
    corral: Corral, controller: LocalController, bare: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    assert controller.url.startswith("https://127.0.0.1:")
    ca = authority(controller)
    done = await asyncio.to_thread(corral, "login", controller.url, "--ca", ca, "--name", "c", **bare)
    assert done.returncode == 0, done.stderr
    listed = await asyncio.to_thread(corral, "node", "list", "-o", "json", **bare)
    assert listed.returncode == 0, listed.stderr
    shown = await asyncio.to_thread(corral, "context", "show", "c", "-o", "json", **bare)
    assert json.loads(shown.stdout)["ca_file"] == ca
    followed = await asyncio.to_thread(corral, "event", "list", **bare)
    assert followed.returncode == 0, followed.stderr


@pytest.mark.parametrize("named", ["--url", "login", "context"])
async def test_the_environment_names_the_authority(
    corral: Corral, controller: LocalController, bare: dict[str, Any], named: str
) -> None:
    trust = {**bare, "CORRAL_CA": authority(controller)}
    url = controller.url.replace("127.0.0.1", "localhost")
    if named == "--url":
        done = await asyncio.to_thread(corral, "--url", url, "node", "list", **trust)
    elif named == "login":
        done = await asyncio.to_thread(corral, "login", url, **trust)
    else:
        await asyncio.to_thread(corral, "context", "add", "c", url, **bare)
        done = await asyncio.to_thread(corral, "node", "list", **trust)
    assert done.returncode == 0, done.stderr


@pytest.mark.system
async def test_what_is_wrong_with_the_trust_is_told_with_what_to_do(
    corral: Corral, controller: LocalController, bare: dict[str, Any], tmp_path: pathlib.Path
) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing\n")
    port = controller.url.rpartition(":")[2]
    ca = authority(controller)
    cases: list[tuple[str, str | None, int, str]] = [
        (controller.url, None, 3, "--ca FILE"),
        (f"https://127.0.0.2:{port}", ca, 3, "cannot reach"),
        (controller.url, str(empty), 2, "there is no certificate in the CA file"),
        (controller.url, str(tmp_path / "none.pem"), 2, "cannot read the CA file"),
        (controller.url.replace("https", "http"), ca, 3, "if it speaks TLS, write https://"),
    ]
    for url, trusted, code, said in cases:
        done = await asyncio.to_thread(corral, "--url", url, "node", "list", **bare, CORRAL_CA=trusted)
        assert done.returncode == code
        assert said in done.stderr
        assert "Traceback" not in done.stderr


async def test_a_controller_without_tls_is_told_apart(
    corral: Corral, cluster: LocalCluster, home: dict[str, str]
) -> None:
    plain = await cluster.controller()
    assert plain.url.startswith("http://")
    url = plain.url.replace("http", "https")
    done = await asyncio.to_thread(corral, "--url", url, "node", "list", CORRAL_TOKEN="x")
    assert done.returncode == 3
    assert f"is it {plain.url}?" in done.stderr


async def test_a_certificate_of_files_is_trusted_under_its_own_name_alone(
    corral: Corral, cluster: LocalCluster, tmp_path: pathlib.Path
) -> None:
    other = await cluster.controller(http__tls__mode="files", **files_of(tmp_path, "localhost"))
    trust = {"CORRAL_TOKEN": other.admin_token, "CORRAL_CA": str(tmp_path / "server.pem")}
    url = other.url.replace("127.0.0.1", "localhost")
    good = await asyncio.to_thread(corral, "--url", url, "node", "list", **trust)
    assert good.returncode == 0, good.stderr
    done = await asyncio.to_thread(corral, "--url", other.url, "node", "list", **trust)
    assert done.returncode == 3
    assert "use a name that is in its certificate" in done.stderr


def files_of(directory: pathlib.Path, name: str) -> dict[str, str]:
    """A certificate of its own for this name."""
    pair, key = PairFiles(directory), new_key()
    pair.put(pair.certificate, self_signed(key, 1, names=[name]))
    pair.put(pair.key, pem_of(key))
    return {"http__tls__certificate": str(pair.certificate), "http__tls__key": str(pair.key)}
