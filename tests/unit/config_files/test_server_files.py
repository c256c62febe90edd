"""Files as servers ship them: whatever is set, wherever, the file says it, and only that place changes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from config_documents import same, with_value

from corral.daemon.config_files import json_text, properties, toml_text, yaml_text

BUKKIT = """\
# This is the main configuration file for Bukkit.

settings:
  allow-end: true
  shutdown-message: Server closed
  # a comment inside
  minimum-api: none

spawn-limits:
    monsters: 70   # deep

    # the end of the limits
aliases: &now now-in-commands.yml
copy: *now
groups:
- name: admin # first
  permissions:
    - '*'
    - "a.b"
  inheritance: [default,
     mod]   # over two lines
-
  name: 'default'
  nested: [[1], {a: b}]
motd: |
  &aWelcome
    indented # no comment

  last
# behind the text
message: "&c over two
  lines #no comment" # behind it
folded: >+
  aaa
  bbb

plain: this goes
  on # and ends
empty:
nulls: ~
"quoted key": 'it''s'
unicode: "über §a 😀"  # ü
no-map: {}
last:
  deep:
    er: 1
    # dangling

# the end
"""
VELOCITY = """\
# Config version. Do not change this
config-version = "2.7"

# Where the proxy listens
bind = "0.0.0.0:25565"
show-max-players = 0x1F4 # five hundred

[servers]
# Each key represents the server's name
lobby = "127.0.0.1:30066"
factions = '127.0.0.1:30067'

# In this order
try = [
    "lobby", # first
    "factions",
]

[forced-hosts]
# Hosts
"lobby.example.com" = ["lobby"]

[query] # the query
enabled = false
map = \"\"\"
two
lines\"\"\"
since = 1979-05-27T07:32:00Z
a.b.c = 1 # with dots
"""
OPS = """\
[
\t{
\t\t"uuid": "069a79f4",
\t\t"name": "Nötch",
\t\t"level": 4,
\t\t"tags": []
\t}
]
"""
SERVER = """\
#Minecraft server properties
#Mon Jan 01 00:00:00 UTC 2024
enable-jmx-monitoring=false
motd=\\u00A7aHello \\
    World\\!
server-port : 25565
level-name world
generator-settings={"layers"\\:1}
server-ip=
"""
VALUES = [7, "x: y # z", "two\nlines\n", "yes", [1, "b", []], {"a": {"b": [{"c": 2}]}}, {}, "§ü😀 'q' \\"]
OF_SEVERAL_LINES = ["two\nlines\n", {"a": {"b": [{"c": 2}]}}]
"""What ends lines in a file that ends its own in another way."""


def as_shipped(text: str) -> list[Any]:
    return [
        pytest.param(text.encode(), id="lf"),
        pytest.param(text.replace("\n", "\r\n").encode(), id="crlf"),
        pytest.param(b"\xef\xbb\xbf" + text.encode(), id="bom"),
        pytest.param(text.rstrip("\n").encode(), id="open"),
    ]


def places_in(found: Any, steps: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every value, and a new one in every map and list."""
    if steps:
        yield steps
    if isinstance(found, dict | list):
        entries = found.items() if isinstance(found, dict) else enumerate(found)
        for key, value in entries:
            yield from places_in(value, (*steps, str(key)))
        yield (*steps, "brand-new" if isinstance(found, dict) else str(len(found)))


def set_everywhere(
    text: bytes, read: Callable[[str], Any], put: Callable[..., bytes], *, skip: tuple[str, ...] = ()
) -> None:
    before = read(text.decode("utf-8-sig"))
    plain = text.endswith(b"\n") and not text.startswith(b"\xef\xbb\xbf") and b"\r\n" not in text
    values = VALUES if plain else OF_SEVERAL_LINES
    remarks = [line for line in text.splitlines() if line.lstrip().startswith(b"#")]
    for steps in places_in(before):
        for value in values if steps[0] not in skip else ():
            outcome = put(text, steps, value, create=True)
            found = read(outcome.decode("utf-8-sig"))
            assert same(found, with_value(before, steps, value)), (steps, outcome)
            assert outcome.startswith(b"\xef\xbb\xbf") is text.startswith(b"\xef\xbb\xbf")
            if b"\r\n" in text:
                assert outcome.count(b"\n") == outcome.count(b"\r\n"), (steps, outcome)
            if len(steps) > 1:  # the comments of a whole section go with it
                assert [line for line in outcome.splitlines() if line in remarks] == remarks, (steps, outcome)


@pytest.mark.parametrize("text", as_shipped(BUKKIT))
def test_a_bukkit_yaml(text):
    def read(content: str) -> Any:
        return yaml.load(content, Loader=yaml.CSafeLoader)

    set_everywhere(text, read, yaml_text.put, skip=("aliases", "last", "copy"))


@pytest.mark.parametrize("text", as_shipped(VELOCITY))
def test_a_velocity_toml(text):
    set_everywhere(text, tomllib.loads, toml_text.put)


@pytest.mark.parametrize("text", as_shipped(OPS))
def test_an_ops_json(text):
    set_everywhere(text, json.loads, json_text.put)


@pytest.mark.parametrize("text", as_shipped(SERVER))
def test_a_server_properties(text):
    before = properties.get(text)
    for key in (*before, "brand-new", "with space:"):
        for value in (7, "x: y = # z", " two\nlines\n", "", "§ü😀 \\", True):
            outcome = properties.put(text, key, value, create=True)
            written = "true" if value is True else str(value)
            assert properties.get(outcome) == before | {key: written}
            kept = [line for line in outcome.splitlines() if line in text.splitlines()]
            assert len(kept) >= len(text.splitlines()) - 2
            assert outcome.startswith(text[:4])
            if b"\r\n" in text:
                assert outcome.count(b"\n") == outcome.count(b"\r\n")
