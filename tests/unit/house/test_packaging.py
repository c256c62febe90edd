"""The units that ship: what they name is there."""

from __future__ import annotations

import pathlib
import re

import pytest

from corral.cli.failure import BadConfiguration
from corral.system.config import load_controller, load_daemon

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


@pytest.mark.trap("T96")
@pytest.mark.parametrize("role", ["controller", "daemon"])
def test_the_settings_that_a_unit_names_ship_and_are_accepted(role: str) -> None:
    unit = (UNITS / f"corral-{role}.service").read_text()
    assert f"/bin/corral {role} --config /etc/corral/{role}.yaml\n" in unit
    load = {"controller": load_controller, "daemon": load_daemon}[role]
    config, sources = load(UNITS / f"{role}.yaml", {}, {})
    assert config is not None
    assert sources


@pytest.mark.trap("T96")
def test_a_unit_whose_settings_are_refused_is_not_started_again() -> None:
    for unit in UNITS.glob("*.service"):
        assert str(BadConfiguration.exit_code) in final_codes(unit)


@pytest.mark.parametrize("role", ["daemon", "controller"])
def test_what_was_ordered_to_end_is_not_started_again(role: str) -> None:
    """It ends with 0, as 'corral node shutdown' and 'corral cluster shutdown' have it end."""
    assert "0" in final_codes(UNITS / f"corral-{role}.service")


def final_codes(unit: pathlib.Path) -> list[str]:
    """The exit codes after which a unit is not started again."""
    [codes] = re.findall(r"^RestartPreventExitStatus=(.*)$", unit.read_text(), re.MULTILINE)
    return codes.split()
