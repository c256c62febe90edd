"""The guide's own commands, run with openssl, and the configuration it shows, opened."""

from __future__ import annotations

import pathlib
import re
import shutil
import subprocess

import msgspec
import pytest
import yaml

from corral.signing import sidecar_beside
from corral.system.config_sections import SigningSection

GUIDE = pathlib.Path(__file__).parents[3] / "docs" / "guides" / "sign-modules.md"
RSA = "openssl genrsa -out module-signing.key 3072"
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def section(title):
    return GUIDE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(text):
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def configured(text, directory):
    """The block that the guide shows, with its files where the commands put them."""
    shown = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1].replace("/etc/corral", str(directory))
    return msgspec.convert(yaml.safe_load(shown)["modules"]["signing"], SigningSection)


def run(command, directory):
    done = subprocess.run(["bash", "-ec", command], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def judged(open_desk, archive, wanted):
    desk = open_desk(
        policy=wanted.rekor.policy,
        **{name: getattr(wanted, name) for name in wanted.__struct_fields__ if name != "rekor"},
    )
    sidecar = sidecar_beside(archive)
    return desk.judge(archive, sidecar.content, kind=sidecar.kind)


@pytest.mark.parametrize("kind", ["P-256", "RSA"])
def test_a_key_as_the_guide_makes_it_signs_what_the_guide_accepts(archive, tmp_path, open_desk, kind):
    text = section("A key")
    make, sign, name = commands(text)
    if kind == "RSA":
        assert RSA in text
        make = "\n".join([RSA, *make.splitlines()[1:]])
    run(make, tmp_path)
    run(sign, tmp_path)
    facts = judged(open_desk, archive, configured(text, tmp_path))
    assert facts.kind == "sig"
    assert facts.key_sha256 in run(name, tmp_path)


def test_an_authority_as_the_guide_makes_it_issues_what_the_guide_accepts(archive, tmp_path, open_desk):
    text = section("An authority of your own")
    for command in commands(text):
        run(command, tmp_path)
    facts = judged(open_desk, archive, configured(text, tmp_path))
    assert (facts.kind, facts.identity) == ("cosign-bundle", "dev@example.org")


def test_the_configuration_for_sigstore_can_be_opened(trust_house, tmp_path, open_desk):
    wanted = configured(section("Sigstore"), tmp_path)
    trust_house.write_trusted_root(tmp_path / "trusted_root.json")
    open_desk(trust_root=wanted.trust_root, identities=wanted.identities, required=wanted.required)
