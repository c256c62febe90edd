"""What `corral module` tells about the files that a module installs into instances."""

from __future__ import annotations

import hashlib
import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from stand_in_controller import StandIn

Corral = Callable[..., subprocess.CompletedProcess[str]]

SHOWN: dict[str, Any] = {
    "id": "stats",
    "version": "1.0.0",
    "phase": "ACTIVE",
    "intent": "active",
    "extensions": [
        {
            "id": "stats-plugin",
            "activation": "requested",
            "conflicts": ["old-stats"],
            "variants": [
                {
                    "id": "paper",
                    "platforms": ["paper", "folia"],
                    "version_range": ">=1.20",
                    "file": "files/paper.jar",
                    "install_path": "plugins/stats.jar",
                },
                {
                    "id": "any",
                    "platforms": [],
                    "version_range": "*",
                    "file": "files/any.jar",
                    "install_path": "plugins",
                },
            ],
        }
    ],
}
TOLD = [
    "stats-plugin (requested); not together with old-stats",
    "paper: for paper, folia >=1.20, as plugins/stats.jar",
    "any: for any program *, as plugins (a file of that name, not a directory: is 'plugins/any.jar' meant?)",
]


def test_info_lists_each_extension_with_its_variants(corral: Corral, server: StandIn) -> None:
    server.answers["GET", "/api/v1/modules/stats"] = (200, SHOWN)
    shown = " ".join(corral("module", "info", "stats").stdout.split())
    for line in TOLD:
        assert line in shown


@pytest.fixture
def archive(tmp_path: pathlib.Path, corral: Corral) -> pathlib.Path:
    source = tmp_path / "stats"
    assert corral("module", "new", "stats", "--into", str(source)).returncode == 0
    (source / "files").mkdir()
    (extension,) = SHOWN["extensions"]
    variants = []
    for each in extension["variants"]:
        content = each["id"].encode()
        (source / each["file"]).write_bytes(content)
        variants.append(
            {
                "id": each["id"],
                "platforms": each["platforms"],
                "versionRange": each["version_range"],
                "file": each["file"],
                "sha256": hashlib.sha256(content).hexdigest(),
                "installPath": each["install_path"],
            }
        )
    with (source / "module.yaml").open("a") as manifest:
        manifest.write("\nextensions: " + json.dumps([{**extension, "variants": variants}]) + "\n")
    built = corral("module", "build", str(source))
    assert built.returncode == 0, built.stderr
    return next((source / "dist").iterdir())


def test_doctor_tells_what_an_archive_would_install(corral: Corral, archive: pathlib.Path) -> None:
    shown = " ".join(corral("module", "doctor", str(archive)).stdout.split())
    for line in TOLD:
        assert line in shown
    (extension,) = json.loads(corral("module", "doctor", str(archive), "-o", "json").stdout)["extensions"]
    assert (extension["id"], extension["activation"]) == ("stats-plugin", "requested")
    assert [each["install_path"] for each in extension["variants"]] == ["plugins/stats.jar", "plugins"]
