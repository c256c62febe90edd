"""What features mean together."""

from __future__ import annotations

import msgspec

from corral.wire import features
from corral.wire.features import FEATURES, PeerSupport, support_of


def abilities(*named: str) -> set[str]:
    return {name for name, there in msgspec.structs.asdict(support_of(named)).items() if there}


def test_two_of_this_version_can_do_everything_and_a_published_peer_nothing_of_it():
    assert abilities(*FEATURES) == set(PeerSupport.__struct_fields__)
    assert support_of([]) == PeerSupport()
    assert abilities("dancing") == set()


def test_what_needs_the_second_channel_is_not_there_without_it():
    without = abilities(*(name for name in FEATURES if name != features.DATA))
    lost = {"bulk", "console_queries", "run_lists", "templates", "file_changes", "file_modes", "worlds"}
    assert set(PeerSupport.__struct_fields__) - without == lost


def test_modes_are_named_only_to_those_that_can_change_files():
    changing = {features.DATA, features.FILES, features.FILE_CHANGES}
    assert "file_modes" not in abilities(features.DATA, features.FILES, features.FILE_MODES)
    assert abilities(*changing, features.FILE_MODES) - abilities(*changing) == {"file_modes"}


def test_runs_are_listed_only_by_those_that_can_be_asked_for_consoles():
    assert abilities(features.RUNS, features.DATA) == {"bulk"}
    assert abilities(features.CONSOLE, features.DATA) == {"bulk", "consoles", "console_queries"}
