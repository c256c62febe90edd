"""Exports of the audit: any single change of one is found, and the entry is named."""

from __future__ import annotations

import datetime as dt

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.audit_chain import GENESIS, ChainedEntry, ChainPoint, ChainState, entry_hash
from corral.domain.audit_export import ExportVerdict, ExportWriter, check_export

BEGIN = dt.datetime(2026, 11, 17, 8, 0, 0, 123456, tzinfo=dt.UTC)


def entries_of(count: int, *, unchained: int = 0) -> list[ChainedEntry]:
    previous, entries = GENESIS, []
    for n in range(count):
        number, at = 3 * n + 5, BEGIN + dt.timedelta(microseconds=n * 1_000_001)
        body = msgspec.json.encode({"action": "groups.update", "actor": "token:a", "subject": f"lobby-{n}"})
        if n < unchained:
            entries.append(ChainedEntry(number=number, at=at, body=body))
            continue
        hash = entry_hash(previous, number, at, body)
        entries.append(ChainedEntry(number=number, at=at, body=body, previous=previous, hash=hash))
        previous = hash
    return entries


def chained(entries: list[ChainedEntry], body: bytes) -> list[ChainedEntry]:
    """With one more entry."""
    number, at, previous = entries[-1].number + 3, entries[-1].at, entries[-1].hash
    hash = entry_hash(previous, number, at, body)
    return [*entries, ChainedEntry(number=number, at=at, body=body, previous=previous, hash=hash)]


def export_of(entries: list[ChainedEntry], *, skip: int = 0, since: dt.datetime | None = None) -> list[bytes]:
    first = next((entry.number for entry in entries if entry.hash), 0)
    last = ChainPoint(number=entries[-1].number, hash=entries[-1].hash)
    after = ChainPoint(number=entries[skip - 1].number, hash=entries[skip - 1].hash) if skip else ChainPoint()
    writer = ExportWriter()
    chain = ChainState(first=first, head=last, removed=ChainPoint())
    lines = [writer.begin(cluster="c-1", at=BEGIN, since=since, until=None, chain=chain, after=after)]
    lines += [writer.add(entry) for entry in entries[skip:]]
    return [*lines, writer.finish()]


def numbers(verdict: ExportVerdict) -> list[int]:
    return [fault.number for fault in verdict.faults]


@pytest.mark.parametrize(("unchained", "skip"), [(0, 0), (3, 0), (3, 2), (3, 3), (0, 5), (8, 0)])
def test_an_export_as_it_was_written_is_intact(unchained: int, skip: int) -> None:
    entries = entries_of(8, unchained=unchained)
    verdict = check_export(export_of(entries, skip=skip, since=BEGIN))
    assert verdict.intact, verdict.faults
    assert (verdict.entries, verdict.unchained) == (8 - skip, max(0, unchained - skip))
    assert verdict.head == ChainPoint(number=entries[-1].number, hash=entries[-1].hash)


@given(st.data())
def test_any_changed_byte_is_found(data: st.DataObject) -> None:
    whole = b"".join(export_of(entries_of(4, unchained=1)))
    at = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[at]))
    changed = whole[:at] + bytes([byte]) + whole[at + 1 :]
    assert not check_export(changed.splitlines(keepends=True)).intact


@given(st.data())
def test_any_removed_or_inserted_byte_is_found(data: st.DataObject) -> None:
    whole = b"".join(export_of(entries_of(4)))
    at = data.draw(st.integers(0, len(whole) - 1))
    inserted = data.draw(st.binary(max_size=1))
    changed = whole[:at] + inserted + whole[at + (0 if inserted else 1) :]
    assert not check_export(changed.splitlines(keepends=True)).intact


@given(st.integers(0, 9))
def test_any_removed_line_is_found_and_a_removed_entry_is_named_by_its_neighbour(place: int) -> None:
    entries = entries_of(8)
    lines = export_of(entries)
    verdict = check_export([*lines[:place], *lines[place + 1 :]])
    assert not verdict.intact
    if 1 <= place <= 8:
        following = entries[place] if place < 8 else entries[7]
        assert numbers(verdict)[0] == following.number


