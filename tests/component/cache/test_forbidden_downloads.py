"""Where downloads may not lead, with real names, addresses and connections: see `public_network`."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys
import urllib.parse

import pytest
from public_network import ADDRESSES, PUBLIC

ALLOWED = (
    f"http://{PUBLIC}/x",
    "http://public.example/x",
    f"http://public.example/to?http://{PUBLIC}/x",
    "http://mixed.example/x",
    "http://rebound.example/x",
)
FORBIDDEN = (
    *(f"http://[{each}]/x" if ":" in each else f"http://{each}/x" for each in ADDRESSES if each != PUBLIC),
    *(
        f"http://{host}/x"
        for host in (
            *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001"),
            *("0", "0.0.0.0", "localhost", "LOCALHOST.", "private.example"),
            *("[::]", "[::1]", "[::ffff:10.9.9.9]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[fe80::1%lo]"),
            *("224.0.0.1", "255.255.255.255", "[ff02::1]", f"{PUBLIC}@10.9.9.9", f"{PUBLIC}\\@10.9.9.9"),
        )
    ),
)
REDIRECTED = tuple(f"http://{PUBLIC}/to?{urllib.parse.quote(url)}" for url in FORBIDDEN)
FURTHER = {
    f"http://{PUBLIC}/to?http://public.example/to?http://10.9.9.9/x": [PUBLIC, PUBLIC],
    "http://rebound-1.example/to?http://rebound-1.example/x": [PUBLIC],
}
"""With the connections before the refusal."""

pytestmark = pytest.mark.trap("T33")


@pytest.fixture(scope="module")
def outcomes():
    if os.geteuid() != 0:
        pytest.skip("only root can make a network of its own")
    for program in ("unshare", "ip"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed; see tools/install_test_programs.sh")
    network = ["unshare", "--net", "--mount"]
    if subprocess.run([*network, "true"], capture_output=True).returncode:
        pytest.skip("namespaces cannot be made here")
    ended = subprocess.run(
        [*network, sys.executable, pathlib.Path(__file__).with_name("public_network.py")],
        input=json.dumps([*ALLOWED, *FORBIDDEN, *REDIRECTED, *FURTHER]),
        capture_output=True,
        text=True,
        timeout=50,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def results(outcomes: dict, urls: tuple[str, ...]) -> dict[str, tuple[str, list[str]]]:
    """By URL: what it led to, and the addresses at which it connected."""
    found = {url: (outcome.partition(":")[0], met) for url, (outcome, met) in outcomes["found"].items()}
    return {url: found[url] for url in urls}


def test_a_download_connects_to_public_addresses_alone(outcomes):
    """Also of a name that has others, and of one that has another one a moment later: it is looked up once."""
    assert results(outcomes, ALLOWED) == {
        url: ("fetched", [PUBLIC] * (2 if "/to?" in url else 1)) for url in ALLOWED
    }
    assert outcomes["asked"][:4] == ["public", "public", "mixed", "rebound"]


def test_no_forbidden_address_is_connected_to_however_it_is_spelled(outcomes):
    assert results(outcomes, FORBIDDEN) == dict.fromkeys(FORBIDDEN, ("ARTIFACT_REFUSED", []))


def test_no_redirect_leads_to_a_forbidden_address(outcomes):
    assert results(outcomes, REDIRECTED) == dict.fromkeys(REDIRECTED, ("ARTIFACT_REFUSED", [PUBLIC]))
    assert results(outcomes, tuple(FURTHER)) == {
        url: ("ARTIFACT_REFUSED", met) for url, met in FURTHER.items()
    }


def test_names_whose_servers_do_not_answer_hold_up_no_other_name(outcomes):
    assert outcomes["beside"] == "fetched"
