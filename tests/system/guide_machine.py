"""A machine for one reader of a guide: namespaces of its own over a copy-on-write view of this machine's files.

Every port is free, the host is called `myhost`, names such as `controller.example.org` lead to it, the repository is as it
was cloned, with its `.venv`; whatever the reader installs, writes or starts is gone with the machine.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import selectors
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Final

import pytest

PROJECT: Final = pathlib.Path(__file__).resolve().parents[2]
HOST: Final = "myhost"
ELSEWHERE: Final = ("controller", "one", "two", "db", "web-1", "files")
NAMESPACES: Final = ("--mount", "--uts", "--ipc", "--net", "--pid")
REAP: Final = """
import os, signal, time
print("booted", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)
"""
FURNISH: Final = f"""
hostname {HOST}; echo {HOST} > etc/hostname
ip link set lo up
ln -s /proc/self/fd dev/fd; ln -s fd/0 dev/stdin; ln -s fd/1 dev/stdout; ln -s fd/2 dev/stderr
echo '127.0.0.1 localhost {HOST} {" ".join(f"{name}.example.org" for name in ELSEWHERE)}' > etc/hosts
rm -rf etc/corral var/lib/corral opt/corral
"""
BOOT: Final = f"""
set -eu
root=$1; shift
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir "$root/upper" "$root/work" "$root/all"
mount -t overlay -o "lowerdir=/,upperdir=$root/upper,workdir=$root/work" overlay "$root/all"
cd "$root/all"
for place in dev dev/shm run tmp; do mkdir -p $place; mount -t tmpfs -o mode=755 tmpfs $place; done
chmod 1777 tmp dev/shm
for node in null zero full random urandom tty; do : > dev/$node; mount --bind /dev/$node dev/$node; done
number=0
for path in "$@"; do
  number=$((number + 1)); mkdir -p ".$path" "$root/upper$number" "$root/work$number"
  mount -t overlay -o "lowerdir=$path,upperdir=$root/upper$number,workdir=$root/work$number" overlay ".$path"
done
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
{FURNISH}
rm -rf ".{PROJECT}/data"
[ -e ".{PROJECT}/.venv" ] || ln -s {sys.prefix} ".{PROJECT}/.venv"
touch ".{PROJECT}/.venv/.runtime" ".{PROJECT}/.venv/.dev"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . {sys.executable} -c "$REAP"
"""


class Shell:
    """A terminal in which one command is typed after the other."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._typed = 0

    def type(self, command: str, timeout: float = 120) -> tuple[int, str]:
        """Exit code and output. What a command leaves in the shell (directory, variables, aliases) stays."""
        self._typed += 1
        end = f"typed-{self._typed}-of-{self._process.pid}"
        text = f"eval \"$(cat <<'{end}'\n{command}\n{end}\n)\" < /dev/null; printf '\\n{end} %d\\n' $?\n"
        assert self._process.stdin is not None
        self._process.stdin.write(text.encode())
        self._process.stdin.flush()
        output = self._read_until(f"\n{end} ".encode(), time.monotonic() + timeout, command)
        said, _, code = output.decode(errors="replace").rpartition(f"\n{end} ")
        return int(code), said

    def _read_until(self, mark: bytes, deadline: float, command: str) -> bytes:
        assert self._process.stdout is not None
        found = b""
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while mark not in found or not found.endswith(b"\n"):
                there = selector.select(max(0.0, deadline - time.monotonic()))
                more = os.read(self._process.stdout.fileno(), 65536) if there else b""
                if not more:
                    why = "ended the shell" if there else "did not end"
                    raise AssertionError(f"this {why}: {command}\n{found.decode(errors='replace')}")
                found += more
        return found

    def join(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


def login(directory: pathlib.Path = PROJECT) -> list[str]:
    """What comes before a command of a person who has just logged in."""
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    variables = ["HOME=/root", "LANG=C.UTF-8", "TERM=dumb", "COLUMNS=200", f"PATH={path}"]
    return ["env", "-i", f"--chdir={directory}", *variables]


SHELL: Final = ("bash", "--norc", "--noprofile", "-O", "expand_aliases")


class GuideMachine:
    """Where a guide is read. Commands see nothing of the test's own processes, network and directories."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._shells: list[Shell] = []

    def first_process(self) -> int:
        children = pathlib.Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        return int(children.read_text().split()[0])

    def shell(self) -> Shell:
        enter = ["nsenter", "-t", str(self.first_process()), "-m", "-u", "-i", "-n", "-p", "-r"]
        shell = Shell([*enter, *login(), *SHELL])
        self._shells.append(shell)
        return shell

    def end(self) -> None:
        """Its first process takes all others of the machine along."""
        self._process.kill()
        self._process.wait()
        for shell in self._shells:
            shell.join()


@contextlib.contextmanager
def guide_machine() -> Iterator[GuideMachine]:
    _possible()
    root = pathlib.Path(tempfile.mkdtemp(prefix="corral-guide-"))
    seen = dict.fromkeys((str(PROJECT), sys.prefix, sys.base_prefix))
    paths = [
        path for path in seen if not any(path != other and path.startswith(f"{other}/") for other in seen)
    ]
    process = subprocess.Popen(
        ["unshare", "--fork", "--kill-child", *NAMESPACES, "sh", "-c", BOOT, "sh", str(root), *paths],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "REAP": REAP}, start_new_session=True,
    )  # fmt: skip
    machine = GuideMachine(process)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said == "booted\n", said + process.stdout.read()
        yield machine
    finally:
        machine.end()
        process.stdout.close()
        root.rmdir()


def _possible() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a machine out of namespaces")
    for program in ("unshare", "nsenter", "ip", "make", "curl"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed; see tools/install_test_programs.sh")
