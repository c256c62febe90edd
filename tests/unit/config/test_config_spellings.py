"""Keys of a configuration file in the two spellings people write."""

from __future__ import annotations

import pathlib

import pytest

from corral.errors import Code, Rejected
from corral.system.config import load_controller, load_daemon

HEADER = "format: corral-controller\nversion: 1\n"


def written(directory: pathlib.Path, content: str) -> pathlib.Path:
    path = directory / "corral.yaml"
    path.write_text(content)
    return path


def test_keys_may_be_written_with_humps(tmp_path: pathlib.Path) -> None:
    path = written(
        tmp_path,
        HEADER
        + "modules:\n  leakGraceSeconds: 4\n  activation:\n    waitTimeoutSeconds: 7\n"
        + "  signing:\n    trustRoot: /etc/root.pem\n    allowLegacySig: false\n"
        + "    rekor:\n      publicKey: /etc/log.pem\n  keyValue:\n    url: valkey://localhost\n",
    )
    config, sources = load_controller(path, {}, {})
    assert config.modules.leak_grace_seconds == 4
    assert config.modules.activation.wait_timeout_seconds == 7
    assert config.modules.signing.trust_root == "/etc/root.pem"
    assert config.modules.signing.allow_legacy_sig is False
    assert config.modules.signing.rekor.public_key == "/etc/log.pem"
    assert config.modules.key_value.url == "valkey://localhost"
    assert sources["modules.leak_grace_seconds"] == f"file {path}:4"


def test_both_spellings_of_one_key_are_the_key_twice(tmp_path: pathlib.Path) -> None:
    path = written(tmp_path, HEADER + "modules:\n  memory_mb: 64\n  memoryMb: 65\n")
    with pytest.raises(Rejected) as caught:
        load_controller(path, {}, {})
    assert caught.value.code is Code.INVALID_CONFIG
    assert "'modules.memoryMb' stands twice" in caught.value.message


@pytest.mark.parametrize("key", ["MemoryMb", "memory_Mb", "memory-mb", "memoryMB", "MEMORY_MB"])
def test_any_third_spelling_is_unknown(tmp_path: pathlib.Path, key: str) -> None:
    path = written(tmp_path, HEADER + f"modules:\n  {key}: 64\n")
    with pytest.raises(Rejected) as caught:
        load_controller(path, {}, {})
    assert caught.value.code is Code.INVALID_CONFIG
    assert f"unknown key 'modules.{key}'" in caught.value.message


def test_names_that_are_values_stay_as_they_are_written(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "daemon.yaml"
    path.write_text("format: corral-daemon\nversion: 1\nnode:\n  labels:\n    dataCentre: Wien\n")
    config, _ = load_daemon(path, {}, {})
    assert config.node.labels == {"dataCentre": "Wien"}
