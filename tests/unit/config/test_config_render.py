"""`--print-config`: every key, its meaning, its source, and the way back."""

from __future__ import annotations

import pathlib
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.system.config import load_controller, load_daemon, render
from corral.system.config_keys import keys_of
from corral.system.controller_config import ControllerConfig


def test_every_key_stands_there_with_description_and_source() -> None:
    env = {"CORRAL_LOG_LEVEL": "ERROR"}
    config, sources = load_controller(None, env, {"http.listen": "[::1]:80"})
    text = render(config, sources)
    for key in keys_of(ControllerConfig).values():
        assert f"# {key.description}\n" in text
    assert '# from: flag\n  listen: "[::1]:80"\n' in text
    assert '# from: environment CORRAL_LOG_LEVEL\n  level: "ERROR"\n' in text


def test_a_source_with_a_line_break_cannot_leave_its_comment() -> None:
    config, sources = load_controller(None, {}, {})
    text = render(config, {**sources, "data": "file a\nstore: {}:1"})
    assert "# from: file a store: {}:1\n" in text


def test_a_password_can_be_hidden() -> None:
    config, sources = load_controller(None, {}, {"store.url": "postgresql://me:hush@db/x"})
    assert "hush" in render(config, sources)
    masked = render(config, sources, mask=True)
    assert "hush" not in masked
    assert "postgresql://me:***@db/x" in masked


@pytest.mark.system
@given(
    seconds=st.floats(min_value=0.00001, max_value=5, allow_nan=False),
    size=st.integers(min_value=1024, max_value=2**40),
    enabled=st.booleans(),
    networks=st.lists(st.sampled_from(["10.0.0.0/8", "::1/128", "0.0.0.0/0"])),
    data=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).map(
        lambda text: "/" + text
    ),
)
def test_a_printed_controller_configuration_loads_to_the_same(
    seconds: float, size: int, enabled: bool, networks: list[str], data: str
) -> None:
    flags = {
        "store.commit_wait_seconds": seconds,
        "http.body_limit_bytes": size,
        "bootstrap.enabled": enabled,
        "metrics.scrape_networks": networks,
        "data": pathlib.Path(data),
    }
    config, sources = load_controller(None, {}, flags)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8", newline="") as file:
        file.write(render(config, sources))
        file.flush()
        assert load_controller(pathlib.Path(file.name), {}, {})[0] == config


@given(
    labels=st.dictionaries(
        st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._/-]{0,18}[A-Za-z0-9])?", fullmatch=True),
        st.text(max_size=20).filter(str.isprintable),
        max_size=4,
    ),
    controllers=st.lists(st.sampled_from(["a:1", "[::1]:80", "h.example:65535"]), max_size=3),
)
def test_a_printed_daemon_configuration_loads_to_the_same(
    labels: dict[str, str], controllers: list[str]
) -> None:
    config, sources = load_daemon(None, {}, {"node.labels": labels, "controllers": controllers})
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(render(config, sources))
        file.flush()
        assert load_daemon(pathlib.Path(file.name), {}, {})[0] == config
