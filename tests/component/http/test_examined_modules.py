"""Install an archive that was examined before, by its digest: the same bytes, uploaded once."""

from __future__ import annotations

import hashlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from http_rig import Rig, http_rig
from module_archives import module_zip
from module_source import ROUTED
from test_module_routes import error

from corral.controller.modules.examined_archives import KEPT_SECONDS
from corral.domain.permissions import Role

MODULES = "/api/v1/modules"


@pytest.fixture
async def rig(data: pathlib.Path) -> AsyncIterator[Rig]:
    async with http_rig(data) as made:
        yield made


def archive(version: str = "1.0.0") -> bytes:
    return module_zip("routed", source=ROUTED, name="Routed", version=version)


async def examine(client: httpx.AsyncClient, content: bytes, **query: str) -> dict[str, Any]:
    answer = await client.post(
        MODULES, params={"dry_run": "true", **query}, files={"file": ("m.zip", content, "application/zip")}
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    assert found["sha256"] == hashlib.sha256(content).hexdigest()
    return found


async def install(client: httpx.AsyncClient, sha256: str, headers: Any = None, **body: Any) -> httpx.Response:
    return await client.post(MODULES, json={"sha256": sha256, **body}, headers=headers)


async def test_an_examined_archive_is_installed_by_its_digest(rig: Rig, client: httpx.AsyncClient) -> None:
    examined = await examine(client, archive())
    assert examined["ok"]
    assert examined["expires_at"] is not None
    assert rig.state.modules.find("routed") is None
    answer = await install(client, examined["sha256"])
    assert answer.status_code == 201, answer.text
    assert (answer.json()["phase"], answer.json()["sha256"]) == ("ACTIVE", examined["sha256"])
    assert [each["subject"] for each in await rig.audits("modules.install")] == ["routed"]
    assert len(rig.modules.examined) == 0, "what is installed is not kept twice"
    assert list(rig.modules.uploads.iterdir()) == []
    assert error(await install(client, examined["sha256"])) == (404, "NOT_FOUND")


async def test_the_digest_opens_nothing_to_another_caller_and_after_its_time(
    rig: Rig, client: httpx.AsyncClient
) -> None:
    examined = await examine(client, archive())
    _, other = await rig.token(Role.ADMIN)
    async with rig.client(other) as stranger:
        refused = await install(stranger, examined["sha256"])
    assert error(refused) == (404, "NOT_FOUND")
    assert "upload it again" in refused.json()["error"]["hint"]
    _, operator = await rig.token(Role.OPERATOR)
    async with rig.client(operator) as lesser:
        assert error(await install(lesser, examined["sha256"])) == (403, "FORBIDDEN")
    rig.clock.elapsed += KEPT_SECONDS + 1
    assert error(await install(client, examined["sha256"])) == (404, "NOT_FOUND")
    assert rig.state.modules.find("routed") is None


async def test_the_options_of_the_install_count_and_it_can_be_examined_again(
    rig: Rig, client: httpx.AsyncClient
) -> None:
    await rig.install(archive("2.0.0"))
    older = await examine(client, archive("1.0.0"))
    assert (older["ok"], older["action"]) == (False, "downgrade")
    refused = await install(client, older["sha256"])
    assert refused.status_code == 409
    body = {"sha256": older["sha256"]}
    again = await client.post(MODULES, params={"dry_run": "true", "allow_downgrade": "true"}, json=body)
    assert again.json()["ok"], again.text
    done = await client.post(MODULES, params={"allow_downgrade": "true"}, json=body)
    assert (done.status_code, done.json()["outcome"]) == (200, "downgraded")


async def test_an_idempotency_key_covers_an_install_by_digest(rig: Rig, client: httpx.AsyncClient) -> None:
    examined = await examine(client, archive())
    key = {"Idempotency-Key": "once"}
    first = await install(client, examined["sha256"], headers=key)
    second = await install(client, examined["sha256"], headers=key)
    assert (first.status_code, second.status_code) == (201, 201)
    assert second.headers["idempotency-replayed"] == "true"
    assert first.json() == second.json()


async def test_bytes_that_changed_on_the_disk_are_not_installed(rig: Rig, client: httpx.AsyncClient) -> None:
    examined = await examine(client, archive())
    (kept,) = rig.modules.uploads.iterdir()
    kept.write_bytes(archive("9.9.9"))
    refused = await install(client, examined["sha256"])
    assert error(refused) == (422, "ARCHIVE_INVALID")
    assert rig.state.modules.find("routed") is None


NO_REFERENCES = [
    ({}, "MISSING_FIELD"),
    ({"sha256": "x"}, "INVALID_FIELD"),
    ({"sha256": "A" * 64}, "INVALID_FIELD"),
    ({"sha256": "a" * 64, "file": "x"}, "UNKNOWN_FIELD"),
    ({"sha256": "a" * 64, "settings": []}, "INVALID_FIELD"),
    ({"sha256": "a" * 64, "settings": {"a": "b" * 300_000}}, "BODY_TOO_LARGE"),
    ({"sha256": "a" * 64}, "NOT_FOUND"),
]


async def test_a_reference_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    for body, code in NO_REFERENCES:
        assert error(await client.post(MODULES, json=body))[1] == code, str(body)[:100]


async def test_an_archive_that_cannot_be_read_is_not_kept(rig: Rig, client: httpx.AsyncClient) -> None:
    answer = await client.post(
        MODULES, params={"dry_run": "true"}, files={"file": ("m.zip", b"no archive", "application/zip")}
    )
    assert answer.status_code >= 400
    assert len(rig.modules.examined) == 0
    assert list(rig.modules.uploads.iterdir()) == []
