"""`corral audit`: list with filters, export, and verification against a real controller and without any."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import pathlib
import subprocess
from collections.abc import Callable

import pytest

from corral.domain.audit_chain import ChainedEntry, ChainPoint, ChainState, entry_hash
from corral.domain.audit_export import ExportWriter
from corral.testing.cluster import LocalCluster

Corral = Callable[..., subprocess.CompletedProcess[str]]


def test_verify_says_which_entries_retention_removed(tmp_path: pathlib.Path, corral: Corral) -> None:
    at, gone = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), ChainPoint(number=4, hash=b"4" * 32)
    after = {"through": 4, "hash": gone.hash.hex(), "entries": 4}
    body = json.dumps({"actor": "system", "action": "audit.remove", "after": after}).encode()
    hash = entry_hash(gone.hash, 5, at, body)
    writer, chain = ExportWriter(), ChainState(first=1, head=ChainPoint(number=5, hash=hash), removed=gone)
    begun = writer.begin(cluster="c-1", at=at, since=None, until=None, chain=chain, after=gone)
    added = writer.add(ChainedEntry(number=5, at=at, body=body, previous=gone.hash, hash=hash))
    file = tmp_path / "audit.ndjson"
    file.write_bytes(begun + added + writer.finish())
    said = (
        f"intact: 1 entry; retention removed up to 4, as entry 5 records%s; entry 5 has hash {hash.hex()}\n"
    )
    assert corral("audit", "verify", str(file)).stdout == said % " (not covered by an expected hash)"
    assert corral("audit", "verify", str(file), "--expect", hash.hex()).stdout == said % ""
    shown = json.loads(corral("audit", "verify", str(file), "-o", "json").stdout)
    assert (shown["removed"], shown["removal"]) == (4, 5)


@pytest.mark.system
async def test_the_audit_is_listed_exported_and_verified(tmp_path: pathlib.Path, corral: Corral) -> None:
    async with LocalCluster(tmp_path / "cluster") as cluster:
        api = await cluster.controller()

        async def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
            pointed = {"CORRAL_URL": api.url, "CORRAL_TOKEN": api.admin_token}
            done = await asyncio.to_thread(corral, *arguments, **pointed)
            assert done.returncode == code, done.stderr
            return done

        for name in ("one", "two"):
            await run("token", "create", name, "--role", "VIEWER")
        listed = json.loads((await run("audit", "list", "--action", "tokens.", "-o", "json")).stdout)
        listed = listed if isinstance(listed, list) else listed["items"]
        assert {entry["action"] for entry in listed} == {"tokens.create"}
        verified = json.loads((await run("audit", "verify", "-o", "json")).stdout)
        assert verified["intact"]
        assert len(verified["hash"]) == 64

        fake = json.loads((await run("token", "create", "host:root", "--role", "ADMIN", "-o", "json")).stdout)
        pointed = {"CORRAL_URL": api.url, "CORRAL_TOKEN": fake["token"]}
        assert (
            await asyncio.to_thread(corral, "role", "create", "r", "--permission", "self.read", **pointed)
        ).returncode == 0
        shown = (await run("audit", "list", "--action", "roles.")).stdout.splitlines()[1]
        assert f"token:{fake['id']}  host:root" in shown
        for actor in (f"token:{fake['id']}", fake["id"], "host:root"):
            found = await run("audit", "list", "--action", "roles.", "--actor", actor, "-o", "json")
            assert [entry["subject"] for entry in json.loads(found.stdout)["items"]] == ["r"], actor
        found = await run("audit", "list", "--action", "roles.", "--actor", "token", "-o", "json")
        assert json.loads(found.stdout)["items"] == []

        file = tmp_path / "audit.ndjson"
        await run("audit", "export", "--since", "7d", str(file))
        lines = (await run("audit", "export")).stdout.splitlines()
        assert json.loads(lines[-1])["end"] is True
        assert "intact" in (await run("audit", "verify", "--expect", verified["hash"])).stdout
        refused = await run("audit", "verify", "--expect", "0" * 64, code=1)
        assert "no entry has the expected hash" in refused.stderr
        assert "64 digits" in (await run("audit", "verify", "--expect", "zz", code=2)).stderr

    # Without a controller.
    alone = {"CORRAL_URL": None, "CORRAL_TOKEN": None}
    done = await asyncio.to_thread(
        corral, "audit", "verify", str(file), "--expect", verified["hash"], **alone
    )
    assert done.returncode == 0, done.stderr
    changed = file.read_text().replace('"tokens.create"', '"tokens.delete"', 1)
    file.write_text(changed)
    number = next(json.loads(line)["number"] for line in changed.splitlines() if "tokens.delete" in line)
    done = await asyncio.to_thread(corral, "audit", "verify", str(file), **alone)
    assert done.returncode == 1
    assert f"entry {number}: its content does not have its hash" in done.stderr
    done = await asyncio.to_thread(corral, "audit", "verify", "-", input=changed, **alone)
    assert done.returncode == 1
    done = await asyncio.to_thread(corral, "audit", "verify", str(tmp_path / "none"), **alone)
    assert (done.returncode, "cannot read" in done.stderr) == (2, True)
