"""What is wanted of a module: a later word meets an earlier one that was not carried out."""

from __future__ import annotations

import msgspec

from corral.daemon.modules.module_orders import OrderedPackage, OrderedSettings, ReceivedOrder
from corral.domain.modules.phases import ModuleIntent

ONE = OrderedPackage(version="1.0.0", sha256="1" * 64)
TWO = OrderedPackage(version="2.0.0", sha256="2" * 64)
LOUD = OrderedSettings(values={"loud": True}, sha256="a" * 64)


def test_an_order_about_intent_keeps_the_archive_that_is_on_its_way():
    met = ReceivedOrder(intent=ModuleIntent.INACTIVE).after(ReceivedOrder(package=ONE, settings=LOUD))
    assert met == ReceivedOrder(package=ONE, settings=LOUD, intent=ModuleIntent.INACTIVE)


def test_what_shall_not_run_stops_without_waiting_for_an_archive_and_all_else_waits():
    assert ReceivedOrder(intent=ModuleIntent.PAUSED).cuts_short(ONE.sha256)
    assert not ReceivedOrder(intent=ModuleIntent.ACTIVE, settings=LOUD, recover=True).cuts_short(ONE.sha256)
    assert not ReceivedOrder(package=ONE).cuts_short(ONE.sha256)


def test_a_later_archive_takes_the_place_of_an_earlier_one():
    met = ReceivedOrder(package=TWO, intent=ModuleIntent.ACTIVE).after(
        ReceivedOrder(package=ONE, recover=True)
    )
    assert met == ReceivedOrder(package=TWO, intent=ModuleIntent.ACTIVE, recover=True)
    assert met.cuts_short(ONE.sha256)


def test_the_same_archive_asked_for_again_stays_asked_for_again():
    again = OrderedPackage(version="1.0.0", sha256=ONE.sha256, again=True)
    assert ReceivedOrder(package=ONE).after(ReceivedOrder(package=again)).package == again


def test_what_is_to_go_goes_whatever_was_wanted_before():
    assert ReceivedOrder(gone=True).after(ReceivedOrder(package=ONE, recover=True)) == ReceivedOrder(
        gone=True
    )
    assert ReceivedOrder(gone=True).cuts_short(ONE.sha256)


def test_only_an_archive_brings_back_what_is_to_go():
    gone = ReceivedOrder(gone=True)
    assert ReceivedOrder(intent=ModuleIntent.ACTIVE).after(gone) == gone
    assert ReceivedOrder(package=ONE).after(gone) == ReceivedOrder(package=ONE)


def test_a_reason_belongs_to_its_pause():
    paused = ReceivedOrder(intent=ModuleIntent.PAUSED, paused_reason="too loud")
    assert ReceivedOrder(reload=True).after(paused) == ReceivedOrder(
        intent=ModuleIntent.PAUSED, paused_reason="too loud", reload=True
    )
    assert ReceivedOrder(intent=ModuleIntent.ACTIVE).after(paused).paused_reason == ""


def test_a_wish_is_beyond_what_was_carried_out_or_it_is_none():
    told = ReceivedOrder(package=TWO, recover=True, reload=True, recover_ms=5, reload_ms=6)
    later = told.beyond(recovered_ms=4, reloaded_ms=5)
    assert (later.recover, later.reload, later.package.again) == (True, True, True)
    done = told.beyond(recovered_ms=5, reloaded_ms=6)
    assert (done.recover, done.reload, done.package.again) == (False, False, False)


def test_a_wish_without_a_moment_counts_each_time_that_it_is_told():
    told = ReceivedOrder(package=msgspec.structs.replace(ONE, again=True), recover=True, reload=True)
    assert told.beyond(recovered_ms=5, reloaded_ms=6) == told


def test_of_two_wishes_the_later_moment_counts():
    met = ReceivedOrder(reload_ms=3, recover_ms=9).after(ReceivedOrder(reload_ms=5, recover_ms=8))
    assert (met.reload_ms, met.recover_ms) == (5, 9)