@given(st.integers(1, 8), st.integers(1, 8))
def test_any_two_exchanged_entries_are_found(one: int, other: int) -> None:
    lines = export_of(entries_of(8))
    lines[one], lines[other] = lines[other], lines[one]
    assert check_export(lines).intact == (one == other)


@given(st.integers(1, 9), st.integers(1, 8))
def test_any_entry_that_is_repeated_elsewhere_is_found(place: int, which: int) -> None:
    lines = export_of(entries_of(8))
    lines.insert(place, lines[which])
    assert not check_export(lines).intact


@given(st.integers(0, 7), st.sampled_from(["subject", "action", "actor"]))
def test_a_changed_entry_is_named_also_when_its_own_hash_was_made_to_fit(which: int, field: str) -> None:
    entries = entries_of(8)
    forged = entries[which]
    body = msgspec.json.encode({**msgspec.json.decode(forged.body), field: "another"})
    changed = [*entries]
    changed[which] = msgspec.structs.replace(forged, body=body)
    assert numbers(check_export(export_of(changed)))[0] == forged.number
    fitted = entry_hash(forged.previous, forged.number, forged.at, body)
    changed[which] = msgspec.structs.replace(forged, body=body, hash=fitted)
    verdict = check_export(export_of(changed), expect=entries[-1].hash)
    assert not verdict.intact
    if which < 7:
        assert numbers(verdict)[0] == entries[which + 1].number


@given(st.integers(1, 7))
def test_a_tail_that_was_cut_skilfully_is_seen_by_whoever_kept_a_head(kept: int) -> None:
    entries = entries_of(8)
    cut = export_of(entries[:kept])
    assert check_export(cut).intact
    assert check_export(cut, expect=entries[kept - 1].hash).intact
    verdict = check_export(cut, expect=entries[kept].hash)
    assert "no entry has the expected hash" in str(verdict.faults[0])


def removal(through: int, hash: bytes, **other: str) -> bytes:
    after = {"through": through, "hash": hash.hex(), "entries": 3}
    return msgspec.json.encode({"actor": "system", "action": "audit.remove", "after": after, **other})


@pytest.mark.parametrize(
    ("through", "other", "intact"),
    [
        (2, {}, True),
        (4, {}, True),
        (1, {}, False),
        (2, {"actor": "token:a"}, False),
        (2, {"action": "groups.update", "note": "audit.remove"}, False),
        (None, {}, False),
    ],
    ids=["exactly", "a removal that broke off", "less", "another actor", "another action", "another hash"],
)
def test_a_cut_in_front_needs_a_record_of_retention(
    through: int | None, other: dict[str, str], intact: bool
) -> None:
    entries = entries_of(8)
    cut = entries[2 if through is None else through]
    entries = chained(entries, removal(cut.number, bytes(32) if through is None else cut.hash, **other))
    verdict = check_export(export_of(entries, skip=3))
    assert verdict.intact is intact
    assert [fault.number for fault in verdict.faults] == ([] if intact else [entries[2].number])
    assert (verdict.removed, verdict.removal) == (entries[2].number, entries[8].number if intact else 0)
    for expected in (7, 8) if intact else ():
        proved = check_export(export_of(entries, skip=3), expect=entries[expected].hash).removal_is_proved
        assert proved is (expected == 8)


def test_a_chain_that_was_written_anew_is_seen_by_whoever_kept_a_head() -> None:
    kept = entries_of(8)[3].hash
    entries = entries_of(8, unchained=1)
    assert check_export(export_of(entries)).intact
    assert not check_export(export_of(entries), expect=kept).intact


@pytest.mark.parametrize("junk", [b"", b"{}", b"\x00\xff", b'{"kind":"corral.audit"}\n', b"[" * 100_000])
def test_what_is_no_export_is_refused(junk: bytes) -> None:
    assert not check_export(junk.splitlines(keepends=True)).intact


def test_faults_are_counted_when_there_are_too_many_to_keep() -> None:
    lines = export_of(entries_of(300))
    verdict = check_export([lines[0], *(line.replace(b"lobby", b"other") for line in lines[1:-1]), lines[-1]])
    assert (len(verdict.faults), verdict.more_faults) == (100, 200)
