"""Whether a user that modules run as can read what they import."""

from __future__ import annotations

import os
import pathlib

import pytest

from corral.errors import Code, Rejected
from corral.modules.process.run_user import check_readable, let_pass
from corral.system.accounts import RunUser

SOMEBODY = RunUser(name="somebody", uid=54_321, gid=54_321, groups=(54_321,))


@pytest.fixture
def place(scratch):
    """A directory that everybody can read, in one that everybody may pass."""
    scratch.chmod(0o711)
    made = scratch / "upper" / "lower"
    made.mkdir(parents=True)
    made.parent.chmod(0o711)
    made.chmod(0o755)
    return made


def refusal(*paths: pathlib.Path) -> Rejected:
    with pytest.raises(Rejected) as refused:
        check_readable(SOMEBODY, paths)
    assert refused.value.code is Code.RUN_AS_REFUSED
    return refused.value


def test_what_everybody_can_read_is_fine_and_what_is_not_there_is_no_obstacle(place):
    check_readable(SOMEBODY, [place, place / "vendor"])


def test_a_directory_must_be_readable_and_those_above_only_passable(place):
    place.chmod(0o711)
    assert f"chmod o+rx {place}" in refusal(place).hint


def test_all_closed_directories_are_named_at_once_with_what_opens_them(place, scratch):
    other = scratch / "other"
    (other / "deep").mkdir(parents=True)
    (other / "deep").chmod(0o755)
    for closed in (place.parent, other):
        closed.chmod(0o700)
    refused = refusal(place, other / "deep")
    assert f"it may not read {place}, because of {place.parent}" in refused.message
    assert f"chmod o+x {place.parent} {other}`" in refused.hint
    assert "Python" not in refused.hint
    assert "modules.run_as" in refused.hint


def test_a_closed_interpreter_is_said_to_be_one(place, monkeypatch):
    place.parent.chmod(0o700)
    monkeypatch.setattr(os, "__file__", str(place / "os.py"))
    assert "a Python that every user can read" in refusal(place).hint


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_owner_and_group_are_judged_by_their_own_bits(place):
    place.chmod(0o700)
    os.chown(place, SOMEBODY.uid, 0)
    check_readable(SOMEBODY, [place])
    place.chmod(0o077)
    assert str(place) in refusal(place).message
    os.chown(place, 0, SOMEBODY.gid)
    place.chmod(0o050)
    check_readable(SOMEBODY, [place])


def test_letting_pass_opens_no_more_than_it_is_told_to(place, scratch):
    for path in (scratch, place.parent, place):
        path.chmod(0o700)
    let_pass(place, within=place.parent)
    assert [path.stat().st_mode & 0o777 for path in (scratch, place.parent, place)] == [0o700, 0o711, 0o711]
