"""A daemon that is root takes no directory that is somebody else's."""

from __future__ import annotations

import os
import pathlib
import stat

import pytest

from corral.daemon.node.data_directory import make_data_directory
from corral.errors import Code, Rejected
from corral.testing.cluster import LocalCluster

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root closes directories to others")


def modes(root: pathlib.Path) -> dict[str, int]:
    return {
        str(path.relative_to(root)): stat.S_IMODE(path.stat().st_mode) for path in [root, *root.rglob("*")]
    }


async def test_a_directory_with_files_of_others_is_refused_and_left_as_it_is(scratch):
    srv = scratch / "n1"
    (srv / "www").mkdir(parents=True)
    (srv / "www" / "index.html").write_text("hello")
    (srv / "static").mkdir()  # a name that we use, too
    srv.chmod(0o755)
    before = modes(srv)
    async with LocalCluster(scratch) as cluster:
        controller = await cluster.controller("c1")
        with pytest.raises(Rejected, match=r"'www'.*choose an empty directory") as refused:
            await cluster.daemon("n1", controller)
    assert (refused.value.code, refused.value.field) == (Code.INVALID_CONFIG, "data")
    assert modes(srv) == before


@pytest.mark.parametrize(
    "names", [(), ("secrets", "static"), ("lost+found",), ("daemon.lock", "cache", "notes.txt")], ids=str
)
def test_an_empty_directory_one_prepared_for_us_and_one_of_ours_are_taken(scratch, names):
    for name in names:
        (scratch / "data" / name).mkdir(parents=True)
    make_data_directory(scratch / "data")
