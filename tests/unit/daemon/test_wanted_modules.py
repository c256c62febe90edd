"""What is wanted of a module: a later word meets an earlier one that was not carried out."""

from __future__ import annotations

from corral.daemon.modules.wanted import Settings, Wanted, WantedPackage
from corral.domain.module_phases import ModuleIntent

ONE = WantedPackage(version="1.0.0", sha256="1" * 64)
TWO = WantedPackage(version="2.0.0", sha256="2" * 64)
LOUD = Settings(values={"loud": True}, sha256="a" * 64)


def test_an_order_about_intent_keeps_the_archive_that_is_on_its_way():
    met = Wanted(intent=ModuleIntent.INACTIVE).after(Wanted(package=ONE, settings=LOUD))
    assert met == Wanted(package=ONE, settings=LOUD, intent=ModuleIntent.INACTIVE)


def test_what_shall_not_run_stops_without_waiting_for_an_archive_and_all_else_waits():
    assert Wanted(intent=ModuleIntent.PAUSED).cuts_short(ONE.sha256)
    assert not Wanted(intent=ModuleIntent.ACTIVE, settings=LOUD, recover=True).cuts_short(ONE.sha256)
    assert not Wanted(package=ONE).cuts_short(ONE.sha256)


def test_a_later_archive_takes_the_place_of_an_earlier_one():
    met = Wanted(package=TWO, intent=ModuleIntent.ACTIVE).after(Wanted(package=ONE, recover=True))
    assert met == Wanted(package=TWO, intent=ModuleIntent.ACTIVE, recover=True)
    assert met.cuts_short(ONE.sha256)


def test_the_same_archive_asked_for_again_stays_asked_for_again():
    again = WantedPackage(version="1.0.0", sha256=ONE.sha256, again=True)
    assert Wanted(package=ONE).after(Wanted(package=again)).package == again


def test_what_is_to_go_goes_whatever_was_wanted_before():
    assert Wanted(gone=True).after(Wanted(package=ONE, recover=True)) == Wanted(gone=True)
    assert Wanted(gone=True).cuts_short(ONE.sha256)


def test_only_an_archive_brings_back_what_is_to_go():
    gone = Wanted(gone=True)
    assert Wanted(intent=ModuleIntent.ACTIVE).after(gone) == gone
    assert Wanted(package=ONE).after(gone) == Wanted(package=ONE)


def test_a_reason_belongs_to_its_pause():
    paused = Wanted(intent=ModuleIntent.PAUSED, paused_reason="too loud")
    assert Wanted(reload=True).after(paused) == Wanted(
        intent=ModuleIntent.PAUSED, paused_reason="too loud", reload=True
    )
    assert Wanted(intent=ModuleIntent.ACTIVE).after(paused).paused_reason == ""
