"""From one version of a template to another: for nodes (delta) and for people (diff)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.template_diff import (
    FileChange,
    FileState,
    SettingChange,
    apply_delta,
    delta_between,
    diff_versions,
)
from corral.domain.templates import (
    TemplateFile,
    TemplateManifest,
    TemplateSettings,
    encode_manifest,
    manifest_digest,
)
from corral.errors import Code, Rejected


def file(path: str, content: int = 0, *, mode: int = 0o644, pieces: tuple[str, ...] = ()) -> TemplateFile:
    return TemplateFile(path=path, mode=mode, size=content, digest=f"{content:064x}", pieces=pieces)


_NAMES = st.text(st.sampled_from("abc/é"), min_size=1, max_size=4)
_MANIFESTS = st.builds(
    lambda files, directories: TemplateManifest(
        files=tuple(file(path, *value[:1], mode=value[1]) for path, value in sorted(files.items())),
        directories=tuple(sorted(directories)),
    ),
    st.dictionaries(_NAMES, st.tuples(st.integers(0, 3), st.sampled_from([0o644, 0o755, 0o444]))),
    st.sets(_NAMES),
)


@given(_MANIFESTS, _MANIFESTS)
def test_a_delta_leads_exactly_to_the_new_manifest(old, new):
    made = apply_delta(old, delta_between(old, new))
    assert made == new
    assert manifest_digest(made) == manifest_digest(new)


@given(_MANIFESTS, _MANIFESTS, _MANIFESTS)
def test_a_delta_onto_another_manifest_is_found_out_by_its_digest(old, new, other):
    made = apply_delta(other, delta_between(old, new))
    assert (manifest_digest(made) == manifest_digest(new)) == (made == new)


def test_one_changed_file_among_thousands_is_a_short_delta():
    old = TemplateManifest(files=tuple(file(f"f{n:05}", n) for n in range(5000)))
    new = TemplateManifest(files=(*old.files[:-1], file("f04999", 7)))
    delta = delta_between(old, new)
    assert len(delta) < 300 < len(encode_manifest(new)) // 1000
    assert delta_between(new, new) == b"{}"


@pytest.mark.parametrize("bad", [b"", b"[]", b"{", b'{"files":[{"path":1}]}', b"\xff", b'{"removed":"a"}'])
def test_a_delta_that_cannot_be_read_is_refused(bad):
    with pytest.raises(Rejected) as caught:
        apply_delta(TemplateManifest(), bad)
    assert caught.value.code is Code.DIGEST_MISMATCH


def test_a_diff_tells_files_modes_directories_and_settings_apart():
    old = TemplateManifest(
        files=(file("a", 1), file("b", 2), file("c", 3), file("same", 4)), directories=("empty",)
    )
    new = TemplateManifest(
        files=(file("a", 9), file("c", 3, mode=0o755), file("d", 5), file("same", 4, pieces=("x",))),
        directories=("other",),
    )
    found = diff_versions(
        old, new, TemplateSettings(parents=("base",)), TemplateSettings(parents=("base", "more"))
    )
    assert found.added == (FileState(path="d", size=5, mode=0o644, digest=f"{5:064x}"),)
    assert found.removed == (FileState(path="b", size=2, mode=0o644, digest=f"{2:064x}"),)
    assert found.changed == (
        FileChange(path="a", old_size=1, new_size=9, old_mode=0o644, new_mode=0o644, content=True),
        FileChange(path="c", old_size=3, new_size=3, old_mode=0o644, new_mode=0o755, content=False),
    )
    assert (found.added_directories, found.removed_directories) == (("other",), ("empty",))
    assert found.settings == (SettingChange(field="parents", old=("base",), new=("base", "more")),)
    assert not found.empty
    assert diff_versions(old, old).empty
