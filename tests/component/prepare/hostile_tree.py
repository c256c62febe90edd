"""A working directory full of traps, a place outside that nobody may reach through it, and a process that swaps."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator

from corral.system.trees.removal import remove

UID = 27101
"""Of the workload that owns the tree."""
SECRET = b"a private key that lies outside"
OWN = b"the workload's own"
_HOSTILE = """
import ctypes, os, sys
libc = ctypes.CDLL(None)
here = os.open(sys.argv[1], os.O_RDONLY)
if sys.argv[2] != "0":
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
pairs = [pair.encode().split(b"=") for pair in sys.argv[3:]]
os.set_blocking(0, False)
print("begun", flush=True)
number = 0
while True:
    for one, other in pairs:
        libc.renameat2(here, one, here, other, 2)
    if not pairs:
        number += 1
        libc.mkdirat(here, b"more-%d" % number, 0o755)
    try:
        if not os.read(0, 1):
            break
    except BlockingIOError:
        pass
"""


class HostileTree:
    """`root` is the working directory, as a workload of user `UID` left it; `outside` lies beside it."""

    def __init__(self, place: pathlib.Path) -> None:
        self.place = place
        self.root = place / "work"
        self.outside = place / "outside"
        place.mkdir()
        self.root.mkdir()
        self.outside.mkdir()
        (self.outside / "precious").write_bytes(SECRET)
        (self.outside / "precious").chmod(0o600)
        (self.outside / "sub").mkdir()
        (self.outside / "sub" / "precious").write_bytes(SECRET)
        (self.outside / "sub" / "precious").chmod(0o640)
        self.outside.chmod(0o755)
        self.before = self._picture()

    def _picture(self) -> dict[str, tuple[int, int, int, bytes]]:
        """All there is outside: mode, owner and content. Counts of names are the tests' own doing."""
        found = {}
        for path in (self.outside, *sorted(self.outside.rglob("*"))):
            status = path.lstat()
            body = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found[str(path.relative_to(self.place))] = (status.st_mode, status.st_uid, status.st_gid, body)
        return found

    def check_outside(self) -> None:
        assert self._picture() == self.before, "something outside was touched"

    def own(self) -> None:
        """What was made is the workload's, but for what lies outside as well; `deep` sees to its own."""
        chosen = ["-maxdepth", "4", "(", "-type", "d", "-o", "-links", "1", ")"]
        owned = ["-exec", "chown", "-h", f"{UID}:{UID}", "{}", "+"]
        subprocess.run(["find", str(self.root), *chosen, *owned], check=True)

    def file(self, path: str, body: bytes = OWN) -> pathlib.Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(body)
        return place

    def deep(self, levels: int, name: str = "d") -> int:
        """That many directories within each other, and a file at the end. The last one, open."""
        here = os.open(self.root, os.O_RDONLY)
        for _ in range(levels):
            os.mkdir(name, 0o755, dir_fd=here)
            os.chown(name, UID, UID, dir_fd=here)
            below = os.open(name, os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(os.open("end", os.O_WRONLY | os.O_CREAT, 0o644, dir_fd=here))
        os.chown("end", UID, UID, dir_fd=here)
        return here

    @contextlib.contextmanager
    def swapping(self, *pairs: tuple[str, str], uid: int = UID) -> Iterator[None]:
        """A process that exchanges each pair of names in the root, as fast as it can, until the end."""
        with _hostile(self.root, uid, *map("=".join, pairs)):
            yield

    @contextlib.contextmanager
    def filling(self, path: str) -> Iterator[None]:
        """A process that makes directories in this one, by a descriptor that it has from before."""
        with _hostile(self.root / path, UID):
            yield

    def close(self) -> None:
        for left in list(self.place.iterdir()):
            assert remove(left) == ""


@contextlib.contextmanager
def _hostile(directory: pathlib.Path, uid: int, *pairs: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-c", _HOSTILE, str(directory), str(uid), *pairs],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            assert process.stdout.readline() == b"begun\n"
            yield
            assert process.poll() is None, "it went on to the end"
        finally:
            process.stdin.close()


# What a workload can leave in a directory, each by its name.


def links(tree: HostileTree) -> None:
    for name, target in (("link", tree.outside), ("dangling", pathlib.Path("/nowhere")), ("self", tree.root)):
        (tree.root / name).symlink_to(target)
    (tree.root / "file-link").symlink_to(tree.outside / "precious")
    (tree.root / "config").symlink_to(tree.outside / "sub")


def fifos(tree: HostileTree) -> None:
    os.mkfifo(tree.root / "fifo")
    (tree.root / "config").mkdir()
    os.mkfifo(tree.root / "config" / "precious")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tree.root / "socket"))


def devices(tree: HostileTree) -> None:
    """A terminal that would become ours, and one that reads for ever."""
    os.mknod(tree.root / "tty", stat.S_IFCHR | 0o666, os.makedev(5, 0))
    os.mknod(tree.root / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    (tree.root / "config").mkdir()
    os.mknod(tree.root / "config" / "precious", stat.S_IFCHR | 0o666, os.makedev(1, 5))


def hard_links(tree: HostileTree) -> None:
    (tree.root / "hard").hardlink_to(tree.outside / "precious")
    (tree.root / "config").mkdir()
    (tree.root / "config" / "precious").hardlink_to(tree.outside / "sub" / "precious")


def deep(tree: HostileTree) -> None:
    os.close(tree.deep(1_200))


def very_deep(tree: HostileTree) -> None:
    os.close(tree.deep(20_000))


def long_names(tree: HostileTree) -> None:
    os.close(tree.deep(30, "n" * 255))
    (tree.root / ("f" * 255)).write_bytes(OWN)


def closed(tree: HostileTree) -> None:
    (tree.root / "closed").mkdir()
    tree.file("closed/inner/file").chmod(0o000)
    (tree.root / "closed" / "inner").chmod(0o000)
    (tree.root / "closed").chmod(0o000)
    tree.file("config/precious").chmod(0o000)


HOSTILITIES = (links, fifos, devices, hard_links, deep, very_deep, long_names, closed)
