"""The units that ship: what they name is there."""

from __future__ import annotations

import pathlib
import re

UNITS = pathlib.Path(__file__).parents[3] / "packaging" / "systemd"


def test_every_user_that_a_unit_names_is_made_by_the_sysusers_file() -> None:
    made = set(re.findall(r"^u (\S+)", (UNITS / "corral.sysusers.conf").read_text(), re.MULTILINE))
    named = {
        user
        for unit in UNITS.glob("*.service")
        for user in re.findall(
            r"^(?:User=|Environment=CORRAL_MODULES_RUN_AS=)(\S+)", unit.read_text(), re.MULTILINE
        )
    }
    assert named == {"corral", "corral-mod"}
    assert named <= made


def test_a_unit_without_a_user_of_its_own_gives_modules_one() -> None:
    for unit in UNITS.glob("*.service"):
        text = unit.read_text()
        assert "\nUser=" in text or "\nEnvironment=CORRAL_MODULES_RUN_AS=" in text, unit.name
